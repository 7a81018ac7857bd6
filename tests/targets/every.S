/* build: -nostdlib -static -no-pie
 *
 * One of each instruction class that an x86-64 compiler or assembler emits, to be probed one by one and all at once.
 *
 * The instructions under test lie in the sections .probed, .probed_bmi, .probed_avx and .probed_avx512 (the last three
 * run only where the processor has them). Everything else, in .text, is the frame: it takes snapshots of all registers
 * and flags wherever the code under test says `call snap`, and at the end writes as hex to standard output every
 * snapshot, the data, the stack, the x87 and vector registers. It exits with 42.
 *
 * The dump is the same in every run: no libc, fixed addresses, the stack is our own. Whatever the kernel or the
 * processor may change between runs (the process id, the time stamp, the processor's name) is cleared where it was
 * read; that the instruction ran is seen by the snapshots around it. Addresses that instructions produce (what call
 * pushes, what lea and syscall leave in registers) are in the dump: they are fixed, and a displaced instruction must
 * produce the same.
 *
 * Left out: what is refused (int3, int n, into, far branches, fwait), and what stores its own x87 instruction pointer
 * (fnstenv, fnsave, fxsave). */

#define SNAP call snap

/* ------------------------------------------------------------------ data */
    .bss
    .balign 4096
stack_low:
    .skip 16384
stack_top:
    .skip 256
snapshots:
    .skip 65536
snapshots_end:
text_out:
    .skip 4096
vectors:
    .skip 64 * 32 + 64
last_rsp:
    .skip 8

    .data
    .balign 64
data_start:
v64:    .quad 0x1122334455667788, 0x99aabbccddeeff00
v64b:   .quad 0x0123456789abcdef, 0xfedcba9876543210
counter:.quad 5
    .balign 64
bytes:  .byte 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
        .byte 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32
    .balign 64
floats: .float 1.5, -2.25, 3.75, 4.5, 5.5, -6.5, 7.25, 8.0
        .float 9.5, -10.25, 11.75, 12.5, 13.5, -14.5, 15.25, 16.0
doubles:.double 1.25, -2.5, 3.125, 1e10, -7.5, 6.25, 0.5, 2.0
mask:   .long 0x80000000, 0, 0x80000000, 0, 0x80000000, 0, 0x80000000, 0
ints:   .long 1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, -12, 13, -14, 15, -16
    .balign 64
to:     .skip 256
from:   .ascii "The displaced instruction computes what the original computes.  "
        .ascii "Nothing that the program can see is different: not a flag, not a"
ptr_f:  .quad target_f
ptr_j:  .quad jump_back_1, jump_back_2
ptr_m:  .quad target_f, target_g
control:.word 0x27f
control2:.word 0
mxcsr:  .long 0x1f80
mxcsr2: .long 0
integer:.quad -1234567
result: .skip 64
tls:    .quad 0x7157000000000001, 0x7157000000000002, 0x7157000000000003
data_end:

/* ------------------------------------------------- functions that are called (under test as well) */
    .section .probed, "ax", @progbits
    .globl probed_start
probed_start:

target_f:
    add $0x11, %r8
    ret
target_g:
    endbr64
    add $0x1000, %r8
    repz ret
target_args:                            /* takes 16 bytes of arguments off the stack */
    mov 8(%rsp), %r9
    add 16(%rsp), %r9
    ret $16
target_bnd:
    inc %r8
    bnd ret
target_frame:
    enter $48, $0
    movq $77, -8(%rbp)
    mov -8(%rbp), %r9
    leave
    ret
target_nested:
    enter $16, $1
    mov %rbp, %r10
    leave
    ret
target_deep:
    push %rbp
    mov %rsp, %rbp
    sub $32, %rsp
    call target_f
    mov %rbp, %rsp
    pop %rbp
    ret

