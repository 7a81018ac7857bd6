//! The few system calls that the agent makes, and what the processor tells without one.

use core::arch::asm;

/// One system call.
fn call(number: i64, first: usize, second: usize, third: usize) -> i64 {
    let result: i64;
    // SAFETY: the calls made here (getpid, nanosleep, mincore) change nothing that the program has; what they are pointed to is the
    // caller's own and lives through the call.
    unsafe {
        asm!(
            "syscall",
            inout("rax") number => result,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result
}

/// The process id, as the process's own namespace has it.
pub(super) fn process() -> u32 {
    const GETPID: i64 = 39;
    call(GETPID, 0, 0, 0) as u32
}

/// Sleeps for so many nanoseconds, less than a second; shorter if a tracer comes between.
pub(super) fn sleep(nanoseconds: u64) {
    const NANOSLEEP: i64 = 35;
    let time: [u64; 2] = [0, nanoseconds];
    call(NANOSLEEP, time.as_ptr().addr(), 0, 0);
}

/// Whether something is mapped at an address. Asking changes nothing: an access would make a stack grow.
pub(super) fn is_mapped(address: u64) -> bool {
    const MINCORE: i64 = 27;
    const PAGE: u64 = crate::layout::PAGE;
    let mut resident = 0u8;
    call(MINCORE, (address & !(PAGE - 1)) as usize, 1, (&raw mut resident).addr()) == 0
}

/// The processor's number and its node, as `rdpid` gives them: the kernel keeps them in a segment's limit, too, which every
/// processor can read.
pub(super) fn processor() -> u32 {
    /// The kernel's segment for this (GDT_ENTRY_CPUNODE, as user code names it).
    const SEGMENT: u32 = 15 * 8 + 3;
    let limit: u32;
    // SAFETY: reads a limit into a register.
    unsafe {
        asm!(
            "lsl {limit:e}, {segment:e}",
            limit = inout(reg) 0 => limit,
            segment = in(reg) SEGMENT,
            options(nomem, nostack, pure),
        );
    }
    limit
}
