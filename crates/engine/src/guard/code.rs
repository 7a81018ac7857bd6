//! The guard's handler for SIGTRAP, which a process executes when no tracer handles its traps.
//!
//! ```text
//! handler(signal, info, context):
//!   info says that the tracer has put the thread back: rip = info's address, return
//!   info is of an int3:
//!     RF is set                 the tracer has answered it: return
//!     the table has rip - 1     a slot: rip = slot, return;  none yet: wait until the byte is not int3 any more, rip -= 1, return
//!     the byte is not int3      it was taken out meanwhile: rip -= 1, return
//!   info is of a step or a watched address, and the tracer was stepping a thread: this is it
//!     TF = 0, RF = 1, signal mask = the thread's own, return; from now on no thread is stepped
//!   info is of a watched address: RF = 1, return
//!   otherwise: as if there were no handler: the default action, and the signal once more
//! ```
//!
//! A thread keeps the debug registers that a dead tracer has set: it stops at each of its hits, in
//! signal handlers too, until a tracer clears them.
//!
//! The code is position-independent; its data ([`super::Words`]) are one page after it.

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
    "cmp eax, {put_back}",
    "je 15f",
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
    "15:",
    "mov rax, [rsi + 16]", // si_addr
    "mov [rdx + {rip}], rax",
    "ret",
    // A single step or a watched address: was the tracer stepping a thread?
    "20:",
    "cmp eax, {trace}",
    "je 21f",
    "cmp eax, {watch}",
    "jne 80f",
    "21:",
    "xor ecx, ecx",
    "xchg [r9 + {stepped}], rcx",
    "test rcx, rcx",
    "je 22f",
    "and dword ptr [rdx + {flags}], {not_tf}",
    "mov rcx, [r9 + {stepped} + 8]",
    "mov [rdx + {mask}], rcx",
    "jmp 23f",
    "22:",
    "cmp eax, {watch}",
    "jne 80f",
    "23:",
    "or dword ptr [rdx + {flags}], 0x10000",
    "ret",
    // Not our site: the program's own `int3`, unless the site was disarmed meanwhile.
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
    // A site without a slot yet: another process restores its byte.
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
    // The default action kills the process on return to the program, which unblocks the signal.
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
    stepped = const super::Words::STEPPED,
    kernel = const 0x80,
    put_back = const crate::signal::PUT_BACK,
    trace = const 2,
    watch = const 4,
    rf = const 16,
    not_tf = const !0x100,
    flags = const 176,
    rip = const 168,
    mask = const 296,
    factor = const super::table::FACTOR,
    tries = const 10_000,
    sigtrap = const libc::SIGTRAP,
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

/// The code; the handler starts at its first byte.
pub(super) fn code() -> &'static [u8] {
    let (start, end) = (&raw const dprobes_guard_start, &raw const dprobes_guard_end);
    // SAFETY: both are symbols of the block above, in memory that is never written; the end is
    // after the start.
    unsafe { std::slice::from_raw_parts(start, end.addr() - start.addr()) }
}

/// The offset in the code of the handler's return to the program.
pub(super) fn returns_at() -> u64 {
    ((&raw const dprobes_guard_return).addr() - (&raw const dprobes_guard_start).addr()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::{CODE, Words};
    use crate::signal::PUT_BACK;

    const STEP: i32 = 2;
    const WATCHED: i32 = 4;
    const USR1: u64 = 1 << (libc::SIGUSR1 - 1);

    /// Installs the handler, calls `with` with the address of its words, and restores what was.
    fn installed(with: impl FnOnce(*mut u64)) {
        // One test at a time: a process has one handler.
        static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // SAFETY: the code is copied to memory of its own, which is only executed. All arguments of
        // the calls are valid.
        unsafe {
            let size = 2 * CODE as usize;
            let (write, private) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let base = libc::mmap(std::ptr::null_mut(), size, write, private, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            std::ptr::copy_nonoverlapping(code().as_ptr(), base.cast(), code().len());
            assert_eq!(libc::mprotect(base, CODE as usize, libc::PROT_READ | libc::PROT_EXEC), 0);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = base as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            let mut before: libc::sigaction = std::mem::zeroed();
            assert_eq!(libc::sigaction(libc::SIGTRAP, &action, &mut before), 0);
            with(base.byte_add(CODE as usize).cast());
            libc::sigaction(libc::SIGTRAP, &before, std::ptr::null_mut());
            libc::munmap(base, size);
        }
    }

    fn trap(code: i32) -> [u64; 16] {
        let mut info = [0; 16];
        info[0] = libc::SIGTRAP as u64;
        info[1] = code as u64;
        info
    }

    /// Sends this thread a signal; returns the signals that it blocks afterwards.
    fn send(code: i32) -> u64 {
        let info = trap(code);
        let mut mask = 0_u64;
        // SAFETY: the arguments are valid, and the set has the kernel's eight bytes.
        unsafe {
            let (process, thread) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
            libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, libc::SIGTRAP, info.as_ptr());
            libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, 0, &raw mut mask, 8);
        }
        mask
    }

    #[test]
    fn a_thread_that_was_stepped_gets_its_mask_back_once() {
        installed(|words| {
            // SAFETY: the words are in memory of the handler; a mask is that of this thread.
            let step = unsafe { words.byte_add(Words::STEPPED as usize) };
            // SAFETY: as above.
            let mask = unsafe { step.add(1) };
            let set_mask = |mask: u64| {
                // SAFETY: the set has the kernel's eight bytes.
                unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, 0, 8) }
            };
            for code in [STEP, WATCHED] {
                set_mask(0);
                // SAFETY: as above.
                unsafe { (mask.write_volatile(USR1), step.write_volatile(1)) };
                assert_eq!(send(code), USR1, "of the thread that the tracer stepped");
                // SAFETY: as above.
                assert_eq!(unsafe { step.read_volatile() }, 0);
                set_mask(0);
                assert_eq!(send(WATCHED), 0, "a debug register is left: nothing is given back any more");
            }
        });
    }

    #[test]
    fn a_step_of_nobody_ends_the_process_as_without_a_handler() {
        installed(|_| {
            // SAFETY: the child only sends itself a signal, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                send(WATCHED);
                send(STEP);
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) };
            }
            let mut status = 0;
            // SAFETY: a child of this process.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGTRAP, "{status:#x}");
        });
    }

    #[test]
    fn a_thread_that_was_put_back_goes_on_where_its_signal_says() {
        let mut info = trap(PUT_BACK);
        let mut result = libc::SYS_rt_tgsigqueueinfo;
        // SAFETY: one signal comes to this thread, whose handler sends it to the second of two
        // places in this block. All arguments of the call are valid.
        installed(|_| unsafe {
            std::arch::asm!(
                "lea {place}, [rip + 22f]",
                "mov [r10 + 16], {place}",
                "syscall",
                "mov eax, 1",
                "jmp 33f",
                "22:",
                "mov eax, 2",
                "33:",
                place = out(reg) _,
                inout("rax") result,
                in("rdi") libc::c_long::from(libc::getpid()),
                in("rsi") libc::syscall(libc::SYS_gettid),
                in("rdx") libc::c_long::from(libc::SIGTRAP),
                in("r10") info.as_mut_ptr(),
                out("rcx") _,
                out("r11") _,
            );
        });
        assert_eq!(result, 2);
    }
}
