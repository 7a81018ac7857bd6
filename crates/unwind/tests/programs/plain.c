/* Ordinary functions: many registers, a recursion, a callback, calls through the linkage table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) long many(long a, long b, long c, long d, long e, long f, long g, long h) {
    long x[8] = {a, b, c, d, e, f, g, h};
    long sum = 0;
    for (int i = 0; i < 8; i++) sum += x[i] * (long)strlen("abcdefgh" + (x[i] & 7));
    return sum + a * b + c * d + e * f + g * h;
}

__attribute__((noinline)) long recurse(long n, char *text) {
    char own[40];
    snprintf(own, sizeof own, "%ld%.5s", n, text);
    if (n == 0) return strlen(own);
    return recurse(n - 1, own) + own[0];
}

__attribute__((noinline)) int compare(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

__attribute__((noinline)) long early(long n) {
    if (n < 3) return n;
    long text[300];
    memset(text, (int)n, sizeof text);
    return text[n] + many(n, 2, 3, 4, 5, 6, 7, 8);
}

int main(int argc, char **argv) {
    int numbers[] = {5, 3, argc, 9, 1, 7};
    long sum = many(1, 2, 3, 4, 5, 6, 7, argc) + early(1) + early(argc + 4);
    qsort(numbers, 6, sizeof numbers[0], compare);
    sum += recurse(6, argv[0]);
    return printf("%ld %d\n", sum, numbers[2]) < 0;
}
