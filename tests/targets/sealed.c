/* build: -O1
 *
 * Threads that are made without the libc, and forbid themselves almost everything when they are already probed.
 *   sealed strict THREADS CALLS    only read, write, exit and sigreturn are left (seccomp's strict mode)
 *   sealed filter THREADS CALLS    the same by a filter that kills the process; it also asks for an end by exit_group
 *   sealed late THREADS CALLS      as filter, but the threads are of the libc
 * Prints "pid N" and waits for a line. Then each thread calls sealed_work CALLS times with its own id, and a vfork child with its own calls it
 * once before. Prints "sum N" in the end. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK (256 << 10)
#define MOST 64

static const char *mode;
static long calls;
static volatile unsigned long sum;
static volatile int done;

__attribute__((noinline, noipa)) unsigned long sealed_work(unsigned long tid, unsigned long call) {
    return tid * 3 + call;
}

static int seal(void) {
    if (!strcmp(mode, "strict")) return prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void end(int status) {
    syscall(SYS_exit, status);
    __builtin_trap();
}

static int work(void *unused) {
    unsigned long tid = syscall(SYS_gettid), own = 0;
    (void)unused;
    if (seal()) end(1);
    for (long call = 0; call < calls; call++) own += sealed_work(tid, call) - tid * 3;
    __atomic_fetch_add(&sum, own, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&done, 1, __ATOMIC_SEQ_CST);
    end(0);
    return 0;
}

static void *of_the_libc(void *unused) {
    work(unused);
    return NULL;
}

int main(int count, char **words) {
    char line[64];
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    if (count < 4) return 2;
    mode = words[1];
    int threads = atoi(words[2]), status;
    calls = atol(words[3]);
    printf("pid %d\n", getpid());
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin) || threads > MOST) return 3;
    pid_t child = vfork();
    if (child == 0) {
        sealed_work(syscall(SYS_getpid), 0);
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || status) return 4;
    for (int thread = 0; thread < threads; thread++) {
        pthread_t made;
        if (!strcmp(mode, "late")) {
            if (pthread_create(&made, NULL, of_the_libc, NULL)) return 5;
            continue;
        }
        char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (stack == MAP_FAILED || clone(work, stack + STACK, flags, NULL) < 0) return 5;
    }
    /* No system call is left to wait by. */
    unsigned long tid = syscall(SYS_gettid);
    if (seal()) return 6;
    sealed_work(tid, 0);
    while (done < threads) __builtin_ia32_pause();
    int length = snprintf(line, sizeof line, "sum %lu\n", sum);
    if (write(1, line, length) != length) end(7);
    end(0);
}
