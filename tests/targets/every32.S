/* build: -m32 -nostdlib -static -no-pie
 *
 * One of each instruction class of 32-bit code, to be probed one by one and all at once; what every.S is for 64-bit code.
 *
 * The instructions under test lie in the section .probed. Everything else, in .text, is the frame: it takes snapshots of all
 * registers and flags wherever the code under test says `call snap`, and at the end writes as hex to standard output
 * every snapshot, the data, the stack, the x87 and vector registers. It exits with 42.
 *
 * The dump is the same in every run: no libc, fixed addresses, the stack is our own. gs is given a base by the frame, as a
 * C library does. Left out: what is refused (int n, into, far branches, pop ss), and what stores its own x87
 * instruction pointer. */

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
    .skip 16 * 8
last_esp:
    .skip 4

    .data
    .balign 64
data_start:
v32:    .long 0x55667788, 0x11223344, 0xddeeff00, 0x99aabbcc
v32b:   .long 0x89abcdef, 0x01234567, 0x76543210, 0xfedcba98
counter:.long 5, 0
bounds: .long -10, 10
far_ptr:.long 0x12345678
        .word 0x2b
bytes:  .byte 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
    .balign 64
floats: .float 1.5, -2.25, 3.75, 4.5, 5.5, -6.5, 7.25, 8.0
doubles:.double 1.25, -2.5, 3.125, 1e10
ints:   .long 1, -2, 3, -4, 5, -6, 7, -8
to:     .skip 256
from:   .ascii "The displaced instruction computes what the original computes.  "
        .ascii "Nothing that the program can see is different: not a flag, not a"
ptr_f:  .long target_f
ptr_j:  .long jump_back_1, jump_back_2
ptr_m:  .long target_f, target_g
control:.word 0x27f
control2:.word 0
mxcsr:  .long 0x1f80
mxcsr2: .long 0
integer:.quad -1234567
result: .skip 64
        .long 0x7157000a                /* below the thread's base, as variables of a thread are */
tls:    .long 0x71570001, 0x71570002, 0x71570003, 0x71570004, target_f, 0x71570006
data_end:

/* ------------------------------------------------- functions that are called (under test as well) */
    .section .probed, "ax", @progbits
    .globl probed_start
probed_start:

target_f:
    add $0x11, %ebp
    ret
target_g:
    endbr32
    add $0x1000, %ebp
    repz ret
target_h:
    add $0x11, %edi
    ret
target_args:                            /* takes 8 bytes of arguments off the stack */
    mov 4(%esp), %eax
    add 8(%esp), %eax
    ret $8
target_bnd:
    inc %ebp
    bnd ret
target_frame:
    enter $24, $0
    movl $77, -4(%ebp)
    mov -4(%ebp), %eax
    leave
    ret
target_nested:
    enter $16, $1
    mov %ebp, %edx
    leave
    ret
target_deep:
    push %ebp
    mov %esp, %ebp
    sub $32, %esp
    call target_h
    mov %ebp, %esp
    pop %ebp
    ret
target_place:                           /* as position-independent code finds its own address */
    mov (%esp), %ebx
    ret

/* ------------------------------------------------------------------ the code under test */
probed_main:
    endbr32
    xor %eax, %eax
    mov $0x01010101, %ebx
    mov $0x7fffffff, %ecx
    mov $-5, %edx
    mov $0x12345678, %esi
    lea v32, %edi
    mov $0, %ebp
    SNAP

    /* nops of every length, and what processors read as such */
    nop
    .byte 0x66, 0x90
    .byte 0x0f, 0x1f, 0x00
    .byte 0x0f, 0x1f, 0x40, 0x00
    .byte 0x0f, 0x1f, 0x44, 0x00, 0x00
    .byte 0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00
    .byte 0x0f, 0x1f, 0x80, 0, 0, 0, 0
    .byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0
    .byte 0x8d, 0x74, 0x26, 0            /* lea 0(%esi,%eiz), %esi */
    .byte 0x8d, 0xb4, 0x26, 0, 0, 0, 0
    .byte 0x8d, 0x76, 0
    xchg %eax, %ebp
    xchg %eax, %ebp
    pause
    xchg %ax, %ax
    prefetcht0 v32
    lfence
    mfence
    sfence
    nopw v32
    SNAP

    /* jumps: short and near, forward and backward */
    jmp 1f
    inc %ebp
