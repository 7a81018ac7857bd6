//! The kernel's information that is available without a system call.

use core::arch::asm;

/// The processor's number and node, as `rdpid` returns them: the kernel also keeps them in a
/// segment's limit, which every processor can read.
pub(super) fn processor() -> u32 {
    /// The kernel's segment for this purpose (GDT_ENTRY_CPUNODE, with user privilege).
    const SEGMENT: u32 = 15 * 8 + 3;
    let limit: u32;
    // SAFETY: reads a segment limit into a register.
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
