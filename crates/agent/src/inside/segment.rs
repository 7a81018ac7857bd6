//! Segment registers, and what their selectors name.

use core::arch::asm;

use super::guarded::fault_entry;

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
/// from outside they cannot be. `scratch`, which is below 4 GiB, is where the kernel
/// describes it.
pub(super) fn base(selector: u16, scratch: &mut [u32; 4]) -> Option<u64> {
    // Bit 2: the local table. Numbers 4 to 6: code of 32 bits, data, code of 64 bits. 12 to 14: the thread's own.
    match (selector >> 2 & 1, selector >> 3) {
        (0, 4..=6) => Some(0),
        (0, number @ 12..=14) if is_present(number << 3 | 3) => own_base(number, scratch),
        _ => None,
    }
}

/// Whether a segment register takes a selector: 0, or that of one of the flat segments or of the thread's own, as user code names it. Those
/// of a local table it does not, since they cannot be looked at from outside.
pub(super) fn can_be_loaded(selector: u16) -> bool {
    match (selector & 7, selector >> 3) {
        (0, 0) => true,
        (3, 4..=6) => true,
        (3, 12..=14) => is_present(selector),
        _ => false,
    }
}

/// Whether there is a segment that a selector names.
fn is_present(selector: u16) -> bool {
    let present: u8;
    // SAFETY: reads a descriptor's rights into a register.
    unsafe {
        asm!(
            "lar {rights:e}, {selector:e}",
            "setz {present}",
            rights = out(reg) _,
            selector = in(reg) u32::from(selector),
            present = out(reg_byte) present,
            options(nostack),
        );
    }
    present != 0
}

/// The base of one of the thread's own segments. The kernel tells it to 32-bit code alone; a thread that has such a segment has
/// made it by such a call.
fn own_base(number: u16, scratch: &mut [u32; 4]) -> Option<u64> {
    /// i386's number of get_thread_area.
    const GET_THREAD_AREA: i64 = 244;
    /// The bit of a description's flags that says that there is no such segment.
    const NOT_PRESENT: u32 = 1 << 5;
    // The kernel's struct user_desc (arch/x86/include/uapi/asm/ldt.h): number, base, limit, flags.
    *scratch = [number.into(), 0, 0, 0];
    let result: i64;
    // SAFETY: the kernel writes one description to `scratch`, which is below 4 GiB. The instruction is in the fault table, for a
    // kernel that has no 32-bit calls. rbx is the compiler's own, and r8 to r11 such a call may clear.
    unsafe {
        asm!(
            "xchg rdi, rbx",
            "2:",
            "int 0x80",
            "jmp 4f",
            "3:",
            "mov rax, -1",
            "4:",
            "xchg rdi, rbx",
            fault_entry!("2b", "3b"),
            inout("rax") GET_THREAD_AREA => result,
            inout("rdi") scratch.as_mut_ptr() => _,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            options(nostack),
        );
    }
    let [_, base, _, flags] = *scratch;
    (result == 0 && flags & NOT_PRESENT == 0).then_some(base.into())
}
