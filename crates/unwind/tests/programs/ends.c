/* Functions that end with a call: its return address is that of the next function. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((noinline, noreturn)) void leave(long n) {
    char text[200];
    _exit(snprintf(text, sizeof text, "%ld", n) & 1 ? 0 : text[n]);
}

__attribute__((noinline)) long after(long n) {
    return n * 3;
}

__attribute__((noinline)) long within(long n) {
    char own[72];
    if (n > 3) exit(3);
    if (snprintf(own, sizeof own, "%ld", after(n)) > 0) leave(n);
    return own[n];
}

int main(int argc, char **argv) {
    return within(argc);
}
