/* build: -O1 -pthread
 *
 * Processes at the edge, one for each first word:
 *   brk             finds its heap's room although addresses are not randomized
 *   sigsys          a sandbox's SIGSYS shows the address after the system call's
 *   children N      N children, all at once, each calling the probed function twice
 *   forks           forks and forks, until a line comes: every child must end well
 *   threads         threads come and go, until a line comes
 *   leaderless      the first thread ends, another goes on until a line comes
 *   pending         a blocked SIGTRAP of its own waits, until a line comes
 *   storm FILE      says its process id, and forks until it is killed; each child writes to FILE when it begins and when it ends
 *   executed N      a thread that is not the first executes the program anew, N times */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

extern const char hazards_site[];

__attribute__((noinline, noclone)) int hazards_work(int i) {
    __asm__ volatile("");
    return i * 3;
}

static void say(const char *line) {
    puts(line);
    fflush(stdout);
}

/* Whether a line, or the end of the input, has come. */
static int told(int milliseconds) {
    struct pollfd input = {0, POLLIN, 0};
    char line[64];
    return poll(&input, 1, milliseconds) > 0 && (fgets(line, sizeof line, stdin) || feof(stdin));
}

static int heap(char **words) {
    int now = personality(0xffffffff);
    if (!(now & ADDR_NO_RANDOMIZE)) {
        personality(now | ADDR_NO_RANDOMIZE);
        execv("/proc/self/exe", words);
        return 9;
    }
    hazards_work(1);
    say(sbrk(256 << 20) == (void *)-1 ? "no room" : "room");
    return 0;
}

static void sandboxed(int signal, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)signal;
    const char *next = hazards_site + 2;
    int right = info->si_call_addr == next && registers[REG_RIP] == (greg_t)next && registers[REG_RCX] == (greg_t)next;
    registers[REG_RAX] = right ? 42 : 1;
}

static int sigsys(void) {
    struct sigaction action = {.sa_sigaction = sandboxed, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, NULL);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 9;
    long result = SYS_getppid;
    __asm__ volatile(".globl hazards_site\nhazards_site: syscall" : "+a"(result) : : "rcx", "r11", "memory");
    printf("result %ld\n", result);
    return 0;
}

static int children(int count) {
    int gate[2], well = 0, status;
    if (pipe(gate)) return 9;
    for (int i = 0; i < count; i++) {
        int child = fork();
        if (child < 0) return 8;
        if (child == 0) {
            char byte;
            close(gate[1]);
            (void)!read(gate[0], &byte, 1);
            hazards_work(i);
            _exit(hazards_work(2));
        }
    }
    close(gate[1]);
    while (wait(&status) > 0) well += WIFEXITED(status) && WEXITSTATUS(status) == 6;
    printf("well %d\n", well);
    return 0;
}

static volatile int stop;

static void *forks(void *count) {
    int bad = 0, status;
    while (!stop) {
        int child = fork();
        if (child == 0) _exit(hazards_work(1));
        if (child < 0) continue;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 3) bad++;
        usleep(200);
    }
    *(int *)count = bad;
    return NULL;
}

static void *leaf(void *nothing) {
    hazards_work(1);
    return nothing;
}

static void *threads(void *count) {
    while (!stop) {
        pthread_t each[4];
        for (int i = 0; i < 4; i++)
            if (pthread_create(&each[i], NULL, leaf, NULL)) abort();
        for (int i = 0; i < 4; i++) pthread_join(each[i], NULL);
    }
    return count;
}

static int beside(void *(*body)(void *)) {
    pthread_t other;
    int bad = 0;
    pthread_create(&other, NULL, body, &bad);
    say("ready");
    while (!told(1)) hazards_work(2);
    stop = 1;
    pthread_join(other, NULL);
    printf("bad %d\n", bad);
    return 0;
}

static void *alone(void *nothing) {
    usleep(20000);
    say("ready");
    while (!told(1)) hazards_work(1);
    say("done");
    exit(7);
    return nothing;
}

static int pending(void) {
    sigset_t set;
    int signal;
    sigemptyset(&set);
    sigaddset(&set, SIGTRAP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGTRAP);
    say("ready");
    while (!told(1)) {}
    sigwait(&set, &signal);
    printf("got %d\n", signal == SIGTRAP);
    return 0;
}

static int storm(const char *path) {
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_TRUNC, 0600);
    signal(SIGCHLD, SIG_IGN);
    printf("%d\n", getpid());
    fflush(stdout);
    /* Never for long, whatever becomes of who is to kill it. */
    alarm(20);
    for (int i = 1;; i++) {
        if (fork() == 0) {
            if (write(file, "b", 1) != 1) _exit(9);
            usleep(2000);
            hazards_work(1);
            _exit(write(file, "e", 1) != 1);
        }
        if (i % 50 == 0) usleep(100);
    }
}

static const char *self, *left;

static void *idle(void *nothing) {
    for (;;) usleep(hazards_work(100));
    return nothing;
}

static void *executes(void *nothing) {
    char count[16];
    snprintf(count, sizeof count, "%d", atoi(left) - 1);
    usleep(1000);
    execl(self, self, "executed", count, NULL);
    abort();
    return nothing;
}

static int executed(void) {
    pthread_t thread;
    if (atoi(left) == 0) return 4;
    for (int i = 0; i < 3; i++) pthread_create(&thread, NULL, idle, NULL);
    pthread_create(&thread, NULL, executes, NULL);
    if (atoi(left) % 2) pthread_exit(NULL);
    for (;;) pause();
}

int main(int count, char **words) {
    pthread_t thread;
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "brk")) return heap(words);
    if (!strcmp(what, "sigsys")) return sigsys();
    if (!strcmp(what, "children") && count > 2) return children(atoi(words[2]));
    if (!strcmp(what, "forks")) return beside(forks);
    if (!strcmp(what, "threads")) return beside(threads);
    if (!strcmp(what, "pending")) return pending();
    if (!strcmp(what, "storm") && count > 2) return storm(words[2]);
    if (!strcmp(what, "executed") && count > 2) {
        self = words[0];
        left = words[2];
        return executed();
    }
    if (!strcmp(what, "leaderless")) {
        pthread_create(&thread, NULL, alone, NULL);
        pthread_exit(NULL);
    }
    return 2;
}
