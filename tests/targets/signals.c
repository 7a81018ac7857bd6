/* build: -O2
 *
 * Asynchronous signals while probed code runs. A timer sends SIGALRM 200 microseconds after it was set; its handler checks that
 * the interrupted rip lies in code this program knows (its own, the C library's, the loader's, the vdso), and calls a
 * probed function itself.
 *   signals CALLS        handler on the thread's stack
 *   signals CALLS alt    handler on an alternate stack
 *   signals CALLS quiet  no timer
 *   signals CALLS any N  as the first, a signal N microseconds after the last call that followed one
 *   signals CALLS alt N  as the second, a signal N microseconds after the last call that followed one
 * Probe points: signals_push (first instruction, a push), signals_rip (a rip-relative instruction), signals_string (a
 * rep movsb), signals_syscall (a system call), signals_ret (the return) - each runs once per call - and
 * signals_handler, which runs once per signal. Prints "calls N signals N outside N sum ok|wrong". */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

uint64_t signals_bias = 0x10001;
char signals_from[64] = "the quick brown fox jumps over the lazy dog, and again";
char signals_to[64];
uint64_t signals_push(uint64_t a);
uint64_t signals_handler(uint64_t a);

#if defined __i386__
#define REG_RIP REG_EIP
__asm__(".text\n"
        ".globl signals_push, signals_rip, signals_string, signals_syscall, signals_ret, signals_handler\n"
        ".type signals_push, @function\n"
        "signals_push:\n"
        "  push %ebx\n"
        "  push %esi\n"
        "  push %edi\n"
        "  call signals_place\n"
        "signals_place:\n"
        "  pop %edx\n"
        "signals_rip:\n"
        "  mov signals_bias - signals_place(%edx), %ebx\n"
        "  add 16(%esp), %ebx\n"
        "  lea signals_from - signals_place(%edx), %esi\n"
        "  lea signals_to - signals_place(%edx), %edi\n"
        "  mov $64, %ecx\n"
        "signals_string:\n"
        "  rep movsb\n"
        "  mov $20, %eax\n" /* getpid */
        "signals_syscall:\n"
        "  call *%gs:0x10\n" /* as a C library makes a system call */
        "  mov %ebx, %eax\n"
        "  xor %edx, %edx\n"
        "  pop %edi\n"
        "  pop %esi\n"
        "  pop %ebx\n"
        "signals_ret:\n"
        "  ret\n"
        ".size signals_push, . - signals_push\n"
        ".type signals_handler, @function\n"
        "signals_handler:\n"
        "  mov 4(%esp), %eax\n"
        "  add $1, %eax\n"
        "  mov $0, %edx\n"
        "  ret\n"
        ".size signals_handler, . - signals_handler\n");
#else
__asm__(".text\n"
        ".globl signals_push, signals_rip, signals_string, signals_syscall, signals_ret, signals_handler\n"
        ".type signals_push, @function\n"
        "signals_push:\n"
        "  push %rbx\n"
        "  mov %rdi, %rbx\n"
        "signals_rip:\n"
        "  add signals_bias(%rip), %rbx\n"
        "  lea signals_from(%rip), %rsi\n"
        "  lea signals_to(%rip), %rdi\n"
        "  mov $64, %ecx\n"
        "signals_string:\n"
        "  rep movsb\n"
        "  mov $39, %eax\n" /* getpid */
        "signals_syscall:\n"
        "  syscall\n"
        "  mov %rbx, %rax\n"
        "  pop %rbx\n"
        "signals_ret:\n"
        "  ret\n"
        ".size signals_push, . - signals_push\n"
        ".type signals_handler, @function\n"
        "signals_handler:\n"
        "  lea 1(%rdi), %rax\n"
        "  ret\n"
        ".size signals_handler, . - signals_handler\n");
#endif

struct range {
    uintptr_t start, end;
};
static struct range known[32];
static int ranges;
static volatile uint64_t signals, outside, handler_calls;

static void on_alarm(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    uintptr_t rip = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    int inside = 0;
    for (int i = 0; i < ranges; i++) inside |= rip >= known[i].start && rip < known[i].end;
    if (!inside) outside++;
    signals++;
    handler_calls = signals_handler(handler_calls);
}

/* Only mappings of files that were there without any tracer: a slot's page has none of these names. */
static void learn(const char *self) {
    char line[512];
    const char *own = strrchr(self, '/');
    own = own ? own : self;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps) exit(2);
    while (fgets(line, sizeof line, maps) && ranges < 32) {
        unsigned long start, end;
        char mode[5];
        if (sscanf(line, "%lx-%lx %4s", &start, &end, mode) != 3 || mode[2] != 'x') continue;
        if (strstr(line, own) || strstr(line, "/libc.so") || strstr(line, "/libc-") || strstr(line, "/ld-linux") ||
            strstr(line, "/ld-2") || strstr(line, "[vdso]"))
            known[ranges++] = (struct range){start, end};
    }
    fclose(maps);
}

int main(int argc, char **argv) {
    long calls = argc > 1 ? atol(argv[1]) : 10000;
    learn(argv[0]);
    static char stack[65536];
    struct sigaction action = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO | SA_RESTART};
    if (argc > 2 && !strcmp(argv[2], "alt")) {
        stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
        if (sigaltstack(&alternate, NULL)) return 2;
        action.sa_flags |= SA_ONSTACK;
    }
    if (sigaction(SIGALRM, &action, NULL)) return 2;
    int pause = argc > 3 ? atoi(argv[3]) : 200;
    struct itimerval once = {{0, 0}, {0, pause}}, never = {{0, 0}, {0, 0}};
    int quiet = argc > 2 && !strcmp(argv[2], "quiet");
    uint64_t sum = 0, expected = 0, seen = -1;
    int copied = 1;
    for (long i = 0; i < calls; i++) {
        /* Only between calls, or a handler that takes longer than the timer's period would be all that runs. */
        if (!quiet && signals != seen) {
            seen = signals;
            if (setitimer(ITIMER_REAL, &once, NULL)) return 2;
        }
        memset(signals_to, 0, sizeof signals_to);
        sum += signals_push(i);
        copied &= !memcmp(signals_to, signals_from, sizeof signals_to);
        expected += i + signals_bias;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarm, NULL);
    int right = sum == expected && copied && handler_calls == signals;
    printf("calls %ld signals %llu outside %llu sum %s\n", calls, (unsigned long long)signals,
           (unsigned long long)outside, right ? "ok" : "wrong");
    return !right || outside;
}