1:  jmp 2f
2:  {disp32} jmp 3f
    inc %ebp
3:  jmp 5f
4:  add $2, %ebp
    {disp32} jmp 6f
5:  add $4, %ebp
    {disp32} jmp 4b
6:  jmp 8f
7:  add $8, %ebp
    jmp 9f
8:  jmp 7b
9:  bnd jmp 1f
    inc %ebp
1:  SNAP

    /* every condition, taken and not, short and near; each leaves a bit in ebp */
    xor %ebp, %ebp
.macro condition cc, yes, no
    push $(0x202 | \yes)
    popf
    j\cc 1f
    btcl $0, %ebp
1:  roll $1, %ebp
    push $(0x202 | \no)
    popf
    j\cc 1f
    btcl $0, %ebp
1:  roll $1, %ebp
    push $(0x202 | \yes)
    popf
    {disp32} j\cc 1f
    btcl $0, %ebp
1:  roll $1, %ebp
    push $(0x202 | \no)
    popf
    {disp32} j\cc 1f
    btcl $0, %ebp
1:  roll $1, %ebp
.endm
    condition o, 0x800, 0
    condition no, 0, 0x800
    condition b, 1, 0
    condition ae, 0, 1
    condition e, 0x40, 0
    condition ne, 0, 0x40
    condition be, 0x40, 0
    condition a, 0, 0x41
    SNAP
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
1:  add %ecx, %edx                      /* a conditional jump backward */
    dec %ecx
    jnz 1b
    SNAP

    /* loops and jumps on ecx and cx */
    mov $4, %ecx
1:  inc %edx
    loop 1b
    mov $4, %ecx
1:  inc %edx
    cmp $2, %ecx
    loopne 1b
    mov $4, %ecx
1:  inc %edx
    cmp %ecx, %ecx
    loope 1b
    mov $0x50003, %ecx
1:  inc %edx
    addr16 loop 1b
    SNAP
    xor %ecx, %ecx
    jecxz 1f
    inc %ebp
1:  inc %ecx
    jecxz 1f
    inc %ebp
1:  mov $0x10000, %ecx
    jcxz 1f
    inc %ebp
1:  jecxz 1f
    inc %ebp
1:  SNAP

    /* calls and returns */
    call target_f
    lea target_f, %eax
    call *%eax
    lea target_g, %esi
    call *%esi
    call *ptr_f
    mov $ptr_m, %ebx
    call *(%ebx)
    call *4(%ebx)
    mov $1, %ecx
    call *(%ebx,%ecx,4)
    call *ptr_m(,%ecx,4)
    call *%gs:0x10                      /* as a C library calls the vdso */
    push ptr_f
    call *(%esp)                        /* the address is read before the return address is pushed */
    add $4, %esp
    push $3
    push $4
    call target_args
    call target_bnd
    lea target_f, %eax
    notrack call *%eax
    call target_frame
    call target_nested
    call target_deep
    call target_place
    add $(1f - . ), %ebx
1:  SNAP
    call 1f                             /* what it pushes is seen */
1:  pop %eax
    call 1f
1:  addl $(2f - 1b), (%esp)             /* and returns to where the program says */
    ret
2:  SNAP
    lea 1f, %eax
    jmp *%eax
    inc %ebp
1:  lea 1f, %edi
    notrack jmp *%edi
    inc %ebp
1:  jmp *ptr_j
    inc %ebp
jump_back_1:
    mov $1, %eax
    jmp *ptr_j(,%eax,4)
    inc %ebp
jump_back_2:
    push $jump_target_3
    jmp *(%esp)
    inc %ebp
jump_target_3:
    pop %eax
    push $jump_target_4
    ret
    inc %ebp
