/* build: -O1
 *
 * A probed load that faults. `fault_load` reads a word of a page that is not mapped; the SIGSEGV handler, on its own
 * stack, compares the interrupted rip with the address of fault_load, and si_addr with the page's.
 *   fault retry    the handler maps the page and returns: the load is retried and gives 42
 *   fault longjmp  the handler leaves by siglongjmp: the load never completes
 *   fault kill     no handler: the program dies of SIGSEGV
 *   fault none     the page is there from the start: nothing faults
 * Prints what it saw, never an address. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { PAGE = 4096 };

uint64_t fault_load(const uint64_t *address);
#if defined __i386__
#define REG_RIP REG_EIP
__asm__(".text\n"
        ".globl fault_load\n"
        ".type fault_load, @function\n"
        "fault_prepare:\n"
        "  mov 4(%esp), %ecx\n"
        "  xor %edx, %edx\n"
        "fault_load:\n"
        "  mov (%ecx), %eax\n"
        "  ret\n"
        ".size fault_load, . - fault_load\n");
uint64_t fault_prepare(const uint64_t *address);
#else
#define fault_prepare fault_load
__asm__(".text\n"
        ".globl fault_load\n"
        ".type fault_load, @function\n"
        "fault_load:\n"
        "  mov (%rdi), %rax\n"
        "  ret\n"
        ".size fault_load, . - fault_load\n");
#endif

static uint64_t *page;
static int leave;
static sigjmp_buf out;
static volatile int faults, right_rip, right_address, on_alternate_stack;
static char stack[65536];

static void map(void) {
    void *at = mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (at != page) abort();
    *page = 42;
}

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)signal;
    char here;
    ucontext_t *interrupted = context;
    faults++;
    right_rip += (uintptr_t)interrupted->uc_mcontext.gregs[REG_RIP] == (uintptr_t)fault_load;
    right_address += info->si_addr == (void *)page;
    on_alternate_stack += &here >= stack && &here < stack + sizeof stack;
    if (leave) siglongjmp(out, 1);
    map();
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "retry";
    page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return 2;
    *page = 42;
    if (strcmp(mode, "none")) munmap(page, PAGE);
    leave = !strcmp(mode, "longjmp");
    if (strcmp(mode, "kill")) {
        stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
        struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
        if (sigaltstack(&alternate, NULL) || sigaction(SIGSEGV, &action, NULL)) return 2;
    }
    volatile uint64_t value = 0;
    if (!sigsetjmp(out, 1)) value = fault_prepare(page);
    printf("value %llu faults %d rip %d address %d stack %d\n", (unsigned long long)value, faults, right_rip,
           right_address, on_alternate_stack);
    return 0;
}
