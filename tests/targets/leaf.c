/* build: -O2
 *
 * A small program of which variants are built: static, not position-independent, stripped. `leaf N` calls leaf_work N
 * times and prints "calls N sum X"; its exit status is 7. */
#include <stdio.h>
#include <stdlib.h>

static volatile long bias = 5;

__attribute__((noinline, noclone)) long leaf_work(long a) { return a * 3 + bias; }

int main(int argc, char **argv) {
    long calls = argc > 1 ? atol(argv[1]) : 10, sum = 0;
    for (long i = 0; i < calls; i++) sum += leaf_work(i);
    printf("calls %ld sum %ld\n", calls, sum);
    return 7;
}