/* ------------------------------------------------------------------ the code under test */
probed_main:
    endbr64
    xor %eax, %eax
    mov $0x0101010101010101, %rbx
    mov $0x7fffffff, %ecx
    mov $-5, %rdx
    movabs $0x1234567812345678, %rsi
    lea v64(%rip), %rdi
    mov $0, %ebp
    mov $8, %r8
    mov $9, %r9
    mov $10, %r10
    mov $11, %r11
    mov $12, %r12
    mov $13, %r13
    mov $14, %r14
    mov $15, %r15
    SNAP

    /* nops of every length, and what processors read as such */
    nop
    .byte 0x66, 0x90
    .byte 0x0f, 0x1f, 0x00
    .byte 0x0f, 0x1f, 0x40, 0x00
    .byte 0x0f, 0x1f, 0x44, 0x00, 0x00
    .byte 0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00
    .byte 0x0f, 0x1f, 0x80, 0, 0, 0, 0
    .byte 0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0
    .byte 0x66, 0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0
    .byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0
    .byte 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0
    .byte 0x41, 0x90 | 0                /* xchg %r8, %rax: not a nop, despite its byte */
    xchg %rax, %r8
    pause
    xchg %ax, %ax
    prefetcht0 v64(%rip)
    prefetchw v64(%rip)
    lfence
    mfence
    sfence
    clflush v64(%rip)
    nopw v64(%rip)
    SNAP

    /* jumps: short and near, forward and backward */
    jmp 1f
    inc %r8
1:  jmp 2f
2:  {disp32} jmp 3f
    inc %r8
3:  jmp 5f
4:  add $2, %r8
    {disp32} jmp 6f
5:  add $4, %r8
    {disp32} jmp 4b
6:  jmp 8f
7:  add $8, %r8
    jmp 9f
8:  jmp 7b
9:  bnd jmp 1f
    inc %r8
1:  SNAP

    /* every condition, taken and not, short and near; each leaves a bit in r8 */
    xor %r8d, %r8d
.macro condition cc, yes, no
    pushq $(0x202 | \yes)
    popfq
    j\cc 1f
    btcq $0, %r8
1:  rolq $1, %r8
    pushq $(0x202 | \no)
    popfq
    j\cc 1f
    btcq $0, %r8
1:  rolq $1, %r8
    pushq $(0x202 | \yes)
    popfq
    {disp32} j\cc 1f
    btcq $0, %r8
1:  rolq $1, %r8
    pushq $(0x202 | \no)
    popfq
    {disp32} j\cc 1f
    btcq $0, %r8
1:  rolq $1, %r8
.endm
    condition o, 0x800, 0
    condition no, 0, 0x800
    condition b, 1, 0
    condition ae, 0, 1
    condition e, 0x40, 0
    condition ne, 0, 0x40
    condition be, 0x40, 0
    condition a, 0, 0x41
    condition s, 0x80, 0
    condition ns, 0, 0x80
    condition p, 4, 0
    condition np, 0, 4
    condition l, 0x80, 0x880
    condition ge, 0x880, 0x800
    condition le, 0x40, 0
    condition g, 0, 0x800
    SNAP
    mov $5, %ecx
1:  add %rcx, %r9                       /* a conditional jump backward */
    dec %ecx
    jnz 1b
    SNAP

    /* loops and jumps on rcx */
    mov $4, %rcx
1:  inc %r9
    loop 1b
    mov $4, %rcx
1:  inc %r9
    cmp $2, %rcx
    loopne 1b
    mov $4, %rcx
1:  inc %r9
    cmp %rcx, %rcx
    loope 1b
    movabs $0x500000003, %rcx
1:  inc %r9
    addr32 loop 1b
    SNAP
    xor %ecx, %ecx
    jrcxz 1f
    inc %r10
1:  inc %rcx
    jrcxz 1f
    inc %r10
1:  movabs $0x100000000, %rcx
    jecxz 1f
    inc %r10
1:  jrcxz 1f
    inc %r10
1:  SNAP

    /* calls and returns */
    call target_f
    lea target_f(%rip), %rax
    call *%rax
    lea target_g(%rip), %r11
    call *%r11
    call *ptr_f(%rip)
    call *ptr_f
    mov $ptr_m, %rbx
    call *(%rbx)
    call *8(%rbx)
    mov $1, %ecx
    call *(%rbx,%rcx,8)
    call *ptr_m(,%rcx,8)
    mov $ptr_m, %r13d
    call *(%r13)
    push ptr_f(%rip)
    call *(%rsp)                        /* the address is read before the return address is pushed */
    add $8, %rsp
    push $3
    push $4
    call target_args
    call target_bnd
    notrack call *%rax
    call target_frame
    call target_nested
    call target_deep
    call 1f                             /* what it pushes is seen */
1:  pop %rax
    call 1f
