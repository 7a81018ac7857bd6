//! What a guarded process executes when nobody answers its traps: a handler for SIGTRAP.
//!
//! ```text
//! handler(signal, info, context):
//!   info is of an int3:
//!     RF is set                 the tracer has answered it: return
//!     the table has rip - 1     a slot: rip = slot, return;  none yet: wait until the byte is not int3 any more, rip -= 1, return
//!     the byte is not int3      it was taken out meanwhile: rip -= 1, return
//!   info is of a step or a watched address, and the thread is the one that the tracer steps:
//!     TF = 0, RF = 1, signal mask = the thread's own, return
//!   otherwise: as if there were no handler: the default action, and the signal once more
//! ```
//!
//! The code works wherever it is copied to; its data ([`super::Words`]) are one page behind it.

use std::arch::global_asm;

global_asm!(
    ".pushsection .rodata.dprobes_guard,\"a\",@progbits",
    ".balign 16",
    ".globl dprobes_guard_start",
    ".hidden dprobes_guard_start",
    "dprobes_guard_start:",
    ".Lguard:",
    "mov r13, rsi",
    "lea r9, [rip + .Lguard + {page}]",
    "mov eax, [rsi + 8]", // si_code
    "cmp eax, {kernel}",
    "jne 20f",
    "bt dword ptr [rdx + {flags}], {rf}",
    "jc 90f",
    "mov r8, [rdx + {rip}]",
    "dec r8",
    "mov r10, [r9]",
    "mov r11, [r9 + 8]",
    "mov rax, {factor}",
    "imul rax, r8",
    "shr rax, 32",
    "10:",
    "and rax, r11",
    "mov rcx, rax",
    "shl rcx, 4",
    "mov rdi, [r10 + rcx]",
    "test rdi, rdi",
    "je 30f",
    "cmp rdi, r8",
    "je 12f",
    "inc rax",
    "jmp 10b",
    "12:",
    "mov rcx, [r10 + rcx + 8]",
    "test rcx, rcx",
    "je 40f",
    "mov [rdx + {rip}], rcx",
    "ret",
    // A step, or a watched address: of the thread whose fs begins there?
    "20:",
    "cmp eax, {trace}",
    "je 21f",
    "cmp eax, {watch}",
    "jne 80f",
    "21:",
    "sub rsp, 16",
    "mov edi, {get_fs}",
    "mov rsi, rsp",
    "mov eax, {arch_prctl}",
    "syscall",
    "pop rax",
    "pop rcx",
    "cmp rax, [r9 + 16]",
    "jne 80f",
    "cmp qword ptr [r9 + 24], 0",
    "je 80f",
    "and dword ptr [rdx + {flags}], {not_tf}",
    "or dword ptr [rdx + {flags}], 0x10000",
    "mov rax, [r9 + 32]",
    "mov [rdx + {mask}], rax",
    "ret",
    // None of ours: the program's own, unless it has been taken out.
    "30:",
    "cmp byte ptr [r8], 0xcc",
    "je 80f",
    "cmp byte ptr [r8], 3",
    "jne 31f",
    "cmp byte ptr [r8 - 1], 0xcd",
    "je 80f",
    "31:",
    "mov [rdx + {rip}], r8",
    "ret",
    // One that has no slot yet: somebody puts its byte back.
    "40:",
    "mov rbx, rdx",
    "mov rbp, r8",
    "mov r12d, {tries}",
    "41:",
    "cmp byte ptr [rbp], 0xcc",
    "jne 42f",
    "lea rdi, [rip + 70f]",
    "xor esi, esi",
    "mov eax, {nanosleep}",
    "syscall",
    "dec r12d",
    "jnz 41b",
    "mov rdx, rbx",
    "jmp 80f",
    "42:",
    "mov [rbx + {rip}], rbp",
    "ret",
    ".balign 8",
    "70:",
    ".quad 0, 1000000",
    // The default action is death, at the return to the program, which unblocks the signal.
    "80:",
    "sub rsp, 40",
    "xor eax, eax",
    "mov [rsp], rax",
    "mov [rsp + 8], rax",
    "mov [rsp + 16], rax",
    "mov [rsp + 24], rax",
    "mov edi, {sigtrap}",
    "mov rsi, rsp",
    "xor edx, edx",
    "mov r10d, 8",
    "mov eax, {rt_sigaction}",
    "syscall",
    "mov eax, {getpid}",
    "syscall",
    "mov r12, rax",
    "mov eax, {gettid}",
    "syscall",
    "mov rdi, r12",
    "mov rsi, rax",
    "mov edx, {sigtrap}",
    "mov r10, r13",
    "mov eax, {rt_tgsigqueueinfo}",
    "syscall",
    "add rsp, 40",
    "90:",
    "ret",
    ".globl dprobes_guard_return",
    ".hidden dprobes_guard_return",
    "dprobes_guard_return:",
    "mov eax, {rt_sigreturn}",
    "syscall",
    ".globl dprobes_guard_end",
    ".hidden dprobes_guard_end",
    "dprobes_guard_end:",
    ".popsection",
    page = const super::CODE,
    kernel = const 0x80,
    trace = const 2,
    watch = const 4,
    rf = const 16,
    not_tf = const !0x100,
    flags = const 176,
    rip = const 168,
    mask = const 296,
    factor = const super::table::FACTOR,
    tries = const 10_000,
    get_fs = const 0x1003,
    sigtrap = const libc::SIGTRAP,
    arch_prctl = const libc::SYS_arch_prctl,
    nanosleep = const libc::SYS_nanosleep,
    rt_sigaction = const libc::SYS_rt_sigaction,
    getpid = const libc::SYS_getpid,
    gettid = const libc::SYS_gettid,
    rt_tgsigqueueinfo = const libc::SYS_rt_tgsigqueueinfo,
    rt_sigreturn = const libc::SYS_rt_sigreturn,
);

unsafe extern "C" {
    static dprobes_guard_start: u8;
    static dprobes_guard_return: u8;
    static dprobes_guard_end: u8;
}

/// The code; the handler is its first byte.
pub(super) fn code() -> &'static [u8] {
    let (start, end) = (&raw const dprobes_guard_start, &raw const dprobes_guard_end);
    // SAFETY: both are symbols of the block above, in memory that is never written; the one is behind the other.
    unsafe { std::slice::from_raw_parts(start, end.addr() - start.addr()) }
}

/// How far into the code the handler's return to the program is.
pub(super) fn returns_at() -> u64 {
    ((&raw const dprobes_guard_return).addr() - (&raw const dprobes_guard_start).addr()) as u64
}
