/*
 * The loop of the paper, three instructions, of which two have symbols to be probed at.
 *
 *     paper COUNT...
 *
 * Prints, for each COUNT, the nanoseconds that one of COUNT iterations takes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

__attribute__((noinline, noclone)) void paper_loop(unsigned count)
{
    __asm__ volatile(".globl paper_dec, paper_nop\n"
                     "paper_dec:\n\tdec %0\n"
                     "paper_nop:\n\tnop\n\t"
                     "jnz paper_dec"
                     : "+a"(count)
                     :
                     : "cc");
}

int main(int count, char **words)
{
    for (int place = 1; place < count; place++) {
        unsigned iterations = strtoul(words[place], NULL, 10);
        double start = now();
        paper_loop(iterations);
        printf("%.3f\n", (now() - start) / iterations);
    }
    return 0;
}
