/* build: -O1 -fno-stack-protector
 *
 * The thread pointer, and the restartable sequences that are found through it, are not what a libc makes of them.
 *   pointer elsewhere   a function runs while fs is in memory that looks like anything
 *   pointer nowhere     ... while there is nothing where fs points
 *   pointer taken       the program takes the libc's registration back and uses that memory for something else
 *   pointer own         the program registers memory of its own, later takes it back and uses it (start it with
 *                       GLIBC_TUNABLES=glibc.pthread.rseq=0, or there is nothing to be seen)
 * Prints sums and what was changed that must not be: nothing. */
#define _GNU_SOURCE
#include <linux/rseq.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SIGNATURE = 0x53053053, PROCESSORS = 4, CALLS = 500 };

__attribute__((noinline, noipa)) long pointer_leaf(long x) {
    long sum = x;
    for (int i = 0; i < 10; i++) sum = sum * 31 + i;
    return sum;
}

/* pointer_leaf, called while fs is at an address. */
__attribute__((noinline, noipa)) static long with(uint64_t base, long x) {
    uint64_t before;
    __asm__ volatile("rdfsbase %0" : "=r"(before));
    __asm__ volatile("wrfsbase %0" ::"r"(base) : "memory");
    long result = pointer_leaf(x);
    __asm__ volatile("wrfsbase %0" ::"r"(before) : "memory");
    return result;
}

static uint64_t area[8192] __attribute__((aligned(4096)));
static struct rseq own[2] __attribute__((aligned(32)));
static long sum, changed;

static void elsewhere(void) {
    static const uint64_t patterns[] = {0, ~0ul, 1, 0x4141414141414141, (uint64_t)area};
    for (int pattern = 0; pattern < 5; pattern++)
        for (int every = 1; every < 4; every++) {
            for (int i = 0; i < 8192; i++) area[i] = i % every ? 0 : patterns[pattern];
            for (int i = 0; i < 100; i++) sum += with((uint64_t)(area + 4096), i);
            for (int i = 0; i < 8192; i++) changed += area[i] != (i % every ? 0 : patterns[pattern]);
        }
}

static void nowhere(void) {
    for (int i = 0; i < 100; i++) sum += with(0x10000, i) + with(0, i) + with(0x7ffffffff000, i);
}

/* The memory of a registration that is no more is used in any way; nothing may write to it. */
static void use(struct rseq *area) {
    uint32_t *words = (uint32_t *)area;
    for (uint32_t number = 0; number < PROCESSORS; number++) {
        words[0] = words[1] = number;
        for (int clear = 0; clear < 2; clear++) {
            if (clear) memset(words + 2, 0, 24);
            uint64_t section = clear ? 0 : 0x4141414141414141;
            memcpy(words + 2, &section, 8);
            for (int i = 0; i < CALLS; i++) {
                sum += pointer_leaf(i);
                changed += memcmp(words + 2, &section, 8) != 0;
            }
        }
    }
}

static long call(struct rseq *area, int flags) {
    return syscall(SYS_rseq, area, sizeof *area < 32 ? 32 : sizeof *area, flags, SIGNATURE);
}

int main(int count, char **words) {
    const char *mode = count > 1 ? words[1] : "";
    if (!strcmp(mode, "elsewhere")) elsewhere();
    else if (!strcmp(mode, "nowhere")) nowhere();
    else if (!strcmp(mode, "taken")) {
        extern const ptrdiff_t __rseq_offset __attribute__((weak));
        if (&__rseq_offset) {
            char *pointer;
            __asm__("mov %%fs:0, %0" : "=r"(pointer));
            struct rseq *libcs = (struct rseq *)(pointer + __rseq_offset);
            if (call(libcs, 1) == 0) use(libcs);
        }
    } else if (!strcmp(mode, "own")) {
        own->cpu_id = -1;
        if (call(own, 0) == 0) {
            /* Long enough for a tracer to see it. */
            for (int i = 0; i < 20; i++, usleep(20000)) sum += pointer_leaf(i);
            if (call(own, 1) == 0) use(own);
        }
    } else return 2;
    printf("sum %ld changed %ld\n", sum, changed);
    return 0;
}
