/* build: -O1
 *
 * A process that may not do what most may.
 *   forbidden tsc      the time stamp counter faults when it is read
 *   forbidden strict   only read, write, exit and sigreturn are left (seccomp's strict mode), and no time stamp counter
 *   forbidden filter   the same by a filter, but for exit_group and the counter
 *   forbidden cpuid    cpuid faults
 * Calls forbidden_work and prints a sum. */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((noinline, noipa)) unsigned long forbidden_work(unsigned long x, const char *text) {
    return x * 3 + text[0];
}

static int forbid(const char *what) {
    if (!strcmp(what, "tsc")) return prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
    /* A processor that cannot forbid cpuid does without. */
    if (!strcmp(what, "cpuid")) return syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0), 0;
    if (!strcmp(what, "strict")) return prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    if (strcmp(what, "filter")) return 1;
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int count, char **words) {
    unsigned long sum = 0;
    char text[64];
    if (count < 2 || forbid(words[1])) return 2;
    for (int i = 0; i < 300; i++) {
        sum = sum * 31 + forbidden_work(i, "abc");
        for (volatile int wait = 0; wait < 1000; wait++) {}
    }
    int length = snprintf(text, sizeof text, "sum %lx\n", sum);
    if (write(1, text, length) != length) return 3;
    syscall(SYS_exit, 0);
}
