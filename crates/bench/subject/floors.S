/* The measured functions, and the floors: the same function with a jump written into it by hand, to the least that a
 * trampoline can be. What a tracer costs beyond its floor is what it could still save.
 *
 * `work` begins with push %rbp, as functions with a frame pointer do: one byte, shorter than a jump. `work_long` begins
 * with an instruction of five bytes, which a jump replaces whole. */

        .text

        .macro BODY                     /* the rest of `work`, after the 8 bytes that the floors displace */
        mov     -8(%rbp), %rax
        imul    $3, %rax, %rax
        add     bias(%rip), %rax
        add     %rsi, %rax
        pop     %rbp
        ret
        .endm

        .macro DISPLACED
        push    %rbp
        mov     %rsp, %rbp
        mov     %rdi, -8(%rbp)
        .endm

        .macro FUNCTION name
        .p2align 5
        .globl  \name
        .type   \name, @function
\name:
        .endm

        .macro FLOOR name, trampoline   /* `work` as a tracer would leave it */
        FUNCTION \name
        jmp     \trampoline
        .byte   0x90, 0x90, 0x90
back_\trampoline:
        BODY
        .size   \name, . - \name
        .endm

#ifndef LTTNG
        FUNCTION work
        DISPLACED
        BODY
        .size   work, . - work
#endif

        FUNCTION work_long
        mov     %rdi, -8(%rsp)
        imul    $3, %rdi, %rax
        add     bias(%rip), %rax
        add     %rsi, %rax
        ret
        .size   work_long, . - work_long

        FUNCTION text                   /* of a string: its first byte and a number */
        push    %rbp
        mov     %rsp, %rbp
        movzbl  (%rdi), %eax
        add     %rsi, %rax
        pop     %rbp
        ret
        .size   text, . - text

        FLOOR   floor_none, none
        FLOOR   floor_plain, plain
        FLOOR   floor_lock, lock
        FLOOR   floor_rseq, rseq
        FLOOR   floor_log, log

        .p2align 6
none:   DISPLACED
        jmp     back_none

        .p2align 6
plain:  incq    floor_shared(%rip)      /* flags are dead at the entry of a function */
        DISPLACED
        jmp     back_plain

        .p2align 6
lock:   lock incq floor_shared(%rip)
        DISPLACED
        jmp     back_lock

        /* One word per processor, incremented in a restartable sequence; where that is interrupted, one for all. */
        .p2align 6
rseq:   lea     -128(%rsp), %rsp
        push    %rax
        push    %rcx
        push    %rdx
        mov     floor_rseq_offset(%rip), %rcx
        lea     floor_counts(%rip), %rdx
        lea     rseq_section(%rip), %rax
        mov     %rax, %fs:8(%rcx)
rseq_start:
        mov     %fs:4(%rcx), %eax
        shl     $6, %eax
        incq    (%rdx,%rax)
rseq_end:
        movq    $0, %fs:8(%rcx)
rseq_out:
        pop     %rdx
        pop     %rcx
        pop     %rax
        lea     128(%rsp), %rsp
        DISPLACED
        jmp     back_rseq
        .long   0x53053053              /* what the kernel wants to see before an abort address */
rseq_abort:
        lock incq floor_spill(%rip)
        jmp     rseq_out

        .section .data.rel.ro, "aw"
        .p2align 5
rseq_section:
        .long   0, 0
        .quad   rseq_start, rseq_end - rseq_start, rseq_abort
        .text

        /* A record of 56 bytes: time, processor, process, thread, major, minor, two arguments. Into the thread's ring,
         * which nobody reads: without a reader, without a check for room. */
        .p2align 6
log:    lea     -128(%rsp), %rsp
        push    %rax
        push    %rcx
        push    %rdx
        mov     %fs:floor_cursor@tpoff, %rcx
        lea     64(%rcx), %eax
        and     $0x3ffff, %eax
        mov     %rax, %fs:floor_cursor@tpoff
        add     %fs:floor_ring@tpoff, %rcx
        rdtsc
        shl     $32, %rdx
        or      %rdx, %rax
        mov     %rax, 8(%rcx)
        rdpid   %rax
        and     $0xfff, %eax
        mov     %eax, 16(%rcx)
        mov     floor_process(%rip), %eax
        mov     %eax, 20(%rcx)
        mov     %fs:floor_thread@tpoff, %eax
        mov     %eax, 24(%rcx)
        movl    $7, 28(%rcx)
        movl    $5, 32(%rcx)
        mov     %rdi, 40(%rcx)
        mov     %rsi, 48(%rcx)
        movl    $1, (%rcx)
        incq    %fs:floor_logged@tpoff
        pop     %rdx
        pop     %rcx
        pop     %rax
        lea     128(%rsp), %rsp
        DISPLACED
        jmp     back_log

        .section .note.GNU-stack, "", @progbits