1:  addq $(2f - 1b), (%rsp)             /* and returns to where the program says */
    ret
2:  SNAP
    lea 1f(%rip), %rax
    jmp *%rax
    inc %r8
1:  lea 1f(%rip), %r15
    notrack jmp *%r15
    inc %r8
1:  jmp *ptr_j(%rip)
    inc %r8
jump_back_1:
    mov $1, %eax
    jmp *ptr_j(,%rax,8)
    inc %r8
jump_back_2:
    push $jump_target_3
    jmp *(%rsp)
    inc %r8
jump_target_3:
    pop %rax
    push $jump_target_4
    ret
    inc %r8
jump_target_4:
    SNAP

    /* the stack */
    push %rax
    push %rbx
    push %rcx
    push %rdx
    push %rsi
    push %rdi
    push %rbp
    push %rsp
    push %r8
    push %r9
    push %r10
    push %r11
    push %r12
    push %r13
    push %r14
    push %r15
    SNAP
    pop %rax
    pop %rbx
    pop %rcx
    pop %rdx
    pop %rsi
    pop %rdi
    pop %rbp
    pop %r8
    pop %r9
    pop %r10
    pop %r11
    pop %r12
    pop %r13
    pop %r14
    pop %r15
    pop %rax
    SNAP
    push %rsp
    pop %rsp
    mov %rsp, %rbx
    pushq $-1
    push %rbx
    pop %rsp                            /* takes the value, not value + 8 */
    SNAP
    pushw %ax
    pushw $0x1234
    popw %cx
    popw %dx
    push $0x7f
    push $-2
    push $0x12345678
    push (%rsp)
    push 8(%rsp)
    push v64(%rip)
    push v64
    SNAP
    popq 8(%rsp)                        /* the address is computed after rsp has grown */
    popq (%rsp)
    popq result(%rip)
    popq result + 8
    pop %rax
    pop %rcx
    pop %rdx
    push $0x77
    .byte 0x8f, 0xc3                    /* pop %rbx, the long form */
    .byte 0x50 + 3                      /* push %rbx */
    .byte 0xff, 0xf3                    /* push %rbx, the long form */
    .byte 0xff, 0xf4                    /* push %rsp, the long form */
    pop %r12
    pop %r13
    pop %r14
    SNAP
    pushq $0x246
    popfq
    pushfq
    popq result + 16(%rip)
    pushq $0xad7                        /* every status flag */
    popfq
    pushfq
    popq result + 24(%rip)
    cld
    pushfw
    popfw
    SNAP
    pushq %gs
    popq %gs
    enter $32, $0
    enter $16, $1
    leave
    leave
    SNAP
    push %r12
    pop %r12
    mov %rsp, %r12
    xchg %rsp, %r12
    mov %r12, %rsp
    sub $64, %rsp
    lea 32(%rsp), %rsp
    add $32, %rsp
    mov %rsp, %rbp
    and $-64, %rsp
    mov %rbp, %rsp
    inc %rsp
    dec %rsp
    mov %esp, %eax
    cmp %rsp, %rbp
    test %rsp, %rsp
    cmove %rsp, %rax
    cmovne %rsp, %rax
    movq $0x5a5a, -8(%rsp)              /* the red zone */
    movq $0xa5a5, -128(%rsp)
    nop
    lea -8(%rsp), %rbx
    jmp 1f
