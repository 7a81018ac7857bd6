//! Segment registers, and what their selectors name.

use core::arch::asm;

use super::guarded::fault_entry;
use layout::thread_id;

macro_rules! getters {
    ($($read:ident $name:literal;)*) => {
        $(
            #[doc = concat!("The selector in ", $name, ".")]
            pub(super) fn $read() -> u64 {
                let selector: u64;
                // SAFETY: reads a register into another.
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
                // SAFETY: in 64-bit code no access of the agent's depends on what ds and es name; the bases of fs and gs, on which
                // the program's do, are put back.
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
    // SAFETY: reads a register into another; that the kernel allows it is looked at before the agent is put into a process.
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

/// The linear address at which the segment begins that a selector names: one of the flat segments that every thread has, or one
/// of the thread's own (`set_thread_area`). `None` where it names none of them; those of a local table are not looked at, as
/// from outside they cannot be.
pub(super) fn base(selector: u16) -> Option<u64> {
    // Bit 2: the local table. Numbers 4 to 6: code of 32 bits, data, code of 64 bits. 12 to 14: the thread's own.
    match (selector >> 2 & 1, selector >> 3) {
        (0, 4..=6) => Some(0),
        (0, place @ 12..=14) if is_the_programs(place) => Some(own_base(place)),
        _ => None,
    }
}

/// Whether a segment register takes a selector: 0, or that of one of the flat segments or of the thread's own, as user code names it. Those
/// of a local table it does not, since they cannot be looked at from outside.
pub(super) fn can_be_loaded(selector: u16) -> bool {
    match (selector & 7, selector >> 3) {
        (0, 0) => true,
        (3, 4..=6) => true,
        (3, place @ 12..=14) => is_the_programs(place),
        _ => false,
    }
}

/// The number that the tracer has written to one of the thread's own descriptors.
pub(super) fn number(place: u16) -> Option<u32> {
    let rights = rights(place)?;
    let limit: u32;
    // SAFETY: reads a limit into a register; there is a segment, as its rights were read.
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

/// Whether the program has made a segment there.
fn is_the_programs(place: u16) -> bool {
    rights(place).is_some_and(|rights| thread_id::number(0, rights).is_none())
}

/// The rights of one of the thread's own segments, if there is one.
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

/// The base of one of the thread's own segments, which is there: that which gs gets by it for a moment. (The kernel would tell it by a
/// system call.)
fn own_base(place: u16) -> u64 {
    let base: u64;
    // SAFETY: nothing of the agent's is at gs, and its selector and its base are put back. The segment is one of data: it can be loaded.
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
