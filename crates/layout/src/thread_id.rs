//! The numbers of a thread and its process, where the thread can read them without a system call.
//!
//! The kernel keeps three segment descriptors for each thread (`set_thread_area`), which 64-bit programs do not use. A tracer can set them
//! (PTRACE_SET_THREAD_AREA), and every thread can look at its own by `lsl` and `lar`. So the tracer writes numbers there: the thread's own
//! into [`THREAD`], its process's into [`PROCESS`].
//!
//! | bits of the number | where | how it is read |
//! |---|---|---|
//! | 0 to 19 | the segment's limit | `lsl` |
//! | 20 | the bit that is free for the system's use | `lar`, bit 20 |
//! | 21 | whether the segment expands down | `lar`, bit 10 |
//!
//! That is enough: Linux has no greater number (`PID_MAX_LIMIT`). The segment cannot be written to and is counted in bytes ([`FIXED`]); one that
//! a program has made for itself is another.

/// The place of the descriptor that has the thread's own number: the last of its three.
pub const THREAD: u16 = 14;
/// The place of that which has its process's.
pub const PROCESS: u16 = 13;

/// The bits of what `lar` gives that say whether it is a description of ours, and what they are.
pub const FIXED: (u32, u32) = (0x00e0_fb00, 0x0040_f100);
/// The bit of what `lar` gives that is bit 20 of the number.
pub const BIT_20: u32 = 20;
/// The bit of what `lar` gives that is bit 21 of the number.
pub const BIT_21: u32 = 10;

/// Flags of the kernel's `struct user_desc` (arch/x86/include/uapi/asm/ldt.h).
const OF_32_BITS: u32 = 1 << 0;
const EXPANDS_DOWN: u32 = 1 << 1;
const READ_ONLY: u32 = 1 << 3;
const USEABLE: u32 = 1 << 6;

/// The selector that names a descriptor.
pub const fn selector(place: u16) -> u16 {
    place << 3 | 3
}

/// The limit and the flags of a `struct user_desc` that has a number.
pub const fn describe(number: u32) -> (u32, u32) {
    let expands = if number >> 21 & 1 != 0 { EXPANDS_DOWN } else { 0 };
    let useable = if number >> 20 & 1 != 0 { USEABLE } else { 0 };
    (number & 0xf_ffff, OF_32_BITS | READ_ONLY | expands | useable)
}

/// Whether what the kernel says of a descriptor is that of a number.
pub const fn is_number(base: u32, flags: u32) -> bool {
    base == 0 && flags & !(EXPANDS_DOWN | USEABLE) == OF_32_BITS | READ_ONLY
}

/// The number, of what `lsl` and `lar` give.
pub const fn number(limit: u32, rights: u32) -> Option<u32> {
    if rights & FIXED.0 != FIXED.1 {
        return None;
    }
    Some(limit | rights & 1 << BIT_20 | (rights >> BIT_21 & 1) << 21)
}
