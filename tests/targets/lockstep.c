/* build: -O2 -pthread
 *
 * Two threads in lockstep: one calls left, then the other calls right, and so on. A line on standard input stops them
 * after a whole round; "rounds N" is printed then. Prints "ready" first. `filler` is 512 instructions that are never run. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_int turn, over;
static volatile long lefts, rights;

__attribute__((noinline, noclone)) void left(void) { lefts++; }

__asm__(".text\n.globl filler\n.type filler, @function\nfiller:\n.rept 512\nnop\n.endr\nret\n.size filler, . - filler\n");

__attribute__((noinline, noclone)) void right(void) { rights++; }

static void *second(void *unused) {
    for (;;) {
        while (atomic_load(&turn) == 0) sched_yield();
        if (atomic_load(&turn) == 2) return unused;
        right();
        atomic_store(&turn, 0);
    }
}

static void *first(void *unused) {
    while (!atomic_load(&over)) {
        left();
        atomic_store(&turn, 1);
        while (atomic_load(&turn) != 0) sched_yield();
    }
    atomic_store(&turn, 2);
    return unused;
}

int main(void) {
    char line[64];
    pthread_t one, other;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (pthread_create(&one, NULL, first, NULL) || pthread_create(&other, NULL, second, NULL)) return 2;
    puts("ready");
    if (!fgets(line, sizeof line, stdin)) return 0;
    atomic_store(&over, 1);
    pthread_join(one, NULL);
    pthread_join(other, NULL);
    printf("rounds %ld %ld\n", lefts, rights);
    while (fgets(line, sizeof line, stdin)) {}
    return 0;
}
