//! Access to memory that may not be mapped.
//!
//! Each instruction that may fault has an entry in the section `.dprobes_faults`: two 4-byte
//! distances, each from its own position, to the instruction and to where the thread continues. The
//! tracer sees the SIGSEGV or SIGBUS before the program does and moves the thread there. (It also
//! puts the faulting address in rax; nothing here uses it, since processors report none for a
//! non-canonical address.)

use core::arch::asm;

/// A fault table entry: after a fault at label `$from` the thread continues at `$to`.
macro_rules! fault_entry {
    ($from:literal, $to:literal) => {
        concat!(
            ".pushsection .dprobes_faults, \"a\", @progbits\n",
            ".balign 4\n",
            ".long ",
            $from,
            " - .\n",
            ".long ",
            $to,
            " - .\n",
            ".popsection"
        )
    };
}
pub(super) use fault_entry;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Copies the program's memory: fills all of `into`, or returns the first address that cannot be
/// read.
pub(super) fn read(address: u64, into: &mut [u8]) -> Result<(), u64> {
    let value = match into.len() {
        1 => load_1(address),
        2 => load_2(address),
        4 => load_4(address),
        8 => load_8(address),
        _ => None,
    };
    if let Some(value) = value {
        into.copy_from_slice(&value.to_le_bytes()[..into.len()]);
        return Ok(());
    }
    // Copy byte by byte: where it stops is the first address that cannot be read.
    let (place, left): (u64, usize);
    // SAFETY: the destination is `into`, whole; the source is read under a fault table entry.
    unsafe {
        asm!(
            "2:",
            "rep movsb",
            "3:",
            fault_entry!("2b", "3b"),
            inout("rcx") into.len() => left,
            inout("rdi") into.as_mut_ptr() => _,
            inout("rsi") address => place,
            // The tracer puts the faulting address there.
            out("rax") _,
            options(nostack),
        );
    }
    if left == 0 { Ok(()) } else { Err(place) }
}

macro_rules! load {
    ($name:ident, $instruction:literal) => {
        /// Loads the bytes at an address in one access, if they can be read.
        #[inline(always)]
        fn $name(address: u64) -> Option<u64> {
            let (value, failed): (u64, u32);
            // SAFETY: the one access is under a fault table entry.
            unsafe {
                asm!(
                    "mov {failed:e}, 1",
                    "2:",
                    $instruction,
                    "xor {failed:e}, {failed:e}",
                    "3:",
                    fault_entry!("2b", "3b"),
                    address = in(reg) address,
                    failed = out(reg) failed,
                    out("rax") value,
                    options(nostack, readonly),
                );
            }
            (failed == 0).then_some(value)
        }
    };
}

load!(load_1, "movzx eax, byte ptr [{address}]");
load!(load_2, "movzx eax, word ptr [{address}]");
load!(load_4, "mov eax, [{address}]");
load!(load_8, "mov rax, [{address}]");

/// Loads the word at an address in one access, if it can be read.
pub(super) fn word(address: u64) -> Option<u64> {
    load_8(address)
}

/// Writes 1, 2, 4 or 8 bytes in one access: all of them, or none, and then returns the first
/// address that cannot be written.
pub(super) fn write(address: u64, from: &[u8]) -> Result<(), u64> {
    let mut bytes = [0; 8];
    let count = from.len().min(8);
    bytes[..count].copy_from_slice(&from[..count]);
    let value = u64::from_le_bytes(bytes);
    let stored = match from.len() {
        1 => store_1(address, value),
        2 => store_2(address, value),
        4 => store_4(address, value),
        8 => store_8(address, value),
        _ => false,
    };
    if stored {
        return Ok(());
    }
    // Protection changes only between pages: either the first page or the second is not writable.
    if verify(address, true) { Err((address | (PAGE - 1)).wrapping_add(1)) } else { Err(address) }
}

macro_rules! store {
    ($name:ident, $instruction:literal) => {
        /// Stores the bytes at an address if all can be written; returns whether they were.
        #[inline(always)]
        fn $name(address: u64, value: u64) -> bool {
            let failed: u32;
            // SAFETY: the handler asks for this store into the program's memory; the access is
            // under a fault table entry.
            unsafe {
                asm!(
                    "mov {failed:e}, 1",
                    "2:",
                    $instruction,
                    "xor {failed:e}, {failed:e}",
                    "3:",
                    fault_entry!("2b", "3b"),
                    address = in(reg) address,
                    in("rdx") value,
                    failed = out(reg) failed,
                    out("rax") _,
                    options(nostack),
                );
            }
            failed == 0
        }
    };
}

store!(store_1, "mov [{address}], dl");
store!(store_2, "mov [{address}], dx");
store!(store_4, "mov [{address}], edx");
store!(store_8, "mov [{address}], rdx");

/// Whether a byte can be read and, if `write`, also written. Changes nothing.
pub(super) fn verify(address: u64, write: bool) -> bool {
    if load_1(address).is_none() {
        return false;
    }
    if !write {
        return true;
    }
    let failed: u32;
    // SAFETY: writes back the byte that is there in one atomic access; under a fault table entry.
    unsafe {
        asm!(
            "mov {failed:e}, 1",
            "2:",
            "lock or byte ptr [{address}], 0",
            "xor {failed:e}, {failed:e}",
            "3:",
            fault_entry!("2b", "3b"),
            address = in(reg) address,
            failed = out(reg) failed,
            out("rax") _,
            options(nostack),
        );
    }
    failed == 0
}

/// The result of `cpuid` for a leaf, subleaf 0; `None` if the process has disabled the instruction.
pub(super) fn cpuid(leaf: u32) -> Option<[u32; 4]> {
    let (eax, ebx, ecx, edx): (u32, u64, u32, u32);
    let failed: u32;
    // SAFETY: the instruction only accesses registers, and a fault is in the table. rbx is reserved
    // by the compiler and is restored.
    unsafe {
        asm!(
            "mov r8d, 1",
            "mov r9, rbx",
            "2:",
            "cpuid",
            "xor r8d, r8d",
            "3:",
            "xchg r9, rbx",
            fault_entry!("2b", "3b"),
            inout("eax") leaf => eax,
            out("r9") ebx,
            inout("ecx") 0 => ecx,
            out("edx") edx,
            out("r8") failed,
            options(nostack),
        );
    }
    (failed == 0).then_some([eax, ebx as u32, ecx, edx])
}
