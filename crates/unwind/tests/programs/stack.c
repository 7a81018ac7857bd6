/* Functions whose frame has no fixed size or place: alloca, aligned locals, arrays of a length. */
#include <alloca.h>
#include <stdio.h>
#include <string.h>

__attribute__((noinline)) long use(void *memory, long size) {
    memset(memory, 7, size);
    return ((unsigned char *)memory)[size - 1];
}

/* Arguments on the stack, which is aligned: they are reached by a register of their own. */
__attribute__((noinline)) long arguments(long a, long b, long c, long d, long e, long f, long g, long *h) {
    _Alignas(64) char memory[128];
    char *more = alloca(a);
    return use(memory, a + b + c + d + e + f) + use(more, a) + g + *h;
}

__attribute__((noinline)) long variable(long n) {
    char *memory = alloca(n * 16);
    char array[n];
    long sum = arguments(n, 1, 2, 3, 4, 5, 6, &n);
    return sum + use(memory, n * 16) + use(array, n);
}

__attribute__((noinline)) long aligned(long n) {
    _Alignas(64) char memory[128];
    return use(memory, 100 + n);
}

/* Both, and registers to keep. */
__attribute__((noinline)) long both(long n, long a, long b, long c, long d) {
    _Alignas(128) char memory[256];
    char *more = alloca(n);
    long sum = use(memory, n) + use(more, n);
    for (long i = 0; i < 2; i++) sum += use(memory, a + i) * b + use(more, c) * d;
    return n > 8 ? sum + both(n - 8, a, b, c, d) : sum;
}

__attribute__((noinline)) long large(long n) {
    char memory[70000];
    return use(memory, n) + use(memory + sizeof memory - n, n);
}

int main(int argc, char **argv) {
    return printf("%ld\n", variable(argc + 3) + aligned(argc) + both(20, 1, argc, 3, 4) + large(argc)) < 0;
}
