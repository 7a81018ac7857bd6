//! The ids of a thread and its process, kept where the thread can read them without a system call.
//!
//! The kernel keeps three segment descriptors for each thread (`set_thread_area`), which 64-bit
//! programs do not use. A tracer can set them (PTRACE_SET_THREAD_AREA), and each thread can read
//! its own with `lsl` and `lar`. The tracer writes the thread's id into [`THREAD`] and its
//! process's id into [`PROCESS`].
//!
//! | bits of the number | where | how it is read |
//! |---|---|---|
//! | 0 to 19 | the segment's limit | `lsl` |
//! | 20 | the bit that is free for the system's use | `lar`, bit 20 |
//! | 21 | whether the segment expands down | `lar`, bit 10 |
//!
//! 22 bits are enough: Linux has no greater id (`PID_MAX_LIMIT`). The segment is read-only and its
//! limit is counted in bytes ([`FIXED`]), which tells it from a descriptor that the program has
//! made for itself.

/// The index of the descriptor with the thread's id: the last of the three.
pub const THREAD: u16 = 14;
/// The index of the descriptor with the process's id.
pub const PROCESS: u16 = 13;

/// The bits of `lar`'s result that identify a descriptor of ours (mask), and their values.
pub const FIXED: (u32, u32) = (0x00e0_fb00, 0x0040_f100);
/// The bit of `lar`'s result that is bit 20 of the id.
pub const BIT_20: u32 = 20;
/// The bit of `lar`'s result that is bit 21 of the id.
pub const BIT_21: u32 = 10;

/// Flags of the kernel's `struct user_desc` (arch/x86/include/uapi/asm/ldt.h).
const OF_32_BITS: u32 = 1 << 0;
const EXPANDS_DOWN: u32 = 1 << 1;
const READ_ONLY: u32 = 1 << 3;
const USEABLE: u32 = 1 << 6;

/// The selector of a descriptor.
pub const fn selector(place: u16) -> u16 {
    place << 3 | 3
}

/// The limit and the flags of a `struct user_desc` that holds an id.
pub const fn describe(number: u32) -> (u32, u32) {
    let expands = if number >> 21 & 1 != 0 { EXPANDS_DOWN } else { 0 };
    let useable = if number >> 20 & 1 != 0 { USEABLE } else { 0 };
    (number & 0xf_ffff, OF_32_BITS | READ_ONLY | expands | useable)
}

/// Whether a `struct user_desc` from the kernel holds an id.
pub const fn is_number(base: u32, flags: u32) -> bool {
    base == 0 && flags & !(EXPANDS_DOWN | USEABLE) == OF_32_BITS | READ_ONLY
}

/// The id, from the results of `lsl` and `lar`.
pub const fn number(limit: u32, rights: u32) -> Option<u32> {
    if rights & FIXED.0 != FIXED.1 {
        return None;
    }
    Some(limit | rights & 1 << BIT_20 | (rights >> BIT_21 & 1) << 21)
}