1:  mov -8(%rsp), %rax
    add -128(%rsp), %rax
    add v64(%rip), %rax
    mov -128(%rsp), %rcx
    SNAP

    /* moves */
    mov v64(%rip), %rax
    mov v64(%rip), %ebx
    mov v64(%rip), %cx
    mov v64(%rip), %dl
    mov v64(%rip), %dh
    mov %rax, result(%rip)
    mov %r15d, result + 8(%rip)
    mov %bx, result + 12(%rip)
    mov %dh, result + 14(%rip)
    movb $0x12, result + 15(%rip)
    movw $0x1234, result + 16(%rip)
    movl $0x12345678, result + 18(%rip)
    movq $0x12345678, result + 24(%rip)
    movabs v64, %rax
    movabs v64, %eax
    movabs v64, %al
    movabs %rax, result + 32
    movabs %ax, result + 40
    movabs $0x1122334455667788, %r14
    mov v64(%eip), %ebx                 /* relative to eip */
    lea v64(%eip), %rdx
    lea v64(%rip), %eax
    lea v64(%rip), %r9
    lea (%rax,%rbx,4), %rsi
    lea -7(,%rcx,8), %rdi
    lea 8(%ebx,%ecx), %r10
    lea 1(%r13), %r13w
    movzbl v64(%rip), %eax
    movzwl v64(%rip), %r8d
    movsbq v64 + 8(%rip), %r11
    movswl v64 + 8(%rip), %r12d
    movslq v64 + 8(%rip), %r13
    movsxd %eax, %r15
    movbe v64(%rip), %rcx
    mov %ds, %esi
    mov %cs, %edi
    bswap %rcx
    bswap %r9d
    lea bytes(%rip), %rbx
    mov $5, %eax
    xlatb
    SNAP

    /* arithmetic, with operands relative to rip, with and without immediates after the displacement */
    mov $7, %eax
    add v64(%rip), %rax
    add %rax, result(%rip)
    addb $1, result(%rip)
    addw $0x101, result + 2(%rip)
    addl $0x12345678, result + 4(%rip)
    addq $-1, result + 8(%rip)
    addq $0x7fffffff, result + 16(%rip)
    adc $3, %rax
    sbb v64(%rip), %rbx
    cmpb $0x88, v64(%rip)
    setne %r8b
    cmpw $0x7788, v64(%rip)
    sete %r9b
    cmpl $0x55667788, v64(%rip)
    setbe result + 40(%rip)
    cmpq $1, counter(%rip)
    setg %r10b
    cmp %rax, v64(%rip)
    setb %r11b
    testl $0xff, v64(%rip)
    setz %r12b
    and $0xff, %eax
    or v64(%rip), %rax
    xor v64b(%rip), %rax
    not %rax
    neg %rbx
    notq result + 24(%rip)
    negl result + 24(%rip)
    inc %ecx
    decq counter(%rip)
    incb counter + 1(%rip)
    SNAP
    mov $1000, %eax
    mul %ecx
    mulq v64(%rip)
    imul %rbx
    imul v64(%rip), %rcx
    imul $1000, v64(%rip), %rsi
    imul $3, v64(%rip), %edi
    imul $-5, %rsi, %rsi
    xor %edx, %edx
    mov $1000003, %eax
    divl counter(%rip)
    xor %edx, %edx
    mov $1000003, %eax
    divq counter(%rip)
    mov $-99, %rax
    cqto
    mov $7, %ecx
    idiv %rcx
    cwtl
    cltq
    cwtd
    cltd
    cbtw
    SNAP
    mov $3, %ecx
    shl %cl, %rax
    shr $3, %rbx
    sar $1, %rdx
    sarq $5, result(%rip)
    rol $7, %rsi
    ror %cl, %rdi
    stc
    rcl $1, %r8
    rcr $3, %r9
    rclq %cl, result(%rip)
    shld $5, %rax, %rbx
    shrd %cl, %rbx, %rax
    shld $9, %rax, result(%rip)
    shrd %cl, %rbx, result + 8(%rip)
    bt $5, %rax
    setc %r10b
    bts $63, %r11
    btr %rcx, %r12
    btc $7, %r13
    btl $3, v64(%rip)
    setc %r14b
    btsq $9, result + 16(%rip)
    btr %rcx, result + 16(%rip)
    bsf %rax, %r15
    bsr v64(%rip), %rsi
    popcnt v64(%rip), %rdi
    crc32q v64(%rip), %rax
    cmc
    lahf
    sahf
    clc
    std
    cld
    SNAP
    cmp $1, %ecx
    cmovg v64(%rip), %rax
    cmovl v64b(%rip), %rbx
    cmovne %rcx, %rdx
    cmovs %rax, %rsi
    SNAP

    /* exchange, and what is locked */
    mov $5, %eax
    mov $6, %ebx
    mov $7, %ecx
    mov $8, %edx
    xchg %rax, %rbx
    xchg %rcx, result(%rip)
    xadd %rax, %rdx
    xadd %rdx, result(%rip)
    lock xaddl %ebx, result + 8(%rip)
    lock incq result + 8(%rip)
    lock decl result + 16(%rip)
    lock addq $0x12345, result + 16(%rip)
    lock btsq $17, result + 24(%rip)
    lock negq result + 24(%rip)
    cmpxchg %rbx, %rcx
    cmpxchg %rbx, result(%rip)
    mov result(%rip), %rax
    lock cmpxchg %rbx, result(%rip)
    mov v64(%rip), %eax
    mov v64 + 4(%rip), %edx
    lock cmpxchg8b v64(%rip)
    mov v64b(%rip), %rax
    mov v64b + 8(%rip), %rdx
    lock cmpxchg16b v64b(%rip)
    cmpxchg16b v64b(%rip)
    SNAP

    /* strings: counts of zero and more, both directions, 32-bit addresses */
    lea from(%rip), %rsi
    lea to(%rip), %rdi
    movsb
    movsw
    movsl
    movsq
    SNAP
    mov $40, %ecx
    rep movsb
    SNAP
    mov $4, %ecx
    rep movsq
    xor %ecx, %ecx
    rep movsb
    SNAP
    mov $0x4142434445464748, %rax
    mov $5, %ecx
    rep stosq
    stosb
    stosw
    stosl
    stosq
    SNAP
    lea from(%rip), %rdi
    mov $0x6c, %al
    mov $100, %ecx
    repne scasb
    SNAP
    mov $0x61, %al
    mov $3, %ecx
    repe scasb
    scasq
    lea from(%rip), %rsi
    lea to(%rip), %rdi
    mov $64, %ecx
    repe cmpsb
    SNAP
    cmpsq
    mov $3, %ecx
    repne cmpsl
    lodsb
    lodsq
    mov $4, %ecx
    rep lodsl
    SNAP
    std
    lea from + 100(%rip), %rsi
    lea to + 200(%rip), %rdi
    mov $16, %ecx
    rep movsb
    stosl
    lodsw
    cld
    SNAP
    mov $from, %esi
    mov $to, %edi
    mov $9, %ecx
    addr32 rep movsb
    addr32 lodsb
    fs movsb                            /* fs is 0 here */
    SNAP

    /* system calls: the kernel leaves the address behind the instruction in rcx, the flags in r11 */
    mov $39, %eax                       /* getpid */
    syscall
    test %eax, %eax
    setg %bl
    xor %eax, %eax
    SNAP
    mov $1, %eax                        /* write */
    mov $1, %edi
    lea probed_text(%rip), %rsi
    mov $7, %edx
    syscall
    SNAP
    mov $158, %eax                      /* arch_prctl ARCH_SET_FS */
    mov $0x1002, %edi
    mov $tls, %esi
    syscall
    mov $9999, %eax                     /* no such call */
    syscall
    SNAP
    mov %fs:0, %rax
    mov $8, %ecx
    mov %fs:8, %rbx
    add %fs:8(%rcx), %rbx
    movq $0x77, %fs:16
    SNAP

    /* what differs from run to run is cleared */
    rdtsc
    xor %eax, %eax
    xor %edx, %edx
    rdtscp
    xor %eax, %eax
    xor %edx, %edx
    xor %ecx, %ecx
    SNAP
    xor %eax, %eax
    cpuid
    and $0, %eax
    and $0, %ebx
    and $0, %ecx
    and $0, %edx
    xgetbv
    SNAP

    /* x87 */
    fninit
    fldcw control(%rip)
    fld1
    fldpi
    fadd %st(1), %st
    flds floats(%rip)
    fldl doubles(%rip)
    fmulp %st, %st(1)
    fildq integer(%rip)
    fistl result(%rip)
    fistpq result + 8(%rip)
    fstpt result + 16(%rip)
    fldt result + 16(%rip)
    fxch %st(1)
    fsqrt
    fsincos
    fcomi %st(1), %st
    fnstsw %ax
    fnstcw control2(%rip)
    fnstsw result + 30(%rip)
    fcmovb %st(1), %st
    fiadds result(%rip)
    fstl result + 32(%rip)
    ffree %st(4)
    SNAP

    /* MMX and SSE */
    movaps floats(%rip), %xmm0
    movups floats + 4(%rip), %xmm1
    addps floats(%rip), %xmm1
    mulss floats + 8(%rip), %xmm0
    movapd doubles(%rip), %xmm2
    divpd doubles + 16(%rip), %xmm2
    sqrtsd doubles + 24(%rip), %xmm3
    ucomisd doubles(%rip), %xmm3
    SNAP
    cvtsi2sdq v64(%rip), %xmm4
    cvtsi2ss %ecx, %xmm5
    cvttsd2si doubles + 8(%rip), %rax
    cvtps2pd floats(%rip), %xmm6
    cvtdq2ps ints(%rip), %xmm7
    movq %xmm4, %rbx
    movd v64(%rip), %xmm8
    movhps v64(%rip), %xmm8
    movlpd v64b(%rip), %xmm9
    shufps $0x1b, floats(%rip), %xmm9
    pshufd $0x4e, ints(%rip), %xmm10
    cmpps $1, floats + 16(%rip), %xmm10
    pinsrw $3, v64(%rip), %xmm11
    pextrw $2, %xmm10, %ecx
    pmovmskb %xmm0, %edx
    movmskps %xmm1, %esi
    movaps %xmm1, to(%rip)
    movntdq %xmm2, to + 16(%rip)
    movnti %rbx, to + 32(%rip)
    lea to + 48(%rip), %rdi
    maskmovdqu %xmm0, %xmm1
    ldmxcsr mxcsr(%rip)
    stmxcsr mxcsr2(%rip)
    SNAP
    pshufb bytes(%rip), %xmm0
    palignr $5, bytes(%rip), %xmm12
    pblendw $0x55, ints(%rip), %xmm12
    blendvps %xmm0, floats(%rip), %xmm13
    roundsd $3, doubles(%rip), %xmm14
    pinsrq $1, v64(%rip), %xmm14
    pextrd $2, %xmm14, result(%rip)
    insertps $0x10, floats + 4(%rip), %xmm15
    ptest bytes(%rip), %xmm0
    setc %r8b
    mov $6, %eax
    mov $7, %edx
    pcmpestri $0, from(%rip), %xmm12
    setz %r9b
    pcmpistrm $0x40, from(%rip), %xmm14
    extractps $1, %xmm9, result + 8(%rip)
    movq v64(%rip), %mm0
    paddb v64b(%rip), %mm0
    pshufw $0x1b, v64(%rip), %mm1
    movq %mm0, result + 16(%rip)
    movd %mm1, %r10d
    emms
    SNAP
    jmp frame_after_base
    .globl probed_end
