/* build: -O1 -no-pie
 *
 * Instructions that overlap: code jumps past the `lock` prefix of an increment. Each function with one is followed by one of instructions
 * that are shorter than a jump, of which some get theirs only if a neighbour is moved. Prints what all of them have computed, and the count. */
#include <stdio.h>

extern long (*functions[])(long);
long counted;

__asm__(".data\n"
        ".balign 8\n"
        "functions:\n"
        ".text\n"
        ".macro pair\n"
        ".balign 16\n"
        ".type prefixed\\@, @function\n"
        "prefixed\\@: .cfi_startproc\n"
        "  mov %rdi, %rax\n"
        "  test $1, %dil\n"
        "  jz 1f + 1\n"
        "1: lock incq counted(%rip)\n"
        "  ret\n"
        ".cfi_endproc\n"
        ".size prefixed\\@, . - prefixed\\@\n"
        ".type short\\@, @function\n"
        "short\\@: .cfi_startproc\n"
        "  mov %rdi, %rax\n"
        "  xor %edx, %edx\n"
        "  not %eax\n"
        "  .rept \\@ & 7\n"
        "  neg %eax\n"
        "  .endr\n"
        "  ret\n"
        ".cfi_endproc\n"
        ".size short\\@, . - short\\@\n"
        ".pushsection .data\n"
        "  .quad prefixed\\@, short\\@\n"
        ".popsection\n"
        ".endm\n"
        ".rept 64\n"
        "pair\n"
        ".endr\n"
        ".pushsection .data\n"
        "  .quad 0\n"
        ".popsection\n");

int main(void)
{
    unsigned long all = 0;
    for (long round = 0; round < 50; round++)
        for (int at = 0; functions[at]; at++)
            all = all * 31 + functions[at](round);
    printf("%lx %ld\n", all, counted);
    return 0;
}
