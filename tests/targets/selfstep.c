/* build: -O1
 *
 * A program that uses SIGTRAP itself, with a probe on selfstep_work.
 *   selfstep step   sets the trap flag, runs 5 instructions and a call of selfstep_work (3 instructions) under it,
 *                   clears the flag; its SIGTRAP handler counts the steps and notes whether every rip it saw lies in
 *                   the stepped code
 *   selfstep int3   executes its own int3 ten times between calls; the handler counts them and checks that rip is the
 *                   byte after each
 *   selfstep raise  raises SIGTRAP ten times with kill()
 * Prints "steps N strange N calls N sum N". */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

uint64_t selfstep_work(uint64_t a);
uint64_t selfstep_stepped(uint64_t a);
void selfstep_int3(void);
extern char selfstep_start[], selfstep_end[], selfstep_after[];

#if defined __i386__
#define REG_RIP REG_EIP
__asm__(".text\n"
        ".globl selfstep_work, selfstep_stepped, selfstep_int3, selfstep_start, selfstep_end, selfstep_after\n"
        "selfstep_start:\n"
        ".type selfstep_work, @function\n"
        "selfstep_work:\n"
        "  mov 4(%esp), %eax\n"
        "  lea 7(%eax), %eax\n"
        "  imul $3, %eax, %eax\n"
        "  xor %edx, %edx\n"
        "  ret\n"
        ".size selfstep_work, . - selfstep_work\n"
        ".type selfstep_stepped, @function\n"
        "selfstep_stepped:\n"
        "  pushf\n"
        "  orl $0x100, (%esp)\n"
        "  popf\n"
        "  push 4(%esp)\n"
        "  call selfstep_work\n"
        "  pop %ecx\n"
        "  add $1, %eax\n"
        "  pushf\n"
        "  andl $~0x100, (%esp)\n"
        "  popf\n"
        "  ret\n"
        ".size selfstep_stepped, . - selfstep_stepped\n"
        "selfstep_end:\n"
        ".type selfstep_int3, @function\n"
        "selfstep_int3:\n"
        "  int3\n"
        "selfstep_after:\n"
        "  ret\n"
        ".size selfstep_int3, . - selfstep_int3\n");
#else
__asm__(".text\n"
        ".globl selfstep_work, selfstep_stepped, selfstep_int3, selfstep_start, selfstep_end, selfstep_after\n"
        "selfstep_start:\n"
        ".type selfstep_work, @function\n"
        "selfstep_work:\n"
        "  lea 7(%rdi), %rax\n"
        "  imul $3, %rax, %rax\n"
        "  ret\n"
        ".size selfstep_work, . - selfstep_work\n"
        ".type selfstep_stepped, @function\n"
        "selfstep_stepped:\n"
        "  pushfq\n"
        "  orq $0x100, (%rsp)\n"
        "  popfq\n"
        "  nop\n"
        "  call selfstep_work\n"
        "  add $1, %rax\n"
        "  pushfq\n"
        "  andq $~0x100, (%rsp)\n"
        "  popfq\n"
        "  ret\n"
        ".size selfstep_stepped, . - selfstep_stepped\n"
        "selfstep_end:\n"
        ".type selfstep_int3, @function\n"
        "selfstep_int3:\n"
        "  int3\n"
        "selfstep_after:\n"
        "  ret\n"
        ".size selfstep_int3, . - selfstep_int3\n");
#endif

static volatile int steps, strange, mode;

static void on_trap(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    char *rip = (char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    steps++;
    if (mode == 's' && !(rip >= selfstep_start && rip < selfstep_end)) strange++;
    if (mode == 'i' && rip != selfstep_after) strange++;
}

int main(int argc, char **argv) {
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    uint64_t sum = 0, calls = 0;
    if (argc < 2 || sigaction(SIGTRAP, &action, NULL)) return 2;
    mode = argv[1][0];
    for (int i = 0; i < 10; i++) {
        if (mode == 's') sum += selfstep_stepped(i), calls++;
        if (mode == 'i') selfstep_int3();
        if (mode == 'r') kill(getpid(), SIGTRAP);
        sum += selfstep_work(i), calls++;
    }
    printf("steps %d strange %d calls %llu sum %llu\n", steps, strange, (unsigned long long)calls,
           (unsigned long long)sum);
    return strange != 0;
}