probed_end:

    .section .rodata
probed_text: .ascii "probed\n"

/* ------------------------------------------------------------------ BMI, ADX */
    .section .probed_bmi, "ax", @progbits
probed_bmi:
    mov $0x1234, %eax
    andn v64(%rip), %rax, %rbx
    bextr %rax, v64(%rip), %rcx
    blsr v64(%rip), %rdx
    blsi v64(%rip), %rsi
    blsmsk v64(%rip), %rdi
    bzhi %rax, v64(%rip), %r8
    pdep v64(%rip), %rbx, %r9
    pext v64(%rip), %rbx, %r10
    rorx $13, v64(%rip), %r11
    sarx %rax, v64(%rip), %r12
    shlx %rax, v64(%rip), %r13
    shrx %rax, v64(%rip), %r14
    mulx v64(%rip), %r15, %rax
    tzcnt v64(%rip), %rbx
    lzcnt v64(%rip), %rcx
    SNAP
    jmp frame_after_bmi

/* ------------------------------------------------------------------ AVX, AVX2 */
    .section .probed_avx, "ax", @progbits
probed_avx:
    vmovups floats(%rip), %ymm0
    vmovaps floats(%rip), %xmm1
    vaddps floats + 32(%rip), %ymm0, %ymm2
    vsubpd doubles(%rip), %ymm2, %ymm3
    vbroadcastss floats(%rip), %ymm4
    vbroadcastf128 doubles(%rip), %ymm5
    vshufps $0x1b, floats(%rip), %ymm4, %ymm6
    vblendvps %ymm0, floats(%rip), %ymm4, %ymm7
    vpblendvb %xmm0, bytes(%rip), %xmm4, %xmm8
    vinsertf128 $1, floats(%rip), %ymm7, %ymm9
    vextractf128 $1, %ymm2, to(%rip)
    vmaskmovps floats(%rip), %ymm0, %ymm10
    vcmpps $14, floats(%rip), %ymm2, %ymm11
    vptest bytes(%rip), %ymm0
    seta %al
    vpermq $0x1b, ints(%rip), %ymm12
    vpermd ints(%rip), %ymm12, %ymm13
    vpshufb bytes(%rip), %ymm12, %ymm14
    vpaddd ints(%rip), %ymm14, %ymm15
    lea floats(%rip), %rbx
    vmovdqa mask(%rip), %ymm1
    vpand ints(%rip), %ymm1, %ymm11
    vpxor %ymm11, %ymm11, %ymm11
    vgatherdps %ymm1, (%rbx,%ymm11,4), %ymm8
    vcvtsi2sdq v64(%rip), %xmm9, %xmm9
    vpinsrd $2, v64(%rip), %xmm9, %xmm10
    vmovntdq %ymm0, to + 64(%rip)
    vlddqu v64(%rip), %ymm6
    vldmxcsr mxcsr(%rip)
    lea 1f(%rip), %rcx
    call *%rcx
    jmp 2f