jump_target_4:
    SNAP

    /* the stack */
    push %eax
    push %ebx
    push %ecx
    push %edx
    push %esi
    push %edi
    push %ebp
    push %esp
    SNAP
    pop %eax
    pop %ebx
    pop %ecx
    pop %edx
    pop %esi
    pop %edi
    pop %ebp
    pop %eax
    SNAP
    pusha
    mov $7, %eax
    popa
    pushaw
    popaw
    SNAP
    push %esp
    pop %esp
    mov %esp, %ebx
    push $-1
    push %ebx
    pop %esp                            /* takes the value, not value + 4 */
    SNAP
    pushw %ax
    pushw $0x1234
    popw %cx
    popw %dx
    push $0x7f
    push $-2
    push $0x12345678
    push (%esp)
    push 8(%esp)
    push v32
    SNAP
    popl 8(%esp)                        /* the address is computed after esp has grown */
    popl (%esp)
    popl result
    pop %eax
    pop %ecx
    pop %edx
    push $0x77
    .byte 0x8f, 0xc3                    /* pop %ebx, the long form */
    .byte 0xff, 0xf3                    /* push %ebx, the long form */
    .byte 0xff, 0xf4                    /* push %esp, the long form */
    pop %esi
    pop %edi
    SNAP
    push $0x246
    popf
    pushf
    popl result + 16
    push $0xad7                         /* every status flag */
    popf
    pushf
    popl result + 24
    cld
    pushfw
    popfw
    SNAP
    push %cs
    pop %eax
    push %ss
    pop %ebx
    push %ds
    pop %ds
    push %es
    pop %es
    push %fs
    pop %fs
    push %gs
    pop %gs
    mov %ds, %ecx
    mov %ecx, %ds
    mov %es, result + 28
    les far_ptr, %edi
    lds far_ptr, %esi
    enter $32, $0
    enter $16, $1
    leave
    leave
    SNAP
    mov %esp, %edi
    xchg %esp, %edi
    mov %edi, %esp
    sub $64, %esp
    lea 32(%esp), %esp
    add $32, %esp
    mov %esp, %ebp
    and $-64, %esp
    mov %ebp, %esp
    inc %esp
    dec %esp
    cmp %esp, %ebp
    cmove %esp, %eax
    movl $0x5a5a, -8(%esp)
    mov -8(%esp), %eax
    SNAP

    /* the thread's own data */
    mov %gs:0, %eax
    mov $4, %ecx
    mov %gs:4, %ebx
    add %gs:4(%ecx), %ebx
    add %gs:0xfffffffc, %ebx
    mov $-4, %edx
    mov %gs:(%edx), %esi
    movl $0x77, %gs:12
    push %gs:8
    popl %gs:20
    SNAP

    /* moves */
    mov v32, %eax
    mov v32, %ebx
    mov v32, %cx
    mov v32, %dl
    mov v32, %dh
    mov %eax, result
    mov %ebx, result + 8
    mov %bx, result + 12
    mov %dh, result + 14
    movb $0x12, result + 15
    movw $0x1234, result + 16
    movl $0x12345678, result + 18
    mov v32, %al
    mov %ax, result + 40
    mov %al, result + 43
    mov %eax, result + 44
    lea (%eax,%ebx,4), %esi
    lea -7(,%ecx,8), %edi
    lea 8(%bx,%si), %edx
    movzbl v32, %eax
    movzwl v32, %ebx
    movsbl v32 + 8, %ecx
    movswl v32 + 8, %edx
    movbe v32, %ecx
    bswap %ecx
    lea bytes, %ebx
    mov $5, %eax
    xlatb
    SNAP

    /* arithmetic */
    mov $7, %eax
    add v32, %eax
    add %eax, result
    addb $1, result
    addw $0x101, result + 2
    addl $0x12345678, result + 4
    addl $-1, result + 8
    .byte 0x82, 0xc3, 0x05              /* add $5, %bl, an opcode that 64-bit code has not */
    adc $3, %eax
    sbb v32, %ebx
    cmpb $0x88, v32
    setne %dl
    cmpl $0x55667788, v32
    setbe result + 40
    cmp %eax, v32
    setb %dh
    testl $0xff, v32
    setz %ch
    and $0xff, %eax
    or v32, %eax
    xor v32b, %eax
    not %eax
    neg %ebx
    notl result + 24
    inc %ecx
    dec %edx
    incb counter + 1
    decb counter + 1
    SNAP
    mov $1000, %eax
    mul %ecx
    mull v32
    imul %ebx
    imul v32, %ecx
    imul $1000, v32, %esi
    imul $3, v32, %edi
    xor %edx, %edx
    mov $1000003, %eax
    divl counter
    mov $-99, %eax
    cltd
    mov $7, %ecx
    idiv %ecx
    cwtl
    cwtd
    cbtw
    SNAP

    /* decimal arithmetic, which 64-bit code has not */
    mov $0x38, %eax
    add $0x45, %al
    daa
    sub $0x27, %al
    das
    mov $0x0305, %eax
    add $9, %al
    aaa
    sub $7, %al
    aas
    mov $63, %al
    aam
    aad
    .byte 0xd4, 7                       /* aam, by 7 */
    stc
    .byte 0xd6                          /* salc */
    mov $0xfffc, %ecx
    mov $3, %edx
    arpl %dx, %cx
    setz %bl
    mov $-3, %eax
    bound %eax, bounds
    SNAP
    mov $3, %ecx
    shl %cl, %eax
    shr $3, %ebx
    sar $1, %edx
    sarl $5, result
    rol $7, %esi
    ror %cl, %edi
    stc
    rcl $1, %eax
    rcr $3, %ebx
    shld $5, %eax, %ebx
    shrd %cl, %ebx, %eax
    bt $5, %eax
    setc %dl
    bts $31, %esi
    btr %ecx, %edi
    btsl $9, result + 16
    bsf %eax, %ebp
    bsr v32, %esi
    popcnt v32, %edi
    crc32l v32, %eax
    cmc
    lahf
    sahf
    clc
    std
    cld
    cmp $1, %ecx
    cmovg v32, %eax
    cmovl v32b, %ebx
    SNAP

    /* exchange, and what is locked */
    mov $5, %eax
    mov $6, %ebx
    mov $7, %ecx
    mov $8, %edx
    xchg %eax, %ebx
    xchg %ecx, result
    xadd %eax, %edx
    lock xaddl %ebx, result + 8
    lock incl result + 8
    lock addl $0x12345, result + 16
    lock btsl $17, result + 24
    cmpxchg %ebx, %ecx
    mov result, %eax
    lock cmpxchg %ebx, result
    mov v32, %eax
    mov v32 + 4, %edx
    lock cmpxchg8b v32
    SNAP

    /* strings: counts of zero and more, both directions */
    lea from, %esi
    lea to, %edi
    movsb
    movsw
    movsl
    mov $40, %ecx
    rep movsb
    mov $4, %ecx
    rep movsl
    xor %ecx, %ecx
    rep movsb
    SNAP
    mov $0x41424344, %eax
    mov $5, %ecx
    rep stosl
    stosb
    stosw
    stosl
    lea from, %edi
    mov $0x6c, %al
    mov $100, %ecx
    repne scasb
    SNAP
    lea from, %esi
    lea to, %edi
    mov $64, %ecx
    repe cmpsb
    cmpsl
    lodsb
    lodsl
    mov $4, %ecx
    rep lodsl
    SNAP
    std
    lea from + 100, %esi
    lea to + 200, %edi
    mov $16, %ecx
    rep movsb
    stosl
    lodsw
    cld
    SNAP

    /* x87 */
    fninit
    fldcw control
    fld1
    fldpi
    fadd %st(1), %st
    flds floats
    fldl doubles
    fmulp %st, %st(1)
    fildq integer
    fistl result
    fistpq result + 8
    fxch %st(1)
    fsqrt
    fsincos
    fcomi %st(1), %st
    fnstsw %ax
    fnstcw control2
    fcmovb %st(1), %st
    fstl result + 32
    ffree %st(4)
    SNAP

    /* MMX and SSE */
    movaps floats, %xmm0
    movups floats + 4, %xmm1
    addps floats, %xmm1
    mulss floats + 8, %xmm0
    movapd doubles, %xmm2
    sqrtsd doubles + 24, %xmm3
    ucomisd doubles, %xmm3
    cvtsi2sdl v32, %xmm4
    cvttsd2si doubles + 8, %eax
    cvtdq2ps ints, %xmm7
    movd %xmm4, %ebx
    shufps $0x1b, floats, %xmm5
    pshufd $0x4e, ints, %xmm6
    pextrw $2, %xmm6, %ecx
    pmovmskb %xmm0, %edx
    movaps %xmm1, to
    movntdq %xmm2, to + 16
    lea to + 48, %edi
    maskmovdqu %xmm0, %xmm1
    ldmxcsr mxcsr
    stmxcsr mxcsr2
    pshufb from, %xmm0
    SNAP
    jmp frame_after
    .globl probed_end
