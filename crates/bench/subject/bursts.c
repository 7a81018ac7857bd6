// Bursts of calls with pauses between them, in one thread.
//
//     bursts KIND BURSTS CALLS PAUSE [PID...]
//
// KIND is `call` (of the function `called`) or `priority` (the system call sched_get_priority_max).
// It writes two numbers of nanoseconds of a call: by the clock, in the median burst, without the
// pauses; and the processor time of this process and of the processes PID, over the bursts, the
// pauses, and a last second. The time that these take without calls is not in it: it is measured
// before, and is the third number, in nanoseconds of a second.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 4096 };

// The function that is probed.
__attribute__((noinline)) long called(long first, long second)
{
    __asm__ volatile("nop" : "+r"(first));
    return first + second;
}

static double at(clockid_t clock)
{
    struct timespec time;
    if (clock_gettime(clock, &time))
        exit(3);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void pause_for(long milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    if (milliseconds)
        nanosleep(&time, NULL);
}

// The processor time of this process and of others.
static double used(int count, char **pids)
{
    double sum = at(CLOCK_PROCESS_CPUTIME_ID);
    for (int number = 0; number < count; number++) {
        clockid_t clock;
        if (clock_getcpuclockid(atoi(pids[number]), &clock))
            exit(3);
        sum += at(clock);
    }
    return sum;
}

// The processor time of a second without calls.
static double run_idle(int count, char **pids)
{
    double begin = at(CLOCK_MONOTONIC), before = used(count, pids);
    pause_for(2000);
    double after = used(count, pids);
    return (after - before) / (at(CLOCK_MONOTONIC) - begin) * 1e9;
}

static double burst(const char *kind, long calls)
{
    double begin = at(CLOCK_MONOTONIC);
    if (!strcmp(kind, "call"))
        for (long number = 0; number < calls; number++)
            called(number, 2);
    else
        for (long number = 0; number < calls; number++)
            syscall(SYS_sched_get_priority_max, 0);
    return at(CLOCK_MONOTONIC) - begin;
}

static int by_size(const void *one, const void *other)
{
    double first = *(const double *)one, second = *(const double *)other;
    return (first > second) - (first < second);
}

int main(int count, char **words)
{
    if (count < 5)
        return 2;
    long bursts = atol(words[2]), calls = atol(words[3]), pause = atol(words[4]);
    if (bursts < 1 || bursts > MOST || calls < 1)
        return 2;
    static double took[MOST];
    double idle = run_idle(count - 5, words + 5);
    double begin = at(CLOCK_MONOTONIC), before = used(count - 5, words + 5);
    for (long number = 0; number < bursts; number++) {
        took[number] = burst(words[1], calls);
        pause_for(pause);
    }
    pause_for(1000);
    double processor = used(count - 5, words + 5) - before;
    processor -= idle * (at(CLOCK_MONOTONIC) - begin) / 1e9;
    qsort(took, bursts, sizeof *took, by_size);
    double median = (took[(bursts - 1) / 2] + took[bursts / 2]) / 2;
    printf("%f %f %f\n", median / calls, processor / bursts / calls, idle);
    return 0;
}
