//! Restarts system calls that failed because of the tracer's stops.
//!
//! The kernel restarts most interrupted system calls if no handler runs. Some, however, return
//! EINTR as soon as their thread is woken, even by a tracer (signal(7), "Interruption of system
//! calls and library functions by stop signals"). An unprobed program would not see that error, so
//! the tracer restarts these calls as the kernel does the others: it moves the instruction pointer
//! back to the `syscall` instruction and sets rax to the call's number. A relative timeout starts
//! anew.

use process::{Registers, Status};

/// `io_pgetevents`, which the libc crate does not name.
const SYS_IO_PGETEVENTS: libc::c_long = 333;

/// System calls that return EINTR although no handler has run, and that can safely be repeated.
const RESTARTABLE: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
    SYS_IO_PGETEVENTS,
    libc::SYS_io_uring_enter,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
];

/// The same for i386 (arch/x86/entry/syscalls/syscall_32.tbl): read, write, readv, writev, sendto,
/// sendmsg, sendmmsg, recvfrom, recvmsg, recvmmsg, accept4, epoll_wait, epoll_pwait, epoll_pwait2,
/// rt_sigtimedwait, io_getevents, io_pgetevents, io_uring_enter, msgsnd, msgrcv, futex,
/// futex_waitv, and the versions with 64-bit time: recvmmsg, io_pgetevents, semtimedop,
/// rt_sigtimedwait, futex.
const RESTARTABLE_32: &[i64] = &[
    3, 4, 145, 146, 369, 370, 345, 371, 372, 337, 364, 256, 319, 441, 177, 247, 385, 426, 400, 401, 240, 449,
    417, 416, 420, 421, 422,
];
/// Multiplexed calls of i386, by their first argument: `socketcall` with accept, send, recv,
/// sendto, recvfrom, sendmsg, recvmsg, accept4, recvmmsg and sendmmsg; `ipc` with semop,
/// semtimedop, msgsnd and msgrcv.
const MULTIPLE_32: &[(i64, &[u32])] =
    &[(102, &[5, 9, 10, 11, 12, 16, 17, 18, 19, 20]), (117, &[1, 4, 11, 12])];

/// Whether an i386 call can be restarted.
fn is_restartable_32(call: i64, registers: &Registers) -> bool {
    /// The index of ebx, the first argument, in the general registers.
    const EBX: usize = 3;
    let first = registers.general()[EBX] as u32;
    RESTARTABLE_32.contains(&call)
        || MULTIPLE_32.iter().any(|(number, kinds)| *number == call && kinds.contains(&(first & 0xffff)))
}

/// The length of `syscall` and of `int 0x80`. A call made by `sysenter` returns to after an
/// `int 0x80` in the vdso, for this purpose.
const SYSCALL_LENGTH: u64 = 2;

/// Makes the thread `tid`, stopped on its way out of the kernel, repeat its system call if that
/// failed with EINTR only because of the tracer. Returns whether `registers` were changed.
pub(crate) fn restart(tid: i32, registers: &mut Registers) -> bool {
    let call = registers.call_number();
    let known =
        if registers.is_32_bit() { is_restartable_32(call, registers) } else { RESTARTABLE.contains(&call) };
    if registers.result() != -i64::from(libc::EINTR) || !known {
        return false;
    }
    let Ok(status) = Status::read(tid) else { return false };
    // A signal with a handler is about to be delivered: the program must see EINTR.
    if status.pending & !status.blocked & status.caught != 0 {
        return false;
    }
    registers.set_rax(registers.orig_rax());
    registers.set_rip(registers.rip().wrapping_sub(SYSCALL_LENGTH));
    true
}
