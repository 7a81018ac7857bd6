/* build: -O2 -pthread
 *
 * A program that unmaps memory that it has not mapped: what is mapped read-only of a file of its probes' tracer.
 *   unmaps KIND THREADS CALLS    each thread calls unmaps_work so often; meanwhile the pages are unmapped (`gone`), or replaced by zeros
 *                                of the program's own (`zeros`)
 * Says on standard error how many pages that were, and prints "calls N wrong N". */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static long most;
static atomic_long calls, wrong;

__attribute__((noinline, noipa)) long unmaps_work(long x) { return x * 3 + 1; }

static void *work(void *nothing) {
    for (long i = 0; i < most; i++) {
        if (unmaps_work(i) != i * 3 + 1) wrong++;
        calls++;
    }
    return nothing;
}

/* Unmaps or replaces what is there; gives the pages. */
static int unmap(int zeros) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096], *starts[16], *ends[16];
    int count = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        void *start, *end;
        if (count < 16 && strstr(line, " r--s ") && strstr(line, "memfd:dprobes") && sscanf(line, "%p-%p", &start, &end) == 2)
            starts[count] = start, ends[count++] = end;
    }
    for (int i = 0; i < count; i++) {
        size_t size = ends[i] - starts[i];
        if (zeros) mmap(starts[i], size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        else munmap(starts[i], size);
    }
    return count;
}

int main(int count, char **words) {
    pthread_t threads[64];
    if (count != 4) return 2;
    int number = atoi(words[2]);
    most = atol(words[3]);
    for (int i = 0; i < number; i++) pthread_create(threads + i, 0, work, 0);
    while (calls < most) sched_yield();
    fprintf(stderr, "unmapped %d\n", unmap(!strcmp(words[1], "zeros")));
    for (int i = 0; i < number; i++) pthread_join(threads[i], 0);
    printf("calls %ld wrong %ld\n", calls, wrong);
    return 0;
}
