/* build: -O2 -pthread
 *
 * A process that writes into its own rings whatever it likes, while a child of it does what it should.
 *   forger MODE BYTES     BYTES: of a ring, as the tracer was told
 * MODE: big (records as large as the ring), random (random words anywhere), heads (numbers of bytes that were put in), records
 * (records of random parts), tids (records of threads that are others' or nobody's), times (records of any time), waiters (rings that are full,
 * in which the child, this process, or anybody waits).
 * Prints "ready", and after a line "child PID" and "done", when the child has called `forger_work` 2000 times; ends after another. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

struct control {
    _Alignas(64) uint64_t head;
    _Alignas(64) uint64_t tail;
    _Alignas(64) uint64_t lost;
    _Alignas(64) uint64_t waiter;
};

struct header {
    uint8_t state, flags;
    uint16_t log;
    uint32_t number;
    uint64_t time;
    uint32_t tid, cpu;
    uint64_t rsp;
};

/* Behind the log, if bit 0 of the flags says so. */
struct more {
    uint32_t major, minor;
    uint64_t traces;
};

static volatile long sink;
static volatile int over;
static uint64_t seed = 88172645463325252ull;
static const char *mode;
static uint64_t ring_size;
static pid_t child;

static uint64_t random_word(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static int is(const char *name) { return !strcmp(mode, name); }

__attribute__((noinline, noclone)) long forger_work(long a) {
    sink += a;
    return sink;
}

/* Fills a ring that is empty. */
static void forge(struct control *control, uint8_t *ring) {
    uint64_t tail = __atomic_load_n(&control->tail, __ATOMIC_ACQUIRE), at = tail;
    control->lost = random_word() >> random_word() % 64;
    if (is("heads")) {
        control->head = random_word() % 3 ? control->head + (random_word() % ring_size & ~7ull) : random_word();
        return;
    }
    if (is("waiters")) {
        uint64_t any[] = {child, getpid(), 1, random_word()};
        control->waiter = any[random_word() % 4];
        control->head = tail + ring_size - (random_word() % (ring_size / 2) & ~7ull);
        return;
    }
    if (__atomic_load_n(&control->head, __ATOMIC_ACQUIRE) != tail) return;
    for (int n = 0; n < (is("big") ? 1 : 2000); n++) {
        uint64_t offset = at & (ring_size - 1), room = ring_size - offset;
        int any = is("records"), with_more = is("big") || any;
        uint32_t log = is("big") ? 0xfff8 : 8;
        /* What it says of its traces is as much as there is room for, or anything. */
        uint64_t traces = is("big") ? room - sizeof(struct header) - log - sizeof(struct more) : n % 8 ? 0 : random_word();
        uint64_t size = sizeof(struct header) + log + (with_more ? sizeof(struct more) : 0) + (is("big") ? traces : 0);
        if (size > room || at + size > tail + ring_size) break;
        struct header *header = (struct header *)(ring + offset);
        *header = (struct header){
            .flags = with_more | (any && n % 16 == 0 ? 2 : 0),
            .log = any && n % 16 == 0 ? 0 : log,
            .number = any ? random_word() % 3 : 0,
            .time = is("times") ? random_word() >> random_word() % 64 : __rdtsc(),
            .cpu = any ? random_word() : 0,
            .tid = any || is("tids") ? random_word() % 4000000 : (uint32_t)getpid(),
        };
        if (with_more) {
            struct more more = {.major = any ? random_word() : 9, .traces = traces};
            memcpy((uint8_t *)(header + 1) + header->log, &more, sizeof more);
        }
        __atomic_store_n(&header->state, 1, __ATOMIC_RELEASE);
        at += size;
    }
    __atomic_store_n(&control->head, at, __ATOMIC_RELEASE);
}

/* Does its worst to what it has in common with the tracer above 4 GiB: the rings. */
static void once(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx rw-s", &start, &end) != 2 || !strstr(line, "memfd:dprobes") || start >> 32 == 0) continue;
        if (is("random")) {
            for (int i = 0; i < 20000; i++) {
                uint64_t words = (i % 4 ? 8192 : end - start) / 8;
                ((volatile uint64_t *)start)[random_word() % words] = i % 3 ? random_word() : random_word() % 5;
            }
            continue;
        }
        uint64_t count = (end - start) / ring_size;
        for (uint64_t i = 0; i < count; i++) {
            forge((struct control *)start + i, (uint8_t *)end - (count - i) * ring_size);
        }
    }
    if (maps) fclose(maps);
}

static void *hit(void *unused) {
    while (!over) {
        for (int i = 0; i < 100; i++) forger_work(-1);
        usleep(200);
    }
    return unused;
}

int main(int argc, char **argv) {
    char line[80];
    if (argc != 3) return 1;
    mode = argv[1];
    ring_size = strtoull(argv[2], NULL, 10);
    setvbuf(stdout, NULL, _IONBF, 0);
    puts("ready");
    if (!fgets(line, sizeof line, stdin)) return 2;
    child = fork();
    if (child == 0) {
        for (int i = 0; i < 2000; i++) {
            forger_work(0x1000 + i);
            if (i % 20 == 0) usleep(1000);
        }
        _exit(0);
    }
    printf("child %d\n", child);
    // Where what it writes are records, no handler writes beside it: the two would make nonsense of each other's.
    int with_hits = !is("tids") && !is("times") && !is("waiters");
    pthread_t thread;
    if (with_hits) pthread_create(&thread, NULL, hit, NULL);
    int status = 1;
    time_t start = time(NULL);
    while (waitpid(child, &status, WNOHANG) == 0 || time(NULL) < start + 1) {
        once();
        usleep(500);
    }
    over = 1;
    if (with_hits) pthread_join(thread, NULL);
    puts("done");
    return !fgets(line, sizeof line, stdin);
}
