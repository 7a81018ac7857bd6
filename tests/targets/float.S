/* build: -nostdlib -static -no-pie -Wl,-Ttext=0x401000 -Wl,--build-id=none
 *
 * Known values in the registers of the FPU and of SSE, at float_hook: st0 is 1.0, st1 is 0.0, xmm0 and xmm9 hold numbers,
 * mxcsr rounds down. The return of float_hook is at 0x401000. Exits with 0 if nothing of it has changed behind the
 * hook. */
    .text
    .globl _start, float_hook
    .type float_hook, @function
float_hook:                             /* 0x401000 */
    ret
    .size float_hook, . - float_hook

    .type _start, @function
_start:
    fninit
    fldz
    fld1
    ldmxcsr rounding(%rip)
    movdqa low(%rip), %xmm0
    movdqa high(%rip), %xmm9
    call float_hook
    pcmpeqb low(%rip), %xmm0
    pcmpeqb high(%rip), %xmm9
    pand %xmm9, %xmm0
    pmovmskb %xmm0, %edi
    xor $0xffff, %edi
    sub $4, %rsp
    stmxcsr (%rsp)
    mov (%rsp), %eax
    xor rounding(%rip), %eax
    or %eax, %edi
    fcomip %st(1), %st                  /* 1.0 is above 0.0 */
    mov $1, %eax
    cmovbe %eax, %edi
    mov $60, %eax
    syscall
    .size _start, . - _start

    .balign 16
low:
    .quad 0x1122334455667788, 0x99aabbccddeeff00
high:
    .quad 0x0123456789abcdef, 0xfedcba9876543210
rounding:
    .long 0x3f80
