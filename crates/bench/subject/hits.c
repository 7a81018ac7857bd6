/* build: -O2 -pthread floors.S
 *
 * The measured process of the bench `jump`: functions of a few instructions, called as often as it is told.
 *
 *   hits     prints "pid N", then for every line "FUNCTION CALLS THREADS GAP BURST PAUSE" on standard input runs a round
 *            and prints "calls N wall X cpu Y counted Z"
 *
 * CALLS is per thread. GAP, if not 0, is the time in nanoseconds from one call to the next. BURST, if not 0, is the
 * number of calls after which a thread sleeps for PAUSE microseconds. X is the wall clock time that the slowest thread
 * spent on calls, Y the processor time of all threads, both in nanoseconds and without the pauses. Z is what the
 * function itself has counted, if it counts (floors.S). The functions get the number of the call and a small number,
 * `text` gets the address of a string of 16 bytes. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PROCESSORS 4096
#define RING (1 << 18)

typedef long function(long, long);

/* What floors.S counts and logs in. */
struct line {
    _Alignas(64) volatile uint64_t count;
};
struct line floor_shared, floor_spill, floor_counts[PROCESSORS];
__thread char *floor_ring;
__thread uint64_t floor_cursor, floor_logged;
__thread uint32_t floor_thread;
uint32_t floor_process;
long floor_rseq_offset;
long bias = 1;

function work, work_long, text, floor_none, floor_plain, floor_lock, floor_rseq, floor_log;

static const struct {
    const char *name;
    function *function;
} functions[] = {
    {"work", work},           {"work_long", work_long},   {"text", text},
    {"floor_none", floor_none}, {"floor_plain", floor_plain}, {"floor_lock", floor_lock},
    {"floor_rseq", floor_rseq}, {"floor_log", floor_log},
};

#ifdef LTTNG
/* The same work with a static tracepoint at its start. */
#include "hits_tracepoint.h"
__attribute__((noinline, noclone)) long work(long a, long b) {
    volatile long kept = a;
    lttng_ust_tracepoint(dprobes_bench, work, a, b);
    return kept * 3 + bias + b;
}
#endif

struct job {
    pthread_t thread;
    function *function;
    const char *text;
    long calls, gap, burst, pause;
    uint64_t wall, cpu, sum, logged;
};
static pthread_barrier_t together;

static uint64_t now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void call(struct job *job, long from, long to) {
    function *function = job->function;
    uint64_t sum = 0;
    if (job->text) {
        for (long i = from; i < to; i++) sum += function((long)job->text, i & 7);
    } else if (job->gap) {
        uint64_t next = now(CLOCK_MONOTONIC);
        for (long i = from; i < to; i++) {
            sum += function(i, i & 7);
            next += job->gap;
            while (now(CLOCK_MONOTONIC) < next) {
            }
        }
    } else {
        for (long i = from; i < to; i++) sum += function(i, i & 7);
    }
    job->sum += sum;
}

static void *run(void *argument) {
    struct job *job = argument;
    long burst = job->burst ? job->burst : job->calls;
    floor_thread = syscall(SYS_gettid);
    /* Touched here, so that no page is fetched inside of the measured calls. */
    floor_ring = malloc(RING);
    if (!floor_ring) exit(2);
    memset(floor_ring, 1, RING);
    pthread_barrier_wait(&together);
    for (long done = 0; done < job->calls;) {
        long to = job->calls - done < burst ? job->calls : done + burst;
        uint64_t cpu = now(CLOCK_THREAD_CPUTIME_ID), wall = now(CLOCK_MONOTONIC);
        call(job, done, to);
        job->wall += now(CLOCK_MONOTONIC) - wall;
        job->cpu += now(CLOCK_THREAD_CPUTIME_ID) - cpu;
        done = to;
        if (job->pause && done < job->calls) usleep(job->pause);
    }
    job->logged = floor_logged;
    free(floor_ring);
    return NULL;
}

static uint64_t counted(function *function) {
    uint64_t sum = floor_spill.count;
    if (function != floor_rseq) return floor_shared.count;
    for (int i = 0; i < PROCESSORS; i++) sum += floor_counts[i].count;
    return sum;
}

int main(void) {
    /* 16 bytes, not in one line of the cache with anything that changes. */
    static const _Alignas(64) char sixteen[64] = "sixteen letters.";
    char line[128], name[32];
    floor_process = getpid();
    extern const ptrdiff_t __rseq_offset __attribute__((weak));
    extern const unsigned int __rseq_size __attribute__((weak));
    if (&__rseq_size && __rseq_size) floor_rseq_offset = __rseq_offset;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("pid %d\n", getpid());
    while (fgets(line, sizeof line, stdin)) {
        long calls, gap = 0, burst = 0, pause = 0;
        int threads = 1;
        function *chosen = NULL;
        struct job jobs[64] = {0};
        uint64_t wall = 0, cpu = 0, logged = 0, before;
        if (sscanf(line, "%31s %ld %d %ld %ld %ld", name, &calls, &threads, &gap, &burst, &pause) < 2) break;
        for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
            if (!strcmp(functions[i].name, name)) chosen = functions[i].function;
        if (!chosen || calls < 1 || threads < 1 || threads > 64) {
            printf("cannot: %s", line);
            continue;
        }
        if (chosen == floor_rseq && !floor_rseq_offset) {
            printf("cannot: the C library has not registered restartable sequences\n");
            continue;
        }
        before = counted(chosen);
        if (pthread_barrier_init(&together, NULL, threads)) exit(2);
        for (int i = 0; i < threads; i++) {
            jobs[i].function = chosen;
            jobs[i].text = chosen == text ? sixteen : NULL;
            jobs[i].calls = calls, jobs[i].gap = gap, jobs[i].burst = burst, jobs[i].pause = pause;
            if (pthread_create(&jobs[i].thread, NULL, run, &jobs[i])) exit(2);
        }
        for (int i = 0; i < threads; i++) {
            pthread_join(jobs[i].thread, NULL);
            if (jobs[i].wall > wall) wall = jobs[i].wall;
            cpu += jobs[i].cpu, logged += jobs[i].logged;
        }
        pthread_barrier_destroy(&together);
        printf("calls %ld wall %llu cpu %llu counted %llu\n", calls * threads, (unsigned long long)wall,
               (unsigned long long)cpu, (unsigned long long)(counted(chosen) - before + logged));
    }
    return 0;
}
