//! Segment registers, and the segments that selectors denote.

use core::arch::asm;

use super::guarded::fault_entry;
use layout::thread_id;

macro_rules! getters {
    ($($read:ident $name:literal;)*) => {
        $(
            #[doc = concat!("The selector in ", $name, ".")]
            pub(super) fn $read() -> u64 {
                let selector: u64;
                // SAFETY: copies a register.
                unsafe {
                    asm!(
                        concat!("mov {selector:e}, ", $name),
                        selector = out(reg) selector,
                        options(nomem, nostack, preserves_flags),
                    );
                }
                selector
            }
        )*
    };
}

getters! {
    cs "cs";
    ds "ds";
    es "es";
    fs "fs";
    gs "gs";
    ss "ss";
}

macro_rules! setters {
    ($($write:ident $name:literal $save:literal $restore:literal;)*) => {
        $(
            #[doc = concat!("Sets ", $name, " to a selector; one that the processor refuses becomes 0, as the kernel has it. ")]
            pub(super) fn $write(selector: u16) {
                // SAFETY: in 64-bit code no access of the agent depends on ds and es; the bases of
                // fs and gs, on which the program's accesses depend, are restored.
                unsafe {
                    asm!(
                        $save,
                        "2:",
                        concat!("mov ", $name, ", {selector:e}"),
                        "jmp 4f",
                        "3:",
                        "xor {selector:e}, {selector:e}",
                        concat!("mov ", $name, ", {selector:e}"),
                        "4:",
                        $restore,
                        fault_entry!("2b", "3b"),
                        selector = inout(reg) u32::from(selector) => _,
                        out("rdx") _,
                        out("rax") _,
                        options(nostack),
                    );
                }
            }
        )*
    };
}

setters! {
    set_ds "ds" "" "";
    set_es "es" "" "";
    set_fs "fs" "rdfsbase rdx" "wrfsbase rdx";
    set_gs "gs" "rdgsbase rdx" "wrgsbase rdx";
}

/// The base of fs.
pub(super) fn fs_base() -> u64 {
    let base: u64;
    // SAFETY: copies a register; the tracer has checked that the kernel allows it before it
    // installed the agent.
    unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base
}

/// The base of gs.
pub(super) fn gs_base() -> u64 {
    let base: u64;
    // SAFETY: as for fs.
    unsafe { asm!("rdgsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base
}

/// The linear base address of the segment that a selector denotes: one of the flat segments of
/// every thread, or one of the thread's own (`set_thread_area`). `None` for others; local tables
/// are not supported, since they cannot be read from outside.
pub(super) fn base(selector: u16) -> Option<u64> {
    // Bit 2: the local table. Numbers 4 to 6: 32-bit code, data, 64-bit code. 12 to 14: the
    // thread's own.
    match (selector >> 2 & 1, selector >> 3) {
        (0, 4..=6) => Some(0),
        (0, place @ 12..=14) if is_the_programs(place) => Some(own_base(place)),
        _ => None,
    }
}

/// Whether a segment register accepts a selector: 0, a flat segment or one of the thread's own,
/// with user privilege. Selectors of a local table are refused, since it cannot be read from
/// outside.
pub(super) fn can_be_loaded(selector: u16) -> bool {
    match (selector & 7, selector >> 3) {
        (0, 0) => true,
        (3, 4..=6) => true,
        (3, place @ 12..=14) => is_the_programs(place),
        _ => false,
    }
}

/// The number that the tracer has stored in one of the thread's descriptors.
pub(super) fn number(place: u16) -> Option<u32> {
    let rights = rights(place)?;
    let limit: u32;
    // SAFETY: reads a limit into a register; the segment exists, as its rights were read.
    unsafe {
        asm!(
            "lsl {limit:e}, {selector:e}",
            limit = inout(reg) 0 => limit,
            selector = in(reg) u32::from(thread_id::selector(place)),
            options(nomem, nostack),
        );
    }
    thread_id::number(limit, rights)
}

/// Whether the descriptor is one of the program's.
fn is_the_programs(place: u16) -> bool {
    rights(place).is_some_and(|rights| thread_id::number(0, rights).is_none())
}

/// The access rights of one of the thread's own segments, if it exists.
fn rights(place: u16) -> Option<u32> {
    let (rights, present): (u32, u8);
    // SAFETY: reads a descriptor's rights into a register.
    unsafe {
        asm!(
            "lar {rights:e}, {selector:e}",
            "setz {present}",
            rights = inout(reg) 0 => rights,
            selector = in(reg) u32::from(thread_id::selector(place)),
            present = out(reg_byte) present,
            options(nomem, nostack),
        );
    }
    (present != 0).then_some(rights)
}

/// The base of one of the thread's own segments, which must exist: loads it into gs briefly and
/// reads its base. (The kernel would report it by a system call.)
fn own_base(place: u16) -> u64 {
    let base: u64;
    // SAFETY: the agent does not use gs, and its selector and base are restored. It is a data
    // segment, so it can be loaded.
    unsafe {
        asm!(
            "mov {selector:e}, gs",
            "rdgsbase {before}",
            "mov gs, {named:e}",
            "rdgsbase {base}",
            "mov gs, {selector:e}",
            "wrgsbase {before}",
            selector = out(reg) _,
            before = out(reg) _,
            named = in(reg) u32::from(thread_id::selector(place)),
            base = out(reg) base,
            options(nomem, nostack, preserves_flags),
        );
    }
    base
}
