/* build: -O2 -pthread -ldl
 *
 * A process whose tracer is killed. It works in the way that its argument names, checks what it computes, and blocks SIGUSR2 in all its
 * threads, until SIGTERM: then it prints "right" and exits with 0, or says what is wrong and exits with 1.
 *   loop      computes
 *   threads   starts threads that compute and end
 *   forks     starts processes that compute and end
 *   modules   loads and unloads a library
 *   signals   computes, is interrupted by a timer, sleeps and waits in a pipe
 *   storm     computes, and is interrupted each 200 microseconds; the signal's handler computes while fs is elsewhere
 * Prints "pid N" first. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t over;
static volatile sig_atomic_t alarms;

static void end(int signal) {
    (void)signal;
    over = 1;
}

static void alarmed(int signal) {
    (void)signal;
    alarms++;
}

__attribute__((noinline, noclone)) unsigned long mix(unsigned long sum, unsigned long value) {
    return (sum ^ value) * 0x9e3779b97f4a7c15 + (sum >> 7);
}

__attribute__((noinline, noclone)) double weigh(double sum, double value) {
    return sum * 0.5 + value;
}

__attribute__((noinline, noclone)) unsigned long walk(const char *text, unsigned long sum) {
    for (; *text; text++)
        sum = mix(sum, (unsigned char)*text);
    return sum;
}

__attribute__((noinline, noclone)) unsigned long work(void) {
    unsigned long sum = 1;
    double weight = 1;
    for (int round = 0; round < 20; round++) {
        sum = walk("what is computed", sum);
        weight = weigh(weight, (double)(sum & 1023));
        char *text = malloc(64);
        snprintf(text, 64, "%lu", sum);
        sum = walk(text, sum);
        free(text);
    }
    return sum ^ (unsigned long)(weight * 1024);
}

/* Nothing here is found through fs, which is memory of zeros meanwhile. */
static void interrupted(int signal) {
    static uint64_t elsewhere[8192];
    static unsigned long sum;
    uint64_t before;
    (void)signal;
    __asm__ volatile("rdfsbase %0" : "=r"(before));
    __asm__ volatile("wrfsbase %0" ::"r"(elsewhere + 4096) : "memory");
    sum = mix(sum, 1);
    __asm__ volatile("wrfsbase %0" ::"r"(before) : "memory");
    alarms++;
}

static unsigned long expected;

static void wrong(const char *what) {
    printf("wrong: %s\n", what);
    fflush(stdout);
    _exit(1);
}

static void check(void) {
    sigset_t set;
    if (work() != expected)
        wrong("the sum");
    if (pthread_sigmask(SIG_SETMASK, NULL, &set) != 0 || !sigismember(&set, SIGUSR2) || sigismember(&set, SIGTERM)
        || sigismember(&set, SIGTRAP))
        wrong("the signal mask");
}

static void *thread(void *nothing) {
    check();
    return nothing;
}

static void in_threads(void) {
    pthread_t threads[3];
    for (int number = 0; number < 3; number++)
        if (pthread_create(&threads[number], NULL, thread, NULL) != 0)
            wrong("a thread is not born");
    check();
    for (int number = 0; number < 3; number++)
        pthread_join(threads[number], NULL);
}

static void in_forks(void) {
    pid_t child = fork();
    int status = 0;
    if (child == 0) {
        check();
        _exit(17);
    }
    check();
    if (child < 0 || waitpid(child, &status, 0) != child)
        wrong("a child is not there");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 17) {
        printf("status %x\n", status);
        wrong("a child's end");
    }
}

static void in_modules(void) {
    void *library = dlopen("libresolv.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        wrong(dlerror());
    check();
    dlclose(library);
}

static void in_signals(void) {
    static int ends[2] = { -1, -1 };
    struct timespec moment = { 0, 2000000 };
    char byte = 1;
    if (ends[0] < 0 && pipe(ends) != 0)
        wrong("no pipe");
    if (write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1)
        wrong("the pipe");
    check();
    if (nanosleep(&moment, NULL) != 0 && errno != EINTR)
        wrong("the sleep");
}

/* The timer is set anew only when there was time to compute: on a busy machine the signals would be all that runs. */
static void in_storm(void) {
    static sig_atomic_t seen = -1;
    struct itimerval once = { { 0, 0 }, { 0, 200 } };
    if (alarms != seen) {
        seen = alarms;
        setitimer(ITIMER_REAL, &once, NULL);
    }
    check();
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "loop";
    struct sigaction ending = { .sa_handler = end, .sa_flags = SA_RESTART }, alarming = { .sa_handler = alarmed, .sa_flags = SA_RESTART };
    struct itimerval often = { { 0, 3000 }, { 0, 3000 } };
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    sigprocmask(SIG_SETMASK, &blocked, NULL);
    sigaction(SIGTERM, &ending, NULL);
    if (strcmp(way, "storm") == 0)
        alarming.sa_handler = interrupted;
    sigaction(SIGALRM, &alarming, NULL);
    expected = work();
    if (strcmp(way, "signals") == 0)
        setitimer(ITIMER_REAL, &often, NULL);
    printf("pid %d\n", (int)getpid());
    fflush(stdout);
    while (!over) {
        if (strcmp(way, "threads") == 0)
            in_threads();
        else if (strcmp(way, "forks") == 0)
            in_forks();
        else if (strcmp(way, "modules") == 0)
            in_modules();
        else if (strcmp(way, "signals") == 0)
            in_signals();
        else if (strcmp(way, "storm") == 0)
            in_storm();
        else
            check();
    }
    printf("right\n");
    return 0;
}
