/* build: -O2 -fno-inline
 *
 * A thread that moves to another processor after each call. Arguments: how many calls. Prints "calls N processors M". */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

static volatile long last;

__attribute__((noipa)) void numbered(long number) { last = number; }

int main(int argc, char **argv) {
    long calls = argc > 1 ? atol(argv[1]) : 1000;
    cpu_set_t all, one;
    int processors[2], count = 0;
    if (sched_getaffinity(0, sizeof all, &all)) return 1;
    for (int cpu = 0; cpu < CPU_SETSIZE && count < 2; cpu++)
        if (CPU_ISSET(cpu, &all)) processors[count++] = cpu;
    for (long number = 0; number < calls; number++) {
        CPU_ZERO(&one);
        CPU_SET(processors[number % count], &one);
        if (sched_setaffinity(0, sizeof one, &one)) return 1;
        numbered(number);
    }
    printf("calls %ld processors %d\n", calls, count);
    return 0;
}
