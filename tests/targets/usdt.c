/* build: -O2 -Wall -Wextra */
/* Static probes (USDT) with arguments in all kinds of places. The program prints what a tracer must
 * see at each probe, so both can be compared. With the argument `wait` it waits for a byte of its
 * input before it begins, and for another one at the end; with `fork`, a child does the work. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A probe: an instruction, and a note with its address. `arguments` is a string. */
#define PROBE(name, semaphore, arguments, ...)                                  \
    __asm__ volatile(                                                           \
        "700: nop\n"                                                            \
        ".pushsection .note.stapsdt, \"\", \"note\"\n"                          \
        ".balign 4\n"                                                           \
        ".4byte 702f - 701f, 704f - 703f, 3\n"                                  \
        "701: .asciz \"stapsdt\"\n"                                             \
        "702: .balign 4\n"                                                      \
        "703: .8byte 700b, target_probe_base, " semaphore "\n"                  \
        ".asciz \"target\", \"" name "\", \"" arguments "\"\n"                  \
        "704: .balign 4\n"                                                      \
        ".popsection\n"                                                         \
        : : __VA_ARGS__ : "memory")

/* What moves with the code. */
__asm__(".pushsection .stapsdt.base, \"a\", \"progbits\"\n"
        "target_probe_base: .space 1\n"
        ".popsection\n");

/* Counts those who trace the probe `counted`. */
__attribute__((section(".probes"), used)) volatile uint16_t counted_semaphore;

struct table {
    int32_t numbers[4];
    uint8_t bytes[8];
};

static volatile int64_t global = -5000000000;
static volatile int32_t halves[2] = { 70, -71 };

static __attribute__((noinline)) void registers(int32_t a, uint32_t b, int64_t c, int16_t d, uint16_t e, int8_t f, uint8_t g)
{
    printf("registers %d %u %ld %d %u %d %u\n", a, b, (long)c, d, e, f, g);
    PROBE("registers", "0", "-4@%k0 4@%k1 -8@%q2 -2@%w3 2@%w4 -1@%b5 1@%b6",
        "r"(a), "r"(b), "r"(c), "r"(d), "r"(e), "q"(f), "q"(g));
}

static __attribute__((noinline)) void high(uint32_t word)
{
    printf("high %d %u\n", (int8_t)(word >> 8), (uint8_t)(word >> 8));
    PROBE("high", "0", "-1@%h0 1@%h0", "a"(word));
}

static __attribute__((noinline)) void memory(struct table *table, long index)
{
    volatile int16_t local = (int16_t)(-300 - index);
    volatile uint64_t large = UINT64_MAX - (uint64_t)index;
    printf("memory %d %ld %d %u %d %ld\n", local, (long)large, table->numbers[index], table->bytes[index], halves[1], (long)global);
    PROBE("memory", "0", "-2@%0 8@%1 -4@(%q2,%q3,4) 1@16(%q2,%q3) -4@4+%4 -8@%5",
        "m"(local), "m"(large), "r"(table), "r"(index), "m"(halves), "m"(global));
}

static __attribute__((noinline)) void constants(void)
{
    printf("constants 5 -1 65535 255 -9000000000\n");
    PROBE("constants", "0", "-4@%0 -4@%1 2@%2 1@%3 -8@%4", "i"(5), "i"(-1), "i"(-1), "i"(255), "i"(-9000000000));
}

static __attribute__((noinline)) void text(const char *what)
{
    printf("text %s\n", what);
    PROBE("text", "0", "8@%q0", "r"(what));
}

static __attribute__((noinline)) void floats(double fraction)
{
    PROBE("floats", "0", "8f@%0", "x"(fraction));
}

/* One name, two sites that have the argument in different places. */
static __attribute__((noinline)) void twice(int32_t value)
{
    volatile int32_t stored = value + 1;
    printf("twice %d\ntwice %d\n", value, value + 1);
    PROBE("twice", "0", "-4@%k0", "r"(value));
    PROBE("twice", "0", "-4@%0", "m"(stored));
}

/* The work for this probe is done only if somebody traces it. */
static __attribute__((noinline)) void counted(int32_t value)
{
    if (counted_semaphore > 0) {
        PROBE("counted", "counted_semaphore", "-4@%k0", "r"(value * 3));
        printf("counted %d\n", value * 3);
    }
}

static void work(void)
{
    struct table table = { { 1, -2, 3, -4 }, { 250, 251, 252, 253, 254, 255, 0, 1 } };
    for (int round = 0; round < 3; round++) {
        registers(-round - 1, 4000000000u + (unsigned)round, -5000000000 - round, (int16_t)(-7 - round), (uint16_t)(65530 + round),
            (int8_t)(-100 - round), (uint8_t)(200 + round));
        high(0x0000f0aau + 0x100u * (unsigned)round);
        memory(&table, round);
        constants();
        text(round == 1 ? "one" : "other");
        floats(round / 2.0);
        twice(round * 10);
        counted(round);
    }
    printf("semaphore %d\n", counted_semaphore);
}

int main(int count, char **arguments)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    int waits = count > 1 && strcmp(arguments[1], "wait") == 0;
    char byte;
    if (waits && read(0, &byte, 1) < 0)
        return 1;
    if (count > 1 && strcmp(arguments[1], "fork") == 0) {
        pid_t child = fork();
        if (child > 0)
            return waitpid(child, NULL, 0) < 0;
    }
    work();
    if (waits) {
        if (read(0, &byte, 1) < 0)
            return 1;
        printf("semaphore at the end %d\n", counted_semaphore);
    }
    return 0;
}
