// Threads that each make many calls, or writes, as fast as they can; the nanoseconds of one are written.
//
//     kernel KIND THREADS TIMES
//
// KIND is `call` (of the function `called`), `syscall` (getppid), `priority` (sched_get_priority_max)
// or `write` (to the variable `counter`).
// Before it begins, it writes "ready PID" and waits for a line.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long times;
static const char *kind;
static pthread_barrier_t together;
volatile long counter;

// The function that is probed.
__attribute__((noinline)) long called(long first, long second)
{
    __asm__ volatile("nop" : "+r"(first));
    return first + second;
}

static void *body(void *argument)
{
    pthread_barrier_wait(&together);
    if (!strcmp(kind, "call"))
        for (long number = 0; number < times; number++)
            called(number, (long)argument);
    else if (!strcmp(kind, "syscall"))
        for (long number = 0; number < times; number++)
            syscall(SYS_getppid);
    else if (!strcmp(kind, "priority"))
        for (long number = 0; number < times; number++)
            syscall(SYS_sched_get_priority_max, 0);
    else
        for (long number = 0; number < times; number++)
            counter = number;
    return NULL;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(int count, char **words)
{
    if (count != 4)
        return 2;
    kind = words[1];
    long threads = atol(words[2]);
    times = atol(words[3]);
    pthread_t all[64];
    if (threads < 1 || threads > 64 || times < 1)
        return 2;
    printf("ready %d\n", getpid());
    fflush(stdout);
    if (getchar() == EOF)
        return 1;
    pthread_barrier_init(&together, NULL, threads + 1);
    for (long number = 0; number < threads; number++)
        if (pthread_create(&all[number], NULL, body, (void *)number))
            return 1;
    double begin = now();
    pthread_barrier_wait(&together);
    for (long number = 0; number < threads; number++)
        pthread_join(all[number], NULL);
    printf("%f\n", (now() - begin) / times);
    return 0;
}
