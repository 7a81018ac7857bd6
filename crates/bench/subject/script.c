// Threads that each make many calls of the function `called`, as fast as they can; the nanoseconds of one are written.
//
//     script THREADS TIMES DEEP ROUNDS
//
// DEEP is 1 for calls below eight more frames, else 0. All is done ROUNDS times, with a second in between, and the last
// round is timed: the memory that a tracer writes to has been written to before, and what it holds has been read.
//
// Before it begins, it writes "ready PID" and waits for a line. Built with frame pointers.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long times, rounds;
static pthread_barrier_t together;

// The function that is probed: a small number, and a string of 16 bytes.
__attribute__((noinline)) long called(long number, const char *text)
{
    __asm__ volatile("nop" : "+r"(number) : "r"(text));
    return number;
}

// Calls it below eight more frames.
__attribute__((noinline)) static long deep(long level, long number)
{
    long result = level ? deep(level - 1, number) : called(number, "sixteen letters!");
    __asm__ volatile("" : "+r"(result));
    return result;
}

static void *body(void *argument)
{
    for (long round = 0; round < rounds; round++) {
        pthread_barrier_wait(&together);
        if (argument)
            for (long number = 0; number < times; number++)
                deep(8, number & 63);
        else
            for (long number = 0; number < times; number++)
                called(number & 63, "sixteen letters!");
        pthread_barrier_wait(&together);
    }
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
    if (count != 5)
        return 2;
    long threads = atol(words[1]), is_deep = atol(words[3]);
    times = atol(words[2]);
    rounds = atol(words[4]);
    pthread_t all[64];
    if (threads < 1 || threads > 64 || times < 1 || rounds < 1)
        return 2;
    printf("ready %d\n", getpid());
    fflush(stdout);
    if (getchar() == EOF)
        return 1;
    pthread_barrier_init(&together, NULL, threads + 1);
    for (long number = 0; number < threads; number++)
        if (pthread_create(&all[number], NULL, body, (void *)is_deep))
            return 1;
    double begin = 0, end = 0;
    for (long round = 0; round < rounds; round++) {
        if (round)
            sleep(1);
        begin = now();
        pthread_barrier_wait(&together);
        pthread_barrier_wait(&together);
        end = now();
    }
    for (long number = 0; number < threads; number++)
        pthread_join(all[number], NULL);
    printf("%f\n", (end - begin) / times);
    return 0;
}
