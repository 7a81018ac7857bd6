/* build: -nostdlib -static -no-pie -Wl,-Ttext=0x401000 -Wl,--build-id=none
 *
 * A program whose addresses no compiler chooses: what messages and records say about it is the same on every machine.
 * It calls place_work with 0 to 4, writes "worked\n" and exits with 9. */
    .text
    .globl _start, place_work, place_middle, place_return, place_trap, place_interrupt
    .type place_work, @function
place_work:                             /* 0x401000 */
    push %rbp
    mov %rsp, %rbp                      /* 0x401001 */
place_middle:
    add place_data(%rip), %rdi          /* 0x401004 */
    pop %rbp
place_return:
    ret
    .size place_work, . - place_work

    .type place_trap, @function
place_trap:
    int3
    ret
    .size place_trap, . - place_trap

    .type place_interrupt, @function
place_interrupt:
    int $0x80
    ret
    .size place_interrupt, . - place_interrupt

    .type place_far, @function
    .globl place_far
place_far:
    ljmp *(%rax)
    .size place_far, . - place_far

    .type _start, @function
_start:
    xor %ebx, %ebx
1:  mov %rbx, %rdi
    call place_work
    inc %ebx
    cmp $5, %ebx
    jne 1b
    mov $1, %eax
    mov $1, %edi
    lea text(%rip), %rsi
    mov $7, %edx
    syscall
    mov $60, %eax
    mov $9, %edi
    syscall
    .size _start, . - _start

    .data
    .globl place_data
    .type place_data, @object
place_data: .quad 3
    .size place_data, 8
text: .ascii "worked\n"
    .section .note.GNU-stack, "", @progbits
