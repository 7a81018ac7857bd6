/* build: -O2 -pthread
 *
 * Exact counts. Eight threads call one function as often as the argument says, 5,000 times by default. The function
 * offers three places to probe:
 *   exact_entry  its first instruction, a push
 *   exact_mid    an instruction in the middle that addresses memory relative to rip
 *   exact_ret    its return
 * Every call gives a value that depends on all of them; the sum is compared with one computed without the function.
 * With -m32 it is a 32-bit program, and the same holds.
 * Prints "calls N sum HEX ok" and exits with 0, or says what differs and exits with 1. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 8 };

static uintptr_t calls = 5000;

uintptr_t exact_bias = 0x1234567;
uint64_t exact_entry(uint64_t a, uint64_t b);

#if defined __i386__
uint32_t exact_entry_32(uint32_t a, uint32_t b);
__asm__(".text\n"
        ".globl exact_entry, exact_mid, exact_ret\n"
        ".type exact_entry, @function\n"
        "exact_entry_32:\n"
        "exact_entry:\n"
        "  push %ebp\n"
        "  mov %esp, %ebp\n"
        "  call exact_place\n" /* as position-independent code finds its data */
        "exact_place:\n"
        "  pop %ecx\n"
        "  mov 8(%ebp), %eax\n"
        "  lea (%eax,%eax,2), %eax\n"
        "exact_mid:\n"
        "  add exact_bias - exact_place(%ecx), %eax\n"
        "  xor 12(%ebp), %eax\n"
        "  pop %ebp\n"
        "exact_ret:\n"
        "  ret\n"
        ".size exact_entry, . - exact_entry\n");
#define exact_entry exact_entry_32
#else
__asm__(".text\n"
        ".globl exact_entry, exact_mid, exact_ret\n"
        ".type exact_entry, @function\n"
        "exact_entry:\n"
        "  push %rbp\n"
        "  mov %rsp, %rbp\n"
        "  lea (%rdi,%rdi,2), %rax\n"
        "exact_mid:\n"
        "  add exact_bias(%rip), %rax\n"
        "  xor %rsi, %rax\n"
        "  pop %rbp\n"
        "exact_ret:\n"
        "  ret\n"
        ".size exact_entry, . - exact_entry\n");
#endif

static void *thread(void *argument) {
    uintptr_t id = (uintptr_t)argument, sum = 0;
    for (uintptr_t i = 0; i < calls; i++) sum += exact_entry(i, id);
    return (void *)(uintptr_t)sum;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    uintptr_t sum = 0, expected = 0;
    if (argc > 1) calls = (uintptr_t)atol(argv[1]);
    for (uintptr_t t = 0; t < THREADS; t++) {
        if (pthread_create(&threads[t], NULL, thread, (void *)t)) return 2;
    }
    for (int t = 0; t < THREADS; t++) {
        void *part;
        if (pthread_join(threads[t], &part)) return 2;
        sum += (uintptr_t)part;
    }
    for (uint64_t t = 0; t < THREADS; t++)
        for (uint64_t i = 0; i < calls; i++) expected += (i * 3 + exact_bias) ^ t;
    printf("calls %llu sum %llx %s\n", (unsigned long long)(THREADS * calls), (unsigned long long)sum, sum == expected ? "ok" : "wrong");
    return sum != expected;
}
