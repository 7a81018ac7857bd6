/* build: -O1 -pie -Wl,-z,notext
 *
 * Code into which the dynamic linker writes addresses when it relocates the program: text relocations. Prints what the function has
 * computed, ten times. */
#include <stdio.h>

long relocated(long);
long data = 5;

#ifdef __i386__
__asm__(".text\n"
        ".globl relocated\n"
        ".type relocated, @function\n"
        "relocated: mov 4(%esp), %ecx\n"
        "  inc %ecx\n"
        "  mov data, %eax\n"
        "  add %ecx, %eax\n"
        "  ret\n"
        ".size relocated, . - relocated\n");
#else
__asm__(".text\n"
        ".globl relocated\n"
        ".type relocated, @function\n"
        "relocated: mov %rdi, %rcx\n"
        "  inc %ecx\n"
        "  movabs $data, %rax\n"
        "  mov (%rax), %rax\n"
        "  add %rcx, %rax\n"
        "  ret\n"
        ".size relocated, . - relocated\n");
#endif

int main(void)
{
    unsigned long all = 0;
    for (long round = 0; round < 10; round++)
        all = all * 3 + relocated(round);
    printf("%lx\n", all);
    return 0;
}
