/* build: -O2 -g -pthread
 *
 * Threads that do all sorts of things while one of them asks for memory:   core ASKS [busy|vfork]
 *   asker    calls core_asks ASKS times, which calls malloc(0x20000000)
 *   waiter   waits for a condition
 *   reader   reads from a pipe
 *   sleeper  sleeps, again and again
 * With `vfork` also one that waits for a vfork child, where nothing can stop it. With `busy` also two workers that
 * call core_work all the time, interrupted by a timer, and one that starts threads which end at once.
 * None of them is to see that anything happened. Prints "asked SUM" with the sum of what core_asks gave back,
 * "work CALLS" and "surprises N"; ends with status 7. */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static atomic_long sink, calls, surprises, signals;
static atomic_int stop, ready;
static int ends[2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static void *volatile memory;

__attribute__((noinline, noclone)) long core_work(long a) { return sink += a; }

__attribute__((noinline, noclone)) long core_asks(long number) {
    memory = malloc(0x20000000);
    if (!memory) surprises++;
    else *((char *)memory + 0x10000000) = 1;
    free(memory);
    return number + !memory;
}

static void *waiter(void *argument) {
    pthread_mutex_lock(&mutex);
    ready++;
    while (!stop)
        if (pthread_cond_wait(&condition, &mutex)) surprises++;
    pthread_mutex_unlock(&mutex);
    return argument;
}

static void *reader(void *argument) {
    char byte;
    ready++;
    if (read(ends[0], &byte, 1) != 1) surprises++;
    return argument;
}

static void *sleeper(void *argument) {
    struct timespec pause = {0, 20000000};
    ready++;
    while (!stop)
        if (nanosleep(&pause, NULL)) surprises++;
    return argument;
}

static void *worker(void *argument) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    ready++;
    while (!stop) core_work(1), calls++;
    return argument;
}

static void *nothing(void *argument) { return argument; }

static void *churn(void *argument) {
    pthread_t thread;
    ready++;
    while (!stop)
        if (pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL)) surprises++;
    return argument;
}

static void *forker(void *argument) {
    ready++;
    pid_t child = vfork();
    if (child == 0) {
        usleep(1000000);
        _exit(0);
    }
    if (child < 0 || waitpid(child, NULL, 0) != child) surprises++;
    return argument;
}

static void ring(int number) { signals += number == SIGALRM; }

/* Whether another process executes this program: a copy that is being dumped. */
static int is_copied(void) {
    char own[256] = "", other[256], path[300];
    DIR *all = opendir("/proc");
    struct dirent *entry;
    int found = 0;
    ssize_t length = readlink("/proc/self/exe", own, sizeof own);
    while (all && (entry = readdir(all))) {
        if (atoi(entry->d_name) <= 0 || atoi(entry->d_name) == getpid()) continue;
        snprintf(path, sizeof path, "/proc/%s/exe", entry->d_name);
        found |= readlink(path, other, sizeof other) == length && !memcmp(own, other, length);
    }
    if (all) closedir(all);
    return found;
}

static void *asker(void *argument) {
    long sum = 0;
    for (long i = 1; i <= (long)argument; i++) {
        sum += core_asks(i);
        /* One dump is written at a time. */
        for (int tries = 0; i < (long)argument && tries < 3000 && is_copied(); tries++) usleep(3000);
        usleep(20000);
    }
    return (void *)sum;
}

int main(int argc, char **argv) {
    const char *mode = argc > 2 ? argv[2] : "";
    int busy = !strcmp(mode, "busy"), count = busy ? 6 : strcmp(mode, "vfork") ? 3 : 4;
    void *(*const all[])(void *) = {waiter, reader, sleeper, busy ? worker : forker, worker, churn};
    pthread_t threads[6], asking;
    struct sigaction action = {.sa_handler = ring, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    sigset_t set;
    void *sum;
    if (argc < 2 || pipe(ends)) return 2;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    sigaction(SIGALRM, &action, NULL);
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, all[i], NULL)) return 2;
    while (ready < count) usleep(1000);
    usleep(10000);
    if (busy) setitimer(ITIMER_REAL, &often, NULL);
    if (pthread_create(&asking, NULL, asker, (void *)atol(argv[1]))) return 2;
    if (pthread_join(asking, &sum)) surprises++;
    setitimer(ITIMER_REAL, &never, NULL);
    pthread_mutex_lock(&mutex);
    stop = 1;
    pthread_cond_broadcast(&condition);
    pthread_mutex_unlock(&mutex);
    if (write(ends[1], "x", 1) != 1) surprises++;
    for (int i = 0; i < count; i++)
        if (pthread_join(threads[i], NULL)) surprises++;
    if (busy && !signals) surprises++;
    printf("asked %ld\nwork %ld\nsurprises %ld\n", (long)sum, (long)calls, (long)surprises);
    return 7;
}
