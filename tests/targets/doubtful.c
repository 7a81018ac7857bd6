/* build: -O1 -no-pie
 *
 * Functions in which there is more than instructions that follow each other.
 *   in_table      a table of a `switch` in the function itself, behind filler
 *   in_call       data behind a call, whose callee takes its return address for the data's, and goes on behind it
 *   divides       a division, which a handler of SIGFPE passes over; what follows touches registers alone
 *   loads         an instruction of one byte that faults, and is passed over by a handler of SIGSEGV
 *   behind_call   what is behind a call that comes back one byte later
 *   jumped_over   a literal that is jumped over, and loaded from
 * Prints what each has computed, 50 times, and a sum over the bytes of the data in them. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

long in_table(long), in_call(long), divides(long, long), loads(void *, long), behind_call(long), jumped_over(long);
extern unsigned char table[], literal[], loaded[];

__asm__(".text\n"
        ".macro begin name\n"
        ".balign 16\n"
        ".globl \\name\n"
        ".type \\name, @function\n"
        "\\name: .cfi_startproc\n"
        ".endm\n"
        ".macro finish name\n"
        ".cfi_endproc\n"
        ".size \\name, . - \\name\n"
        ".endm\n"
        ".globl table, literal, loaded\n"
        "begin in_table\n"
        "  cmp $3, %edi\n"
        "  ja 9f\n"
        "  lea table(%rip), %rax\n"
        "  mov %edi, %edi\n"
        "  movslq (%rax,%rdi,4), %rcx\n"
        "  add %rcx, %rax\n"
        "  jmp *%rax\n"
        "  .balign 4, 0x90\n"
        "table: .long 1f - table, 2f - table, 3f - table, 4f - table\n"
        "1: mov $10, %eax\n"
        "  ret\n"
        "2: mov $11, %eax\n"
        "  ret\n"
        "3: mov $12, %eax\n"
        "  ret\n"
        "4: mov $13, %eax\n"
        "  ret\n"
        "9: mov $-1, %rax\n"
        "  ret\n"
        "finish in_table\n"
        "begin in_call\n"
        "  push %rbx\n"
        "  lea argument(%rip), %rbx\n"
        "  call *%rbx\n"
        "literal: .quad 0x1122334455667788\n"
        "  pop %rbx\n"
        "  add %rdi, %rax\n"
        "  ret\n"
        "finish in_call\n"
        "begin argument\n"
        "  pop %rcx\n"
        "  mov (%rcx), %rax\n"
        "  add $8, %rcx\n"
        "  jmp *%rcx\n"
        "finish argument\n"
        "begin divides\n"
        "  mov %edi, %eax\n"
        "  mov %esi, %ecx\n"
        "  xor %edx, %edx\n"
        "  div %ecx\n"
        "  cwtl\n"
        "  not %eax\n"
        "  neg %eax\n"
        "  add %ecx, %eax\n"
        "  not %eax\n"
        "  ret\n"
        "finish divides\n"
        "begin loads\n"
        "  xchg %rdi, %rsi\n"
        "  mov %rdi, %rcx\n"
        "  mov %rcx, %rdx\n"
        "  lodsb\n"
        "  cwtl\n"
        "  not %eax\n"
        "  neg %eax\n"
        "  add %ecx, %eax\n"
        "  not %eax\n"
        "  ret\n"
        "finish loads\n"
        "begin behind_call\n"
        "  mov %rdi, %rax\n"
        "  call one_later\n"
        "  cwtl\n"
        "  not %eax\n"
        "  neg %eax\n"
        "  not %eax\n"
        "  add %edi, %eax\n"
        "  ret\n"
        "finish behind_call\n"
        "begin one_later\n"
        "  incq (%rsp)\n"
        "  add $5, %rax\n"
        "  ret\n"
        "finish one_later\n"
        "begin jumped_over\n"
        "  mov loaded(%rip), %rax\n"
        "  jmp 1f\n"
        "loaded: .quad 0x9090909090909090\n"
        "1: add %rdi, %rax\n"
        "  ret\n"
        "finish jumped_over\n");

static volatile int passed;

static void pass_over(int signal, siginfo_t *info, void *context)
{
    ucontext_t *user = context;
    (void)info;
    user->uc_mcontext.gregs[REG_RIP] += signal == SIGFPE ? 2 : 1;
    user->uc_mcontext.gregs[REG_RAX] = 7;
    passed++;
}

static unsigned sum(const unsigned char *bytes, int count)
{
    unsigned sum = 0;
    while (count--)
        sum = sum * 31 + *bytes++;
    return sum;
}

int main(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = pass_over;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGFPE, &action, 0);
    sigaction(SIGSEGV, &action, 0);
    unsigned long all[6] = {0};
    for (int round = 0; round < 50; round++) {
        all[0] = all[0] * 3 + in_table(round % 6);
        all[1] = all[1] * 3 + in_call(round);
        all[2] = all[2] * 3 + divides(round * 100, round % 3);
        all[3] = all[3] * 3 + loads((void *)8, round);
        all[4] = all[4] * 3 + behind_call(round);
        all[5] = all[5] * 3 + jumped_over(round);
    }
    for (int at = 0; at < 6; at++)
        printf("%lx ", all[at]);
    printf("passed %d data %x %x %x\n", passed, sum(table, 16), sum(literal, 8), sum(loaded, 8));
    return 0;
}
