//! The few system calls that the agent makes, and what the processor tells without one.

use core::arch::asm;

/// One system call without arguments.
fn call(number: i64) -> i64 {
    let result: i64;
    // SAFETY: the calls made here (getpid, sched_yield) take no pointer and change nothing that the program has.
    unsafe {
        asm!(
            "syscall",
            inout("rax") number => result,
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
    call(GETPID) as u32
}

/// Lets others run.
pub(super) fn yield_processor() {
    const SCHED_YIELD: i64 = 24;
    call(SCHED_YIELD);
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