1:  vmovups %ymm15, to + 128(%rip)
    ret
2:  SNAP
    jmp frame_after_avx

/* ------------------------------------------------------------------ AVX-512 */
    .section .probed_avx512, "ax", @progbits
probed_avx512:
    vmovdqu64 floats(%rip), %zmm16
    vpternlogd $0x96, %zmm16, %zmm16, %zmm17
    mov $0x5a5a, %eax
    kmovw %eax, %k1
    kmovw ints(%rip), %k2
    knotw %k1, %k3
    korw %k1, %k2, %k4
    vaddps floats(%rip), %zmm16, %zmm18{%k1}
    vaddps floats(%rip){1to16}, %zmm16, %zmm19{%k1}{z}
    vpternlogd $0xca, ints(%rip), %zmm16, %zmm20
    vpcmpd $1, ints(%rip), %zmm16, %k5{%k1}
    lea floats - 64(%rip), %rbx
    vpaddd 64(%rbx), %zmm16, %zmm21     /* displacement of one byte, scaled by 64 */
    vpaddd 4(%rbx){1to16}, %zmm16, %zmm22
    vpcompressd %zmm16, to(%rip){%k1}
    vpexpandd from(%rip), %zmm23{%k1}{z}
    vpermd ints(%rip), %zmm16, %zmm24
    vaddpd {rz-sae}, %zmm16, %zmm18, %zmm25
    vextracti32x4 $2, %zmm16, to + 64(%rip)
    vinserti64x4 $1, from(%rip), %zmm16, %zmm26
    kortestw %k1, %k3
    setc %cl
    vmovdqu64 %zmm26, to + 128(%rip)
    vpscatterdd %zmm16, to(,%zmm11,4){%k2}
    vmovaps %xmm16, %xmm31
    SNAP
    jmp frame_after_avx512

