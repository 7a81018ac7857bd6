/* build: -O2 -pthread
 *
 * The smallest thing to measure: `work`, a function of a few instructions, called in a loop.
 *   tight CALLS [THREADS]   calls it that often on each thread
 *   tight -i                server: prints "pid N", then for every line "CALLS THREADS" on standard input runs a round
 * Each round prints "calls N ns X sum HEX": the calls of all threads and the nanoseconds per call, by the wall clock,
 * of one processor (times the processors that could be busy). At the end it prints "total N". */
#include <pthread.h>
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

static void *run(void *argument) {
    struct job *job = argument;
    uint64_t sum = 0;
    pthread_barrier_wait(&together);
    for (long i = 0; i < job->calls; i++) sum += work(i, i & 7);
    job->sum = sum;
    return NULL;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static long round_of(long calls, int threads) {
    struct job jobs[64] = {0};
    uint64_t sum = 0;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (threads < 1 || threads > 64 || pthread_barrier_init(&together, NULL, threads + 1)) exit(2);
    for (int i = 0; i < threads; i++) {
        jobs[i].calls = calls;
        if (pthread_create(&jobs[i].thread, NULL, run, &jobs[i])) exit(2);
    }
    double start = now();
    pthread_barrier_wait(&together);
    for (int i = 0; i < threads; i++) {
        pthread_join(jobs[i].thread, NULL);
        sum += jobs[i].sum;
    }
    double took = now() - start;
    pthread_barrier_destroy(&together);
    printf("calls %ld ns %.3f sum %llx\n", calls * threads,
           took * (threads < processors ? threads : processors) / ((double)calls * threads), (unsigned long long)sum);
    return calls * threads;
}

int main(int argc, char **argv) {
    long total = 0, calls;
    char line[64];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1 && !strcmp(argv[1], "-i")) {
        printf("pid %d\n", getpid());
        while (fgets(line, sizeof line, stdin)) {
            int threads = 1;
            if (sscanf(line, "%ld %d", &calls, &threads) < 1 || calls < 1) break;
            total += round_of(calls, threads);
        }
    } else {
        calls = argc > 1 ? atol(argv[1]) : 1000000;
        total += round_of(calls, argc > 2 ? atoi(argv[2]) : 1);
    }
    printf("total %ld\n", total);
    return 0;
}
