/* build: -O2 -pthread -no-pie
 *
 * Functions whose first instructions are short, and in which no jump fits but one over several of them: what follows the first byte
 * says that it leads to below address 0.
 *   grouped THREADS ROUNDS   each thread calls all functions grouped_0 to grouped_15 in turn, ROUNDS times
 *   grouped -s THREADS ROUNDS  while the first thread sends them signals, one after the other
 *   grouped -f CHILDREN      so many children, each of which does so once
 *   grouped -i THREADS       server: for each line "ROUNDS" on standard input the first; for "exec" it executes itself again
 *   grouped -t ROUNDS        one thread does so with the trap flag set
 * A handler of signals, and of steps, notes where rip is: in the program or in a library, and not at the instructions of a function that a
 * jump covers, if there is one. Prints "calls N wrong N shown N signals N": N wrong results, N times elsewhere, and N signals. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define FUNCTIONS 16
#define SPACE 32

extern char grouped_0[], grouped_15[];

/* push 1 byte, mov 3, mov 2: the distance of a jump over the first would be 0x89fb8948, almost 2 GiB down. */
__asm__(".text\n"
        ".balign 32\n"
        ".set number, 0\n"
        ".macro function place\n"
        "  .globl grouped_\\place\n"
        "  .type grouped_\\place, @function\n"
        "grouped_\\place:\n"
        "  .cfi_startproc\n"
        "  push %rbx\n"
        "  .cfi_def_cfa_offset 16\n"
        "  .cfi_offset %rbx, -16\n"
        "  mov %rdi, %rbx\n"
        "  mov %esi, %ecx\n"
        "  lea number(%rbx, %rcx), %rax\n"
        "  pop %rbx\n"
        "  .cfi_def_cfa_offset 8\n"
        "  ret\n"
        "  .cfi_endproc\n"
        "  .size grouped_\\place, . - grouped_\\place\n"
        "  .balign 32\n"
        "  .set number, number + 1\n"
        ".endm\n"
        ".altmacro\n"
        ".rept 16\n"
        "  function %number\n"
        ".endr\n");

static long rounds;
static volatile long ending;
static long wrong, shown, signals;
/* Whether the functions are probed: then nobody is to be seen behind their first instruction. */
static int probed;

static void noted(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    uint64_t rip = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    uint64_t offset = rip - (uint64_t)grouped_0;
    /* The trampolines are within 2 GiB of the program; libraries may begin anywhere in the upper terabytes. */
    int in_code = (rip >= 0x400000 && rip < 0x500000) || rip > 0x100000000;
    int covered = offset < FUNCTIONS * SPACE && offset % SPACE > 0 && offset % SPACE < 6;
    if (!in_code || (probed && covered)) __atomic_add_fetch(&shown, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&signals, 1, __ATOMIC_RELAXED);
}

static void call_all(uint64_t round) {
    long differ = 0;
    for (uint64_t number = 0; number < FUNCTIONS; number++)
        differ += ((uint64_t (*)(uint64_t, uint32_t))(grouped_0 + SPACE * number))(round, 7) != round + number + 7;
    if (differ) __atomic_add_fetch(&wrong, differ, __ATOMIC_RELAXED);
}

/* Whether the first thread sends signals: then each thread goes on only when one more has come, 64 times. */
static int signalled;

static void *work(void *unused) {
    long pieces = signalled ? 64 : 1;
    for (long piece = 0; piece < pieces; piece++) {
        long before = __atomic_load_n(&signals, __ATOMIC_RELAXED);
        for (long round = rounds * piece / pieces; round < rounds * (piece + 1) / pieces; round++) call_all(round);
        while (signalled && __atomic_load_n(&signals, __ATOMIC_RELAXED) == before) sched_yield();
    }
    __atomic_add_fetch(&ending, 1, __ATOMIC_RELEASE);
    return unused;
}

static int said(long calls) {
    printf("calls %ld wrong %ld shown %ld signals %ld\n", calls, wrong, shown, signals);
    fflush(stdout);
    return wrong || shown;
}

static int threaded(int count) {
    pthread_t threads[64];
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, work, NULL)) return 2;
    while (signalled && __atomic_load_n(&ending, __ATOMIC_ACQUIRE) < count)
        for (int i = 0; i < count; i++) pthread_kill(threads[i], SIGUSR1);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    return said(count * rounds * FUNCTIONS);
}

static int children(int count) {
    int status;
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == -1) return 2;
        if (child == 0) {
            call_all(i);
            _exit(wrong != 0);
        }
        if (waitpid(child, &status, 0) == -1) return 2;
        wrong += status != 0;
    }
    return said((long)count * FUNCTIONS);
}

static int stepped(void) {
    for (long round = 0; round < rounds; round++) {
        __asm__ volatile("pushfq; orl $0x100, (%%rsp); popfq" ::: "memory", "cc");
        call_all(round);
        __asm__ volatile("pushfq; andl $~0x100, (%%rsp); popfq" ::: "memory", "cc");
    }
    return said(rounds * FUNCTIONS);
}

int main(int argc, char **argv) {
    struct sigaction action = {.sa_sigaction = noted, .sa_flags = SA_SIGINFO | SA_RESTART};
    if (argc < 3) return 2;
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGTRAP, &action, NULL);
    probed = (uint8_t)*(volatile char *)grouped_0 == 0xe9;
    rounds = atol(argv[argc - 1]);
    if (!strcmp(argv[1], "-f")) return children(rounds);
    if (!strcmp(argv[1], "-t")) return stepped();
    if (!strcmp(argv[1], "-i")) {
        char line[100];
        printf("ready\n");
        fflush(stdout);
        while (fgets(line, sizeof line, stdin)) {
            if (!strncmp(line, "exec", 4)) return execv("/proc/self/exe", argv);
            ending = 0, rounds = atol(line);
            if (threaded(atoi(argv[2]))) return 1;
        }
        return 0;
    }
    signalled = !strcmp(argv[1], "-s");
    return threaded(atoi(argv[signalled ? 2 : 1]));
}
