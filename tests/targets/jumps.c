/* build: -O2 -pthread
 *
 * Many probe points that a jump fits in, on many threads.
 *   jumps THREADS ROUNDS   each thread calls all functions jumps_0 to jumps_999 in turn, ROUNDS times
 *   jumps -i THREADS       server: prints "pid N", then for each line "ROUNDS" on standard input does that; "0": until the next line comes
 *   jumps fork CHILDREN    that many children, eight at a time, each of which calls all functions once
 * Each function begins with an instruction of seven bytes, and adds its number and the argument to a sum. Prints
 * "calls N sum HEX" for each round; the sum is checked against what the same calls should give ("wrong" otherwise). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FUNCTIONS 1000

uint64_t jumps_bias = 3;
extern char jumps_0[];

/* Function I: 32 bytes from the one before. */
__asm__(".text\n"
        ".balign 32\n"
        ".set number, 0\n"
        ".macro function place\n"
        "  .globl jumps_\\place\n"
        "  .type jumps_\\place, @function\n"
        "jumps_\\place:\n"
        "  mov jumps_bias(%rip), %rax\n"
        "  add %rdi, %rax\n"
        "  lea number(%rax), %rax\n"
        "  ret\n"
        "  .balign 32\n"
        "  .set number, number + 1\n"
        ".endm\n"
        ".altmacro\n"
        ".rept 1000\n"
        "  function %number\n"
        ".endr\n");

/* How often each thread calls them all; 0: until `ended`. */
static uint64_t rounds;
static atomic_int ended;

struct done {
    uint64_t rounds, sum;
};

static uint64_t expected(uint64_t rounds) {
    uint64_t sum = 0;
    for (uint64_t round = 0; round < rounds; round++)
        sum += FUNCTIONS * (jumps_bias + round) + FUNCTIONS * (FUNCTIONS - 1) / 2;
    return sum;
}

static void *work(void *result) {
    uint64_t sum = 0, round = 0;
    for (; rounds ? round < rounds : !atomic_load(&ended); round++)
        for (long number = 0; number < FUNCTIONS; number++)
            sum += ((uint64_t (*)(uint64_t))(jumps_0 + 32 * number))(round);
    *(struct done *)result = (struct done){round, sum};
    return NULL;
}

static int all(int count) {
    char line[100];
    pthread_t threads[64];
    struct done done[64];
    uint64_t sum = 0, calls = 0;
    int right = 1;
    atomic_store(&ended, 0);
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, work, &done[i])) return 2;
    if (!rounds && fgets(line, sizeof line, stdin)) atomic_store(&ended, 1);
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        sum += done[i].sum;
        calls += done[i].rounds * FUNCTIONS;
        right &= done[i].sum == expected(done[i].rounds);
    }
    printf("calls %llu sum %llx%s\n", (unsigned long long)calls, (unsigned long long)sum, right ? "" : " wrong");
    fflush(stdout);
    return !right;
}

static int children(int count) {
    struct done done;
    int running = 0, status, wrong = 0;
    rounds = 1;
    for (int i = 0; i < count || running > 0;) {
        if (i < count && running < 8) {
            pid_t child = fork();
            if (child == -1) return 2;
            if (child == 0) {
                work(&done);
                _exit(done.sum != expected(1));
            }
            i++, running++;
        } else {
            if (wait(&status) == -1) return 2;
            wrong += status != 0;
            running--;
        }
    }
    printf("calls %ld wrong %d\n", (long)count * FUNCTIONS, wrong);
    return wrong;
}

int main(int argc, char **argv) {
    char line[100];
    if (argc != 3) return 2;
    if (!strcmp(argv[1], "fork")) return children(atoi(argv[2]));
    if (strcmp(argv[1], "-i")) {
        rounds = strtoul(argv[2], NULL, 10);
        return all(atoi(argv[1]));
    }
    printf("pid %d\n", getpid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        rounds = strtoul(line, NULL, 10);
        if (all(atoi(argv[2]))) return 1;
    }
    return 0;
}