/* ------------------------------------------------------------------ the frame, not under test */
    .text
    .globl _start
_start:
    mov $stack_top - 512, %rsp
    mov $snapshots_end, %eax
    mov %rax, cursor
    jmp probed_main

frame_after_base:
    mov $0, %eax                        /* x87: the values, without the instruction pointer */
    fstpt x87
    fstpt x87 + 10
    mov $vectors, %edi
    movups %xmm0, (%rdi)
    movups %xmm1, 16(%rdi)
    movups %xmm2, 32(%rdi)
    movups %xmm3, 48(%rdi)
    movups %xmm4, 64(%rdi)
    movups %xmm5, 80(%rdi)
    movups %xmm6, 96(%rdi)
    movups %xmm7, 112(%rdi)
    movups %xmm8, 128(%rdi)
    movups %xmm9, 144(%rdi)
    movups %xmm10, 160(%rdi)
    movups %xmm11, 176(%rdi)
    movups %xmm12, 192(%rdi)
    movups %xmm13, 208(%rdi)
    movups %xmm14, 224(%rdi)
    movups %xmm15, 240(%rdi)
    mov $256, %esi
    call dump
    mov $7, %eax
    xor %ecx, %ecx
    cpuid
    mov %ebx, features
    mov $1, %eax
    cpuid
    bt $27, %ecx                        /* OSXSAVE */
    mov $0, %eax
    jnc 1f
    xor %ecx, %ecx
    xgetbv
1:  mov %eax, enabled
    mov features, %eax
    and $0x108, %eax                    /* BMI1, BMI2 */
    cmp $0x108, %eax
    je run_bmi