probed_end:

/* ------------------------------------------------------------------ the frame, not under test */
    .text
    .globl _start
_start:
    mov $stack_top - 512, %esp
    movl $snapshots_end, cursor
    mov $243, %eax                      /* set_thread_area: gs begins at tls */
    mov $area, %ebx
    int $0x80
    mov area, %eax
    lea 3(,%eax,8), %eax
    mov %eax, %gs
    jmp probed_main

frame_after:
    fstpt x87
    fstpt x87 + 10
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7
    movups %xmm\n, vectors + 16 * \n
    .endr
    mov $vectors, %edi
    mov $128, %esi
    call dump
    mov cursor, %edi
    mov $snapshots_end, %esi
    sub %edi, %esi
    call dump
    mov $data_start, %edi
    mov $data_end - data_start, %esi
    call dump
    mov $stack_top - 512 - 256, %edi
    mov $512 + 256, %esi
    call dump
    mov $x87, %edi
    mov $20, %esi
    call dump
    mov $1, %eax
    mov $42, %ebx
    int $0x80

/* Saves all registers and flags at the cursor, changes none. */
snap:
    mov %esp, last_esp
    mov cursor, %esp
    pushf
    push %ebp
    push %edi
    push %esi
    push %edx
    push %ecx
    push %ebx
    push %eax
    push last_esp
    mov %esp, cursor
    mov last_esp, %esp
    ret

