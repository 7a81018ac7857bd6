/* Handlers of signals: on a stack of its own, one in the other, and with what they return to. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef LIBRARY
/* Not by the library: one without unwinding information or frame pointers ends each stack. */
static inline int send_here(int number) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(62L), "D"((long)getpid()), "S"((long)number) : "rcx", "r11", "memory");
    return result;
}
#define raise send_here
#endif

static volatile long sum;
static char stack[65536];

__attribute__((noinline)) void within(long n) {
    char text[64];
    sum += snprintf(text, sizeof text, "%ld", n);
}

__attribute__((noinline)) void inner(int number) {
    within(number);
}

__attribute__((noinline)) void outer(int number, siginfo_t *info, void *context) {
    sum += number + (info != 0) + (context != 0);
    raise(SIGUSR2);
    within(sum);
}

__attribute__((noinline)) long work(long n) {
    sum += n;
    raise(SIGUSR1);
    return sum * n;
}

int main(int argc, char **argv) {
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&own, 0);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = outer;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGUSR1, &action, 0);
    action.sa_handler = inner;
    action.sa_flags = 0;
    sigaction(SIGUSR2, &action, 0);
    return work(argc) + work(argc + 1) == 0;
}
