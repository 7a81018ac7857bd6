/* build: -O2 -Wl,--build-id=sha1
 *
 * Functions of two kinds and two layers, each called a known number of times. `store N` opens once, reads N times,
 * writes 2 N times, closes once; prints "store N sum X" and exits with 3. With -DCHANGED it is another build of the same
 * program: what it computes differs, and so do its code and its build-id. */
#include <stdio.h>
#include <stdlib.h>

#ifdef CHANGED
enum { STEP = 70000, OPENED = 9 };
#else
enum { STEP = 7, OPENED = 2 };
#endif

static volatile long state;

__attribute__((noinline, noclone)) void store_open(void) { state = OPENED; }
__attribute__((noinline, noclone)) long store_read(long at) { return state * at + STEP; }
__attribute__((noinline, noclone)) void store_write(long value) { state += value; }
__attribute__((noinline, noclone)) long store_close(void) { return state; }

int main(int argc, char **argv) {
    long n = argc > 1 ? atol(argv[1]) : 10, sum = 0;
    store_open();
    for (long i = 0; i < n; i++) {
        sum += store_read(i);
        store_write(i & 3);
        store_write(1);
    }
    printf("store %ld sum %ld\n", n, sum + store_close());
    return 3;
}
