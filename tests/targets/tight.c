/* build: -O2 -pthread
 *
 * The smallest thing to measure: `work`, a function of a few instructions, called in a loop.
 *   tight CALLS [THREADS]   calls it that often on each thread
 *   tight -i                server: prints "pid N", then for every line "CALLS THREADS" on standard input runs a round; where CALLS is
 *                           0, each thread goes on until the next line comes, and "wrong" is said where a sum is not what it should be
 * Each round prints "calls N ns X sum HEX": the calls of all threads and the nanoseconds per call, by the wall clock,
 * of one processor (times the processors that could be busy). At the end it prints "total N". */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

long bias = 1;
long work(long a, long b);

/* In assembly, so that its instructions are the same whatever the compiler: `work` begins with push %rbp, and work_slot
 * is an instruction that computes, which no tracer would emulate. */
__asm__(".text\n"
        ".globl work, work_slot\n"
        ".type work, @function\n"
        "work:\n"
        "  push %rbp\n"
        "  mov %rsp, %rbp\n"
        "  mov %rdi, -8(%rbp)\n"
        "  mov -8(%rbp), %rax\n"
        "work_slot:\n"
        "  imul $3, %rax, %rax\n"
        "  add bias(%rip), %rax\n"
        "  add %rsi, %rax\n"
        "  pop %rbp\n"
        "  ret\n"
        ".size work, . - work\n");

struct job {
    pthread_t thread;
    long calls;
    uint64_t sum;
};
static pthread_barrier_t together;
static atomic_int ended;

static void *run(void *argument) {
    struct job *job = argument;
    uint64_t sum = 0;
    pthread_barrier_wait(&together);
    for (long i = 0; i < job->calls; i++) sum += work(i, i & 7);
    job->sum = sum;
    return NULL;
}

/* The same until it is ended: eight calls in a row. */
static void *run_on(void *argument) {
    struct job *job = argument;
    uint64_t sum = 0;
    long i = 0;
    pthread_barrier_wait(&together);
    while (!atomic_load_explicit(&ended, memory_order_relaxed))
        for (long last = i + 8; i < last; i++) sum += work(i, i & 7);
    job->calls = i;
    job->sum = sum;
    return NULL;
}

/* What a thread's sum is after so many calls, a multiple of eight. */
static uint64_t expected(uint64_t calls) {
    return calls + 3 * (calls % 2 ? (calls - 1) / 2 * calls : calls / 2 * (calls - 1)) + calls / 8 * 28;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static long round_of(long calls, int threads) {
    struct job jobs[64] = {0};
    char line[64];
    uint64_t sum = 0;
    long all = 0, wrong = 0;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (threads < 1 || threads > 64 || pthread_barrier_init(&together, NULL, threads + 1)) exit(2);
    for (int i = 0; i < threads; i++) {
        jobs[i].calls = calls;
        if (pthread_create(&jobs[i].thread, NULL, calls ? run : run_on, &jobs[i])) exit(2);
    }
    double start = now();
    atomic_store(&ended, 0);
    pthread_barrier_wait(&together);
    if (!calls && fgets(line, sizeof line, stdin)) atomic_store(&ended, 1);
    for (int i = 0; i < threads; i++) {
        pthread_join(jobs[i].thread, NULL);
        sum += jobs[i].sum;
        all += jobs[i].calls;
        wrong += !calls && jobs[i].sum != expected(jobs[i].calls);
    }
    double took = now() - start;
    pthread_barrier_destroy(&together);
    printf("calls %ld ns %.3f sum %llx%s\n", all, took * (threads < processors ? threads : processors) / (double)all,
           (unsigned long long)sum, wrong ? " wrong" : "");
    return all;
}

int main(int argc, char **argv) {
    long total = 0, calls;
    char line[64];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1 && !strcmp(argv[1], "-i")) {
        printf("pid %d\n", getpid());
        while (fgets(line, sizeof line, stdin)) {
            int threads = 1;
            if (sscanf(line, "%ld %d", &calls, &threads) < 1 || calls < 0) break;
            total += round_of(calls, threads);
        }
    } else {
        calls = argc > 1 ? atol(argv[1]) : 1000000;
        total += round_of(calls, argc > 2 ? atoi(argv[2]) : 1);
    }
    printf("total %ld\n", total);
    return 0;
}
