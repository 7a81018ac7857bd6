//! What the processor tells of the kernel, without a system call.

use core::arch::asm;

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
