/* build: -O2 -pthread
 *
 * Threads that sleep in system calls while a tracer comes and goes. One thread per call: read, recv, accept, poll,
 * ppoll, select, epoll_wait, nanosleep, clock_nanosleep, futex, sem_wait, semop, pause, sigtimedwait, waitpid,
 * msgrcv, flock. None may return before this program lets it, and none may fail with EINTR.
 *
 * Prints "pid N" and "ready" when all threads sleep. Standard input:
 *   call N   calls syscalls_work N times, prints "done N"
 *   go       lets every thread go on, prints one line per thread ("read ok", or "read early|failed ERRNO"), in the
 *            order above, then "end"; exits with 1 if any line is not ok */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile long sink;
__attribute__((noinline, noclone)) long syscalls_work(long a) { return sink += a; }

static volatile int let_go;
static int pipes[8][2], pair[2], listener, queue, semaphores, lock_held, futex_word;
static sem_t semaphore;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static socklen_t address_length;
static pid_t child;
static char lock_path[] = "/tmp/dprobes-syscalls-XXXXXX";

static long do_read(void) { char c; return read(pipes[0][0], &c, 1) == 1 ? 0 : -1; }
static long do_recv(void) { char c; return recv(pair[0], &c, 1, 0) == 1 ? 0 : -1; }
static long do_accept(void) { return accept(listener, NULL, NULL) >= 0 ? 0 : -1; }
static long do_poll(void) {
    struct pollfd p = {pipes[1][0], POLLIN, 0};
    return poll(&p, 1, -1) == 1 ? 0 : -1;
}
static long do_ppoll(void) {
    struct pollfd p = {pipes[2][0], POLLIN, 0};
    struct timespec limit = {600, 0};
    return ppoll(&p, 1, &limit, NULL) == 1 ? 0 : -1;
}
static long do_select(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pipes[3][0], &set);
    return select(pipes[3][0] + 1, &set, NULL, NULL, NULL) == 1 ? 0 : -1;
}
static long do_epoll(void) {
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[4][0], &event)) return -1;
    return epoll_wait(epoll, &event, 1, -1) == 1 ? 0 : -1;
}
/* The sleeps end by themselves: the test keeps them longer than its own work, and `go` waits for them. */
enum { SLEEP = 4 };
static long slept(clockid_t clock, int (*sleep)(const struct timespec *)) {
    struct timespec before, after, time = {SLEEP, 0};
    clock_gettime(clock, &before);
    if (sleep(&time)) return -1;
    clock_gettime(clock, &after);
    double took = (after.tv_sec - before.tv_sec) + (after.tv_nsec - before.tv_nsec) / 1e9;
    errno = ETIME;
    return took >= SLEEP && took < SLEEP + 2 ? 0 : -1;
}
static int relative(const struct timespec *time) { return nanosleep(time, NULL); }
static int absolute(const struct timespec *time) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += time->tv_sec;
    return errno = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}
static long do_nanosleep(void) { return slept(CLOCK_MONOTONIC, relative); }
static long do_clock_nanosleep(void) { return slept(CLOCK_MONOTONIC, absolute); }
static long do_futex(void) { return syscall(SYS_futex, &futex_word, FUTEX_WAIT, 0, NULL, NULL, 0); }
static long do_sem_wait(void) { return sem_wait(&semaphore); }
static long do_semop(void) {
    struct sembuf down = {0, -1, 0};
    return semop(semaphores, &down, 1);
}
/* pause ends with EINTR, by the signal that `go` sends; anything before that is early. */
static void on_usr1(int signal) { (void)signal; }
static long do_pause(void) { return pause() == -1 && errno == EINTR ? 0 : -1; }
static long do_sigtimedwait(void) {
    sigset_t set;
    struct timespec limit = {600, 0};
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    return sigtimedwait(&set, NULL, &limit) == SIGUSR2 ? 0 : -1;
}
static long do_waitpid(void) {
    int status;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : -1;
}
static long do_msgrcv(void) {
    struct { long type; char text[8]; } message;
    return msgrcv(queue, &message, sizeof message.text, 0, 0) >= 0 ? 0 : -1;
}
static long do_flock(void) {
    int file = open(lock_path, O_RDWR);
    return file < 0 ? -1 : flock(file, LOCK_EX);
}

