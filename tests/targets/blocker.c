/* build: -O2 -pthread
 *
 * A process that blocks SIGTRAP of its own accord: alone, or with all signals. It waits for a line, starts a thread and two processes
 * with each mask, one of these by the bare system call, and looks at what they block. Prints "pid N" first, and "right" or what is wrong. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline, noclone)) void mark(void) {
    __asm__ volatile("" ::: "memory");
}

/* Whether the caller blocks SIGTRAP. */
static int blocks(void) {
    unsigned long mask = 0;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, NULL, &mask, 8);
    return mask >> (SIGTRAP - 1) & 1;
}

static void *thread(void *nothing) {
    (void)nothing;
    return blocks() ? "" : NULL;
}

static int child(pid_t pid) {
    int status = 0;
    if (pid == 0)
        _exit(blocks() ? 17 : 18);
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 17;
}

static const char *look(const sigset_t *set) {
    pthread_t other;
    void *said = NULL;
    pthread_sigmask(SIG_SETMASK, set, NULL);
    if (pthread_create(&other, NULL, thread, NULL) != 0 || pthread_join(other, &said) != 0 || !said)
        return "a thread";
    if (!child(fork()))
        return "a child";
    if (!child((pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)))
        return "a child of the bare call";
    return blocks() ? NULL : "itself";
}

int main(void) {
    sigset_t one, all;
    char line[16];
    const char *wrong;
    sigemptyset(&one);
    sigaddset(&one, SIGTRAP);
    sigfillset(&all);
    printf("pid %d\n", (int)getpid());
    fflush(stdout);
    for (int number = 0; number < 100; number++)
        mark();
    if (!fgets(line, sizeof line, stdin))
        return 1;
    mark();
    wrong = look(&one);
    if (!wrong)
        wrong = look(&all);
    printf("%s\n", wrong ? wrong : "right");
    fflush(stdout);
    return wrong != NULL;
}
