/* build: -O2
 *
 * Functions that are entered and left in every way there is, which count themselves. At its end the program prints a
 * line for each: its name, how often it was entered, how often control left it for its caller or by a tail call. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#define APART __attribute__((noipa))

enum { RECURSIVE, LEAF, TAIL, SWITCH, COLD, RARE, JUMP, POINTER, TABLE, THREADED, EXIT, BRANCH, PADDED, POPPER, OTHER, LIBRARY, COUNT };

static const char *const names[COUNT] = {
    "t_recursive", "t_leaf", "t_tail",     "t_switch", "t_cold",   "t_rare",   "t_jump", "t_pointer",
    "t_table",     "t_threaded", "t_exit", "t_branch", "t_padded", "t_popper", "t_other", "t_library",
};

long entered[COUNT], unreturned[COUNT];
static jmp_buf back;
volatile long sink;

APART long t_recursive(long n) {
    entered[RECURSIVE]++;
    if (n < 2) return n;
    long sum = t_recursive(n - 1);
    sum += t_recursive(n - 2);
    sink += sum & 0; /* so that neither call becomes a loop */
    return sum;
}

APART long t_leaf(long n) {
    entered[LEAF]++;
    return n + 1;
}
/* A second name: one function all the same. */
APART long t_leaf_too(long n) __attribute__((alias("t_leaf")));

APART long t_other(long n) {
    entered[OTHER]++;
    return n ^ 5;
}

APART long t_tail(long n) {
    entered[TAIL]++;
    return t_leaf(n * 2);
}

/* A table of jumps, and returns in many cases; one case is a tail call. */
APART long t_switch(long n) {
    entered[SWITCH]++;
    switch (n) {
    case 0: sink = 1; return 3;
    case 1: sink = 9; return 1 + sink;
    case 2: return t_leaf(n);
    case 3: sink++; break;
    case 4: sink = sink * 5; return sink;
    case 5: sink ^= 77; break;
    case 6: sink -= 3; return 8;
    case 7: sink = 4; return 9 - sink;
    case 8: sink = 2; break;
    }
    return sink + n;
}

__attribute__((cold)) APART void t_rare(long n) {
    entered[RARE]++;
    sink += n;
}

/* Its unlikely path, with a return of its own, is moved elsewhere. */
APART long t_cold(long n) {
    entered[COLD]++;
    if (__builtin_expect(n % 5 == 3, 0)) {
        t_rare(n);
        if (sink % 2) return sink;
        t_rare(n + 1);
        return sink * 3;
    }
    return n * 7;
}

APART void t_jump(long n) {
    entered[JUMP]++;
    if (n % 2) {
        unreturned[JUMP]++;
        longjmp(back, 1);
    }
}

APART long t_pointer(long (*function)(long), long n) {
    entered[POINTER]++;
    return function(n);
}

/* A tail call to another module. */
APART int t_library(void) {
    entered[LIBRARY]++;
    return rand();
}

static long (*const table[4])(long) = { t_leaf, t_other, t_leaf, t_other };

/* A tail call through a table of functions, which looks much like a switch. */
APART long t_table(long n) {
    entered[TABLE]++;
    return table[n & 3](n);
}

/* Jumps through a table of places in the function itself. */
APART long t_threaded(const char *code) {
    static const void *const labels[] = { &&stop, &&more, &&less, &&twice };
    entered[THREADED]++;
    long value = 1;
    goto *labels[(int)*code++];
more: value++; goto *labels[(int)*code++];
less: value--; goto *labels[(int)*code++];
twice: value *= 2; goto *labels[(int)*code++];
stop: return value;
}

#ifdef __x86_64__
/* A conditional tail call; a return with the prefix that old processors wanted; a return that pops its argument. */
__asm__(
    ".text\n"
    ".type t_branch,@function\nt_branch: .cfi_startproc\n"
    "  mov entered@GOTPCREL(%rip),%rax\n  incq 8*11(%rax)\n"
    "  test $1,%dil\n  jz t_padded\n  mov $1,%eax\n  ret\n"
    "  .cfi_endproc\n.size t_branch,.-t_branch\n"
    ".type t_padded,@function\nt_padded: .cfi_startproc\n"
    "  mov entered@GOTPCREL(%rip),%rax\n  incq 8*12(%rax)\n"
    "  mov $2,%eax\n  repz ret\n"
    "  .cfi_endproc\n.size t_padded,.-t_padded\n"
    ".type t_popper,@function\nt_popper: .cfi_startproc\n"
    "  mov entered@GOTPCREL(%rip),%rax\n  incq 8*13(%rax)\n"
    "  mov 8(%rsp),%rax\n  ret $8\n"
    "  .cfi_endproc\n.size t_popper,.-t_popper\n"
    ".globl call_popper\n.type call_popper,@function\ncall_popper: .cfi_startproc\n"
    "  push %rdi\n  .cfi_adjust_cfa_offset 8\n  call t_popper\n  .cfi_adjust_cfa_offset -8\n  ret\n"
    "  .cfi_endproc\n.size call_popper,.-call_popper\n");
long t_branch(long n);
long call_popper(long n);
#else
static long t_branch(long n) { return n; }
static long call_popper(long n) { return n; }
#endif

APART void t_exit(void) {
    entered[EXIT]++;
    unreturned[EXIT]++;
    for (int i = 0; i < COUNT; i++) printf("%s %ld %ld\n", names[i], entered[i], entered[i] - unreturned[i]);
    exit((int)(sink & 0));
}

int main(void) {
    long sum = t_recursive(7);
    for (volatile long i = 0; i < 23; i++) {
        sum += t_leaf(i) + t_leaf_too(i) + t_tail(i) + t_switch(i % 11) + t_cold(i);
        sum += t_pointer(i % 3 ? t_leaf : t_tail, i) + t_table(i) + t_threaded("\1\2\3\1\3\0");
        sum += t_branch(i) + call_popper(i) + t_library() % 2;
        if (!setjmp(back)) t_jump(i);
    }
    sink += sum;
    t_exit();
}