struct call {
    const char *name;
    long (*run)(void);
    int until_woken; /* may only return after let_go */
    pthread_t thread;
    volatile pid_t tid;
    int early, error;
    long result;
};
static struct call calls[] = {
    {"read", do_read, 1},           {"recv", do_recv, 1},           {"accept", do_accept, 1},
    {"poll", do_poll, 1},           {"ppoll", do_ppoll, 1},         {"select", do_select, 1},
    {"epoll_wait", do_epoll, 1},    {"nanosleep", do_nanosleep, 0}, {"clock_nanosleep", do_clock_nanosleep, 0},
    {"futex", do_futex, 1},         {"sem_wait", do_sem_wait, 1},   {"semop", do_semop, 1},
    {"pause", do_pause, 1},         {"sigtimedwait", do_sigtimedwait, 1}, {"waitpid", do_waitpid, 1},
    {"msgrcv", do_msgrcv, 1},       {"flock", do_flock, 1},
};
enum { CALLS = sizeof calls / sizeof calls[0], PAUSE = 12, SIGTIMEDWAIT = 13 };

static void *thread(void *argument) {
    struct call *call = argument;
    sigset_t all;
    sigfillset(&all);
    if (call == &calls[PAUSE]) sigdelset(&all, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    call->tid = gettid();
    errno = 0;
    call->result = call->run();
    call->error = errno;
    call->early = call->until_woken && !let_go;
    return NULL;
}

/* Whether a thread sleeps inside a system call: its state is S, and it stays so. */
static int sleeps(pid_t tid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    char *state = strrchr(text, ')');
    return state && state[2] == 'S';
}

int main(void) {
    char line[64];
    int child_pipe[2], failures = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGUSR1, on_usr1);
    signal(SIGUSR2, on_usr1);
    sigset_t usr2;
    sigemptyset(&usr2);
    sigaddset(&usr2, SIGUSR2);
    sigaddset(&usr2, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr2, NULL);
    for (int i = 0; i < 8; i++)
        if (pipe(pipes[i])) return 2;
    if (pipe(child_pipe) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 2;
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "dprobes-syscalls-%d", getpid());
    address_length = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(address.sun_path + 1);
    if (bind(listener, (struct sockaddr *)&address, address_length) || listen(listener, 4)) return 2;
    queue = msgget(IPC_PRIVATE, 0600 | IPC_CREAT);
    semaphores = semget(IPC_PRIVATE, 1, 0600 | IPC_CREAT);
    if (queue < 0 || semaphores < 0 || sem_init(&semaphore, 0, 0)) return 2;
    lock_held = mkstemp(lock_path);
    if (lock_held < 0 || flock(lock_held, LOCK_EX)) return 2;
    child = fork();
    if (child == 0) {
        char c;
        close(child_pipe[1]);
        for (int i = 0; i < 8; i++) close(pipes[i][1]);
        close(lock_held);
        while (read(child_pipe[0], &c, 1) < 0 && errno == EINTR) {}
        _exit(0);
    }
    for (int i = 0; i < CALLS; i++)
        if (pthread_create(&calls[i].thread, NULL, thread, &calls[i])) return 2;
    for (int i = 0; i < CALLS; i++)
        for (int quiet = 0; quiet < 3; usleep(2000)) quiet = calls[i].tid && sleeps(calls[i].tid) ? quiet + 1 : 0;
    printf("pid %d\nready\n", getpid());
    while (fgets(line, sizeof line, stdin) && strncmp(line, "go", 2)) {
        int times;
        if (sscanf(line, "call %d", &times) != 1) continue;
        for (int i = 0; i < times; i++) syscalls_work(i);
        printf("done %d\n", times);
    }
    let_go = 1;
    for (int i = 0; i < 8; i++)
        if (write(pipes[i][1], "x", 1) != 1) failures++;
    if (write(pair[1], "x", 1) != 1 || write(child_pipe[1], "x", 1) != 1) failures++;
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(client, (struct sockaddr *)&address, address_length)) failures++;
    futex_word = 1;
    syscall(SYS_futex, &futex_word, FUTEX_WAKE, 1, NULL, NULL, 0);
    sem_post(&semaphore);
    struct sembuf up = {0, 1, 0};
    struct { long type; char text[8]; } message = {1, "x"};
    if (semop(semaphores, &up, 1) || msgsnd(queue, &message, 1, 0)) failures++;
    flock(lock_held, LOCK_UN);
    if (!calls[PAUSE].early) pthread_kill(calls[PAUSE].thread, SIGUSR1);
    if (!calls[SIGTIMEDWAIT].early) pthread_kill(calls[SIGTIMEDWAIT].thread, SIGUSR2);
    for (int i = 0; i < CALLS; i++) {
        pthread_join(calls[i].thread, NULL);
        int ok = calls[i].result == 0 && !calls[i].early;
        if (ok) printf("%s ok\n", calls[i].name);
        else printf("%s %s %s\n", calls[i].name, calls[i].early ? "early" : "failed", strerror(calls[i].error));
        failures += !ok;
    }
    msgctl(queue, IPC_RMID, NULL);
    semctl(semaphores, 0, IPC_RMID);
    unlink(lock_path);
    printf("end\n");
    return failures != 0;
}
