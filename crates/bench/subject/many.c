/* Many functions, called by many threads all the time: what is armed by `bin/arm`.
 *
 * The functions are in a library of their own (its source is written by the bench): `functions` holds `count` of them, of which number N
 * returns its argument and N more. Each result is checked.
 *
 * usage: many THREADS; of more than two, each sleeps for ten milliseconds after a thousand calls, so that others get a processor; a line
 * "ready" says that all threads run. For each byte of the standard input a line says "pause P": P is the longest time that a thread has needed
 * for a thousand calls since the last such line, in microseconds: it did not run meanwhile. When the input ends, they stop, and a line says
 * "calls N wrong M pause P". */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

extern uint64_t (*const functions[])(uint64_t);
extern const uint64_t count;

static atomic_bool over;
static int sleeps;
static atomic_ulong calls, wrong, running, pause_;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static void *work(void *argument)
{
    uint64_t at = (uintptr_t)argument, called = 0, bad = 0;
    atomic_fetch_add(&running, 1);
    uint64_t before = now();
    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        for (int round = 0; round < 1000; round++) {
            at = (at + 1) % count;
            bad += functions[at](called) != called + at;
            called++;
        }
        uint64_t after = now();
        unsigned long known = atomic_load(&pause_);
        while (known < after - before && !atomic_compare_exchange_weak(&pause_, &known, after - before))
            ;
        if (sleeps)
            usleep(10000);
        before = sleeps ? now() : after;
    }
    atomic_fetch_add(&calls, called);
    atomic_fetch_add(&wrong, bad);
    return NULL;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    sleeps = threads > 2;
    pthread_t *thread = calloc(threads, sizeof *thread);
    for (int each = 0; each < threads; each++)
        if (!thread || pthread_create(&thread[each], NULL, work, (void *)(uintptr_t)(each * (count / threads))))
            return 2;
    while (atomic_load(&running) < (unsigned long)threads)
        usleep(1000);
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {
        printf("pause %lu\n", atomic_exchange(&pause_, 0));
        fflush(stdout);
    }
    atomic_store(&over, 1);
    for (int each = 0; each < threads; each++)
        pthread_join(thread[each], NULL);
    printf("calls %lu wrong %lu pause %lu\n", atomic_load(&calls), atomic_load(&wrong), atomic_load(&pause_));
    return 0;
}