/* Writes esi bytes at edi as hex, 9 words of 4 bytes (a snapshot) a line. */
dump:
    lea (%edi,%esi), %ebp
    mov %edi, %esi
next_line:
    cmp %ebp, %esi
    jae dumped
    mov $text_out, %edi
    mov $36, %ecx
next_byte:
    cmp %ebp, %esi
    jae line_done
    movzbl (%esi), %eax
    mov %eax, %edx
    shr $4, %eax
    and $15, %edx
    mov digits(%eax), %al
    mov %al, (%edi)
    mov digits(%edx), %al
    mov %al, 1(%edi)
    add $2, %edi
    inc %esi
    dec %ecx
    test $3, %ecx
    jnz 1f
    movb $' ', (%edi)
    inc %edi
1:  test %ecx, %ecx
    jnz next_byte
line_done:
    movb $'\n', (%edi)
    inc %edi
    mov $text_out, %ecx
write_more:
    mov %edi, %edx
    sub %ecx, %edx
    jz next_line
    mov $4, %eax
    mov $1, %ebx
    int $0x80
    test %eax, %eax
    js dumped
    add %eax, %ecx
    jmp write_more
dumped:
    ret

    .section .rodata
digits: .ascii "0123456789abcdef"
    .data
cursor: .long 0
area:   .long -1, tls, 0xfffff, 0x51    /* any entry; 32 bits, counted in pages, usable */
x87:    .skip 24

    .section .note.GNU-stack, "", @progbits
