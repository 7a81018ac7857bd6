/* build: -O1 -fno-stack-protector -pthread
 *
 * The thread pointer, and the restartable sequences that are found through it, are not what a libc makes of them.
 *   pointer elsewhere   a function runs while fs is in memory that looks like anything
 *   pointer nowhere     ... while there is nothing where fs points
 *   pointer taken       the program takes the libc's registration back and uses that memory for something else
 *   pointer own         the program registers memory of its own, later takes it back and uses it (start it with
 *                       GLIBC_TUNABLES=glibc.pthread.rseq=0, or there is nothing to be seen)
 *   pointer storm N     a timer interrupts calls of the function N times; the signal's handler calls it while fs is in other memory, which
 *                       is all zeros and is watched by another thread: as a `struct rseq` it is that of processor 0, in no section. Says on
 *                       standard error how many calls there were; N = 0: until SIGTERM, and says on standard output that it begins.
 *                       The timer is set anew only after a call, or a handler that takes longer than its period would be all that runs;
 *                       calls begin 1 to 128 microseconds before it is due, or there would be millions
 * Prints sums and what was changed that must not be: nothing. */
#define _GNU_SOURCE
#include <linux/rseq.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { SIGNATURE = 0x53053053, PROCESSORS = 4, CALLS = 500 };

__attribute__((noinline, noipa)) long pointer_leaf(long x) {
    long sum = x;
    for (int i = 0; i < 10; i++) sum = sum * 31 + i;
    return sum;
}

/* pointer_leaf, called while fs is at an address. */
__attribute__((noinline, noipa)) static long with(uint64_t base, long x) {
    uint64_t before;
    __asm__ volatile("rdfsbase %0" : "=r"(before));
    __asm__ volatile("wrfsbase %0" ::"r"(base) : "memory");
    long result = pointer_leaf(x);
    __asm__ volatile("wrfsbase %0" ::"r"(before) : "memory");
    return result;
}

static uint64_t area[8192] __attribute__((aligned(4096)));
static struct rseq own[2] __attribute__((aligned(32)));
static long sum, changed;

static void elsewhere(void) {
    static const uint64_t patterns[] = {0, ~0ul, 1, 0x4141414141414141, (uint64_t)area};
    for (int pattern = 0; pattern < 5; pattern++)
        for (int every = 1; every < 4; every++) {
            for (int i = 0; i < 8192; i++) area[i] = i % every ? 0 : patterns[pattern];
            for (int i = 0; i < 100; i++) sum += with((uint64_t)(area + 4096), i);
            for (int i = 0; i < 8192; i++) changed += area[i] != (i % every ? 0 : patterns[pattern]);
        }
}

static void nowhere(void) {
    for (int i = 0; i < 100; i++) sum += with(0x10000, i) + with(0, i) + with(0x7ffffffff000, i);
}

/* The memory of a registration that is no more is used in any way; nothing may write to it. */
static void use(struct rseq *area) {
    uint32_t *words = (uint32_t *)area;
    for (uint32_t number = 0; number < PROCESSORS; number++) {
        words[0] = words[1] = number;
        for (int clear = 0; clear < 2; clear++) {
            if (clear) memset(words + 2, 0, 24);
            uint64_t section = clear ? 0 : 0x4141414141414141;
            memcpy(words + 2, &section, 8);
            for (int i = 0; i < CALLS; i++) {
                sum += pointer_leaf(i);
                changed += memcmp(words + 2, &section, 8) != 0;
            }
        }
    }
}

static volatile sig_atomic_t interruptions, over, ended;
static long calls, expected[8];

/* Each third call is made while fs is in other memory; what it returns is known. */
static void storm_call(void) {
    long number = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED), x = number % 8;
    if ((number % 3 ? pointer_leaf(x) : with((uint64_t)(area + 4096), x)) != expected[x])
        __atomic_add_fetch(&changed, 1, __ATOMIC_RELAXED);
}

/* Nothing here is found through fs, which may be anything. */
static void on_alarm(int signal) {
    interruptions++;
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    if (with((uint64_t)(area + 4096), 3) != expected[3]) __atomic_add_fetch(&changed, 1, __ATOMIC_RELAXED);
}

/* Sees also what is written there for a moment. */
static void *watch(void *nothing) {
    while (!ended)
        for (int i = 0; i < 8192; i++)
            if (__atomic_load_n(area + i, __ATOMIC_RELAXED)) __atomic_add_fetch(&changed, 1, __ATOMIC_RELAXED);
    return nothing;
}

static void on_end(int signal) { over = 1; }

static long microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void storm(long most) {
    struct itimerval once = {{0, 0}, {0, 1}}, never = {{0, 0}, {0, 0}};
    long seen = -1;
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART}, end = {.sa_handler = on_end};
    cpu_set_t first;
    pthread_t watcher;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    sigfillset(&action.sa_mask);
    /* It does not take the signals. */
    sigset_t before;
    pthread_sigmask(SIG_BLOCK, &action.sa_mask, &before);
    pthread_create(&watcher, 0, watch, 0);
    pthread_sigmask(SIG_SETMASK, &before, 0);
    sched_setaffinity(0, sizeof first, &first);
    sigaction(SIGALRM, &action, 0);
    sigaction(SIGTERM, &end, 0);
    for (int i = 0; i < 8; i++) {
        expected[i] = i;
        for (int k = 0; k < 10; k++) expected[i] = expected[i] * 31 + k;
    }
    if (!most) puts("begins"), fflush(stdout);
    while (most ? interruptions < most : !over) {
        if (interruptions != seen) {
            seen = interruptions;
            once.it_value.tv_usec = 150 + seen * 37 % 50;
            long due = microseconds() + once.it_value.tv_usec;
            setitimer(ITIMER_REAL, &once, 0);
            while (microseconds() < due - (1 << seen % 8)) {}
        }
        storm_call();
    }
    setitimer(ITIMER_REAL, &never, 0);
    ended = 1;
    pthread_join(watcher, 0);
    fprintf(stderr, "calls %ld\n", calls);
}

static long call(struct rseq *area, int flags) {
    return syscall(SYS_rseq, area, sizeof *area < 32 ? 32 : sizeof *area, flags, SIGNATURE);
}

int main(int count, char **words) {
    const char *mode = count > 1 ? words[1] : "";
    if (!strcmp(mode, "elsewhere")) elsewhere();
    else if (!strcmp(mode, "nowhere")) nowhere();
    else if (!strcmp(mode, "taken")) {
        extern const ptrdiff_t __rseq_offset __attribute__((weak));
        if (&__rseq_offset) {
            char *pointer;
            __asm__("mov %%fs:0, %0" : "=r"(pointer));
            struct rseq *libcs = (struct rseq *)(pointer + __rseq_offset);
            if (call(libcs, 1) == 0) use(libcs);
        }
    } else if (!strcmp(mode, "own")) {
        own->cpu_id = -1;
        if (call(own, 0) == 0) {
            /* Long enough for a tracer to see it. */
            for (int i = 0; i < 20; i++, usleep(20000)) sum += pointer_leaf(i);
            if (call(own, 1) == 0) use(own);
        }
    } else if (!strcmp(mode, "storm")) storm(count > 2 ? atol(words[2]) : 0);
    else return 2;
    printf("sum %ld changed %ld\n", sum, changed);
    return 0;
}
