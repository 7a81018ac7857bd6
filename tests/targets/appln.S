/* build: -m32 -nostdlib -static
 *
 * The application of the manual's examples, `appln`: a program of IA32 whose `main` begins with 0x55, as the examples
 * expect. At that instruction eax is 0x11223344, ebx 0x55667788, and ecx the address of a string of 11 characters. It
 * ends with status 0. */
        .globl  _start, main
        .type   main, @function
        .text
_start:
        mov     $0x11223344, %eax
        mov     $0x55667788, %ebx
        mov     $string, %ecx
        call    main
        mov     $1, %eax                # exit
        xor     %ebx, %ebx
        int     $0x80

main:
        push    %ebp
        mov     %esp, %ebp
        pop     %ebp
        ret
        .size   main, .-main

        .section .rodata
string:
        .asciz  "hello world"
        .ascii  "not logged"

        .section .note.GNU-stack, "", @progbits
