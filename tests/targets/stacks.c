/* build: -O1 -fno-stack-protector
 *
 * Functions that are called on stacks with little room, or with something of value right below them.
 *   stacks room     on every room from 16 to 1000 bytes above a page that is not mapped, on the main stack and on the alternate one
 *   stacks stale    the same; what is below the stack pointer was addresses of the program's data before
 *   stacks array    the stack pointer goes through an array that is read by pop
 *   stacks saved    the register that a handler saves first is the address of the program's data
 *   stacks depth N  N calls with a pattern below the stack pointer; says on standard error how far below it, at most, another was found
 * Prints sums and what was changed that must not be: nothing. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

/* A load that could fault, between instructions that could not. */
long stacks_leaf(long x, long *table);
/* The same with data's address in rax, rcx and rdx. */
long stacks_saved(long *data, long *table);
/* Calls stacks_leaf with this stack pointer. */
long stacks_on(char *stack, long x, long *table);
/* The sum of so many words of an array. */
long stacks_sum(long *array, long count);
__asm__(".text\n"
        ".globl stacks_leaf\n"
        ".type stacks_leaf, @function\n"
        "stacks_leaf:\n"
        "  mov (%rsi), %rax\n"
        "  add %rdi, %rax\n"
        "  mov %rax, 8(%rsi)\n"
        "  lea 1(%rax,%rax,2), %rax\n"
        "  ret\n"
        ".size stacks_leaf, . - stacks_leaf\n"
        ".globl stacks_saved\n"
        ".type stacks_saved, @function\n"
        "stacks_saved:\n"
        "  mov %rdi, %rax\n"
        "  mov %rdi, %rcx\n"
        "  mov %rdi, %rdx\n"
        ".globl stacks_load\n"
        "stacks_load:\n"
        "  mov (%rsi), %r8\n"
        "  mov %r8, %rax\n"
        "  ret\n"
        ".size stacks_saved, . - stacks_saved\n"
        ".globl stacks_sum\n"
        ".type stacks_sum, @function\n"
        "stacks_sum:\n"
        "  mov %rsp, %r11\n"
        "  mov %rdi, %rsp\n"
        "  xor %eax, %eax\n"
        "1: pop %rdx\n"
        "  add %rdx, %rax\n"
        "  dec %rsi\n"
        "  jnz 1b\n"
        "  mov %r11, %rsp\n"
        "  ret\n"
        ".size stacks_sum, . - stacks_sum\n"
        ".globl stacks_on\n"
        ".type stacks_on, @function\n"
        "stacks_on:\n"
        "  push %rbp\n"
        "  mov %rsp, %rbp\n"
        "  mov %rdi, %rsp\n"
        "  mov %rsi, %rdi\n"
        "  mov %rdx, %rsi\n"
        "  call stacks_leaf\n"
        "  mov %rbp, %rsp\n"
        "  pop %rbp\n"
        "  ret\n"
        ".size stacks_on, . - stacks_on\n");

static long table[4], data[8], sum;
static int changed;
static char *lowest;
static int room;

/* A stack of some pages, with nothing below its first byte. */
static char *stack(int pages) {
    char *area = mmap(0, (pages + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED || mprotect(area, PAGE, PROT_NONE)) abort();
    return area + PAGE;
}

static void on_signal(int signal) { sum = sum * 7 + stacks_on(lowest + room, signal, table); }

static void rooms(void) {
    stack_t alternate = {.ss_sp = lowest, .ss_size = 18 * PAGE};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigaltstack(&alternate, 0);
    sigaction(SIGUSR1, &action, 0);
    for (room = 16; room < 1000; room += 8) sum = sum * 5 + stacks_on(lowest + room, room, table);
    for (room = 16; room < 1000; room += 8) raise(SIGUSR1);
}

static void stale(void) {
    for (room = 16; room < 1000; room += 8) {
        for (long **word = (long **)lowest; word < (long **)(lowest + room); word++) *word = data;
        sum = sum * 5 + stacks_on(lowest + room, room, table);
    }
}

static void array(void) {
    static long array[1024];
    for (int i = 0; i < 1024; i++) array[i] = i * 7919;
    for (int from = 0; from < 8; from++) sum = sum * 3 + stacks_sum(array + 960 + from, 8);
    for (int i = 0; i < 1024; i++) changed += array[i] != i * 7919;
}

/* In stacks_leaf the stack pointer is 8 below what stacks_on is given: the return address. */
static void depth(long calls) {
    char *top = lowest + 4 * PAGE;
    long *rsp = (long *)(top - 8), deepest = 0;
    for (; calls; calls--) {
        for (long *word = rsp - 256; word < rsp; word++) *word = 0x5a5a5a5a5a5a5a5a;
        sum = sum * 3 + stacks_on(top, calls, table);
        for (long *word = rsp - 256; word < rsp; word++)
            if (*word != 0x5a5a5a5a5a5a5a5a) {
                if (deepest < (char *)rsp - (char *)word) deepest = (char *)rsp - (char *)word;
                break;
            }
    }
    fprintf(stderr, "deepest %ld\n", deepest);
}

int main(int count, char **words) {
    const char *mode = count > 1 ? words[1] : "";
    for (int i = 0; i < 8; i++) data[i] = -1;
    lowest = stack(18);
    if (!strcmp(mode, "room")) rooms();
    else if (!strcmp(mode, "stale")) stale();
    else if (!strcmp(mode, "array")) array();
    else if (!strcmp(mode, "depth")) depth(count > 2 ? atol(words[2]) : 1);
    else if (!strcmp(mode, "saved")) for (int i = 0; i < 100; i++) sum += stacks_saved(data, table) + i;
    else return 2;
    for (int i = 0; i < 8; i++) changed += data[i] != -1;
    printf("sum %ld changed %d\n", sum, changed);
    return 0;
}
