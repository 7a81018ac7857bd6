/* build: -O2 -fno-inline -fcf-protection=none -falign-functions=1
 *
 * A process whose functions do the same each time. Standard input: "go" runs them all and prints "sum N"; end of file
 * ends it. They are in a section of their own, small and close together: instructions of one to three bytes, loops,
 * a table of jumps, recursion, strings. Prints "pid N" first. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WAVES __attribute__((section(".waves"), noipa))

static volatile long sink;

WAVES long w_none(void) { return 0; }

WAVES long w_mix(long a, long b) {
    for (int i = 0; i < 5; i++) {
        a = (a ^ b) * 31 + (a >> 7);
        b = (b << 3) - a;
        if (a & 1) b ^= i;
    }
    return a + b;
}

WAVES long w_switch(long n) {
    switch (n & 7) {
    case 0: return w_none() + 3;
    case 1: sink = 9; return 1 + sink;
    case 2: return w_mix(n, 2);
    case 3: sink++; break;
    case 4: sink = sink * 5; return sink;
    case 5: sink ^= 77; break;
    case 6: sink -= 3; return 8;
    default: sink = 4; break;
    }
    return sink;
}

WAVES long w_recursive(long n) { return n < 2 ? n : w_recursive(n - 1) + w_recursive(n - 2); }

WAVES long w_words(const char *text) {
    long words = 0, inside = 0;
    for (; *text; text++) {
        long letter = *text != ' ';
        words += letter && !inside;
        inside = letter;
    }
    return words;
}

WAVES double w_float(double x) {
    double sum = 0;
    for (int i = 1; i < 4; i++) sum += x / i - (double)(long)x;
    return sum;
}

WAVES void w_sort(int *values, int count) {
    for (int i = 1; i < count; i++)
        for (int j = i; j && values[j - 1] > values[j]; j--) {
            int swap = values[j];
            values[j] = values[j - 1];
            values[j - 1] = swap;
        }
}

WAVES long w_all(void) {
    long sum = 0;
    int values[] = {5, 2, 9, 1, 7, 7, 0};
    sink = 1;
    for (long i = 0; i < 9; i++) sum += w_switch(i);
    sum += w_recursive(6) + w_words("put a probe on any one of them") + (long)w_float(8.5);
    w_sort(values, 7);
    return sum + values[3];
}

int main(void) {
    char line[16];
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("pid %d\n", getpid());
    while (fgets(line, sizeof line, stdin)) printf("sum %ld\n", w_all());
    return 0;
}
