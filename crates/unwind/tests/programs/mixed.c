/* Calls a function without unwinding information, which calls back. */
#include <stdio.h>

long bare(long (*call)(long), long n);

__attribute__((noinline)) long called(long n) {
    char text[40];
    return snprintf(text, sizeof text, "%ld", n) + n;
}

int main(int argc, char **argv) {
    return printf("%ld\n", bare(called, argc) + bare(called, argc + 1)) < 0;
}
