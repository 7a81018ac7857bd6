/* build: -O1
 *
 * Flags that the program's own computation does not read, but a signal handler does.
 *   flags fault    loads fault behind a comparison; the handler notes the flags and goes on at code that reads them
 *   flags step     the program steps itself through a function by the trap flag
 *   flags align    the alignment check is on, and the stack pointer is 4 modulo 8
 * Prints what it saw, never an address. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

enum { STATUS = 0x8d5 };

extern char flags_first[], flags_after_first[], flags_second[], flags_after_second[];
extern char flags_stepped_end[];
long flags_fault(void *nothing, long x);
long flags_stepped(long x);
long flags_step(long x);
long flags_align(long *pair);
__asm__(".text\n"
        ".globl flags_fault, flags_compare, flags_first, flags_after_first, flags_second, flags_after_second\n"
        ".type flags_fault, @function\n"
        "flags_fault:\n"
        "  mov %rsi, %rax\n"
        /* Never, but so it is seen to be code. */
        "  cmp $-1, %rdi\n"
        "  je flags_after_first\n"
        "  mov $77, %ecx\n"
        "flags_compare:\n"
        "  cmp $5, %rsi\n"
        "flags_first:\n"
        "  mov (%rdi), %rax\n"
        "  xor %ecx, %ecx\n"
        "  ret\n"
        "flags_after_first:\n"
        "  setc %cl\n"
        "  seto %dl\n"
        "  sets %dh\n"
        "  movzwl %dx, %edx\n"
        "  lea (%rax,%rcx,8), %rax\n"
        "  lea (%rax,%rdx,4), %rax\n"
        "  cmp $3, %rsi\n"
        "  lea (%rax,%rax), %rax\n"
        "flags_second:\n"
        "  mov (%rdi), %ecx\n"
        "  add %rcx, %rax\n"
        "  ret\n"
        "flags_after_second:\n"
        "  jc 1f\n"
        "  add $100000, %rax\n"
        "1: ret\n"
        ".size flags_fault, . - flags_fault\n"
        ".globl flags_stepped, flags_stepped_end\n"
        ".type flags_stepped, @function\n"
        "flags_stepped:\n"
        "  push %rbx\n"
        "  mov %rdi, %rbx\n"
        "  xor %eax, %eax\n"
        "1: add %rbx, %rax\n"
        "  dec %rbx\n"
        "  jnz 1b\n"
        "  push %rax\n"
        "  pushfq\n"
        "  pop %rcx\n"
        "  and $0x1d5, %ecx\n"
        "  pop %rax\n"
        "  add %rcx, %rax\n"
        "  cmp $10, %rax\n"
        "  cmovg %rcx, %rdx\n"
        "  cmp $7, %rdi\n"
        "  mov %rax, %rdx\n"
        "  lea 1(%rdx), %rdx\n"
        "  xor %edx, %edx\n"
        "  pop %rbx\n"
        "  ret\n"
        "flags_stepped_end:\n"
        ".size flags_stepped, . - flags_stepped\n"
        "flags_step:\n"
        "  pushfq\n"
        "  orq $0x100, (%rsp)\n"
        "  popfq\n"
        "  call flags_stepped\n"
        "  pushfq\n"
        "  andq $~0x100, (%rsp)\n"
        "  popfq\n"
        "  ret\n"
        ".globl flags_align\n"
        ".type flags_align, @function\n"
        "flags_align:\n"
        "  pushfq\n"
        "  orq $0x40000, (%rsp)\n"
        "  popfq\n"
        "  sub $4, %rsp\n"
        "  mov (%rdi), %rax\n"
        "  add 8(%rdi), %rax\n"
        "  lea 3(%rax), %rax\n"
        "  add $4, %rsp\n"
        "  pushfq\n"
        "  mov (%rsp), %rdx\n"
        "  and $0x40000, %edx\n"
        "  add %rdx, %rax\n"
        "  andq $~0x40000, (%rsp)\n"
        "  popfq\n"
        "  ret\n"
        ".size flags_align, . - flags_align\n");

static unsigned long seen, steps;

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    char *at = (char *)registers[REG_RIP];
    seen = seen * 3 + (registers[REG_EFL] & STATUS) + registers[REG_RAX] * 7 + registers[REG_RCX];
    if (at == flags_first) registers[REG_RIP] = (greg_t)flags_after_first;
    else if (at == flags_second) registers[REG_RIP] = (greg_t)flags_after_second;
    else _Exit(3);
}

static void on_step(int signal, siginfo_t *info, void *context) {
    (void)signal;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    unsigned long at = registers[REG_RIP], from = (unsigned long)flags_stepped;
    if (at >= from && at < (unsigned long)flags_stepped_end) {
        steps++;
        seen = seen * 31 + (at - from) * 7 + (registers[REG_EFL] & STATUS) + info->si_code;
        seen += info->si_addr == (void *)at;
    }
}

int main(int count, char **words) {
    const char *mode = count > 1 ? words[1] : "";
    struct sigaction action = {.sa_flags = SA_SIGINFO};
    long sum = 0;
    action.sa_sigaction = on_fault;
    sigaction(SIGSEGV, &action, 0);
    action.sa_sigaction = on_step;
    sigaction(SIGTRAP, &action, 0);
    if (!strcmp(mode, "fault"))
        for (int i = 0; i < 100; i++) sum = sum * 3 + flags_fault((void *)8, i % 9);
    else if (!strcmp(mode, "step"))
        for (int i = 1; i < 12; i++) sum = sum * 3 + flags_step(i);
    else if (!strcmp(mode, "align"))
        for (int i = 0; i < 20; i++) sum = sum * 31 + flags_align((long[]){i, 4});
    else return 2;
    printf("sum %ld seen %lx steps %lu\n", sum, seen, steps);
    return 0;
}