frame_after_bmi:
    testl $0x20, features               /* AVX2, and the kernel keeps its registers */
    jz finish
    mov enabled, %eax
    and $6, %eax
    cmp $6, %eax
    je run_avx
    jmp finish
run_bmi:
    mov $0, %eax
    cmp $0, %eax
    jmp probed_bmi
run_avx:
    xor %eax, %eax
    vzeroall
    jmp probed_avx
frame_after_avx:
    mov $vectors, %edi
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    vmovups %ymm\n, 32 * \n(%rdi)
    .endr
    mov $512, %esi
    call dump
    mov enabled, %eax
    and $0xe6, %eax
    cmp $0xe6, %eax
    jne finish
    mov features, %eax
    and $0xd0030000, %eax               /* AVX512 F, DQ, CD, BW, VL */
    cmp $0xd0030000, %eax
    jne finish
    xor %eax, %eax
    vzeroall
    .irp n, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    vpxord %zmm\n, %zmm\n, %zmm\n
    .endr
    mov $4 , %ecx
    vmovdqu64 ints(%rip), %zmm11
    vpsrld $28, %zmm11, %zmm11
    kxorq %k1, %k1, %k1
    kxorq %k2, %k2, %k2
    kxorq %k3, %k3, %k3
    kxorq %k4, %k4, %k4
    kxorq %k5, %k5, %k5
    xor %eax, %eax
    jmp probed_avx512
frame_after_avx512:
    mov $vectors, %edi
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    vmovdqu64 %zmm\n, 64 * \n(%rdi)
    .endr
    .irp n, 1, 2, 3, 4, 5
    kmovq %k\n, 64 * 32 + 8 * \n(%rdi)
    .endr
    mov $64 * 32 + 64, %esi
    call dump

finish:
    mov cursor, %edi
    mov $snapshots_end, %esi
    sub %edi, %esi
    call dump
    mov $data_start, %edi
    mov $data_end - data_start, %esi
    call dump
    /* The red zone, and nothing below it: that is anybody's. */
    mov $stack_top - 512 - 128, %edi
    mov $512 + 128, %esi
    call dump
    mov $x87, %edi
    mov $20, %esi
    call dump
    mov $60, %eax
    mov $42, %edi
    syscall

/* Saves all registers and flags at the cursor, changes none. */
snap:
    mov %rsp, last_rsp
    mov cursor, %rsp
    pushfq
    push %r15
    push %r14
    push %r13
    push %r12
    push %r11
    push %r10
    push %r9
    push %r8
    push %rbp
    push %rdi
    push %rsi
    push %rdx
    push %rcx
    push %rbx
    push %rax
    pushq last_rsp
    mov %rsp, cursor
    mov last_rsp, %rsp
    ret

/* Writes rsi bytes at rdi as hex, 17 words of 8 bytes (a snapshot) a line. */
dump:
    push %rbx
    push %r12
    push %r13
    mov %rdi, %r12
    lea (%rdi,%rsi), %r13
next_line:
    cmp %r13, %r12
    jae dumped
    mov $text_out, %edi
    mov $136, %ecx
next_byte:
    cmp %r13, %r12
    jae line_done
    movzbl (%r12), %eax
    mov %eax, %edx
    shr $4, %eax
    and $15, %edx
    mov digits(%rax), %al
    mov %al, (%rdi)
    mov digits(%rdx), %al
    mov %al, 1(%rdi)
    add $2, %rdi
    inc %r12
    dec %ecx
    test $7, %ecx
    jnz 1f
    movb $' ', (%rdi)
    inc %rdi
1:  test %ecx, %ecx
    jnz next_byte
line_done:
    movb $'\n', (%rdi)
    inc %rdi
    mov %rdi, %rbx
    mov $text_out, %esi
write_more:
    mov %rbx, %rdx
    sub %rsi, %rdx
    jz next_line
    push %rsi
    mov $1, %eax
    mov $1, %edi
    syscall
    pop %rsi
    test %rax, %rax
    js dumped
    add %rax, %rsi
    jmp write_more
dumped:
    pop %r13
    pop %r12
    pop %rbx
    ret

    .section .rodata
digits: .ascii "0123456789abcdef"
    .data
cursor: .quad 0
features: .long 0
enabled: .long 0
x87: .skip 24

    .section .note.GNU-stack, "", @progbits
