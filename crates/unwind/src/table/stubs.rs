//! Code without unwinding information, or with information that does not say what it is: the
//! trampolines of signals, and linkage tables of linkers that do not describe them.

use std::ops::Range;
use std::vec::Vec;

use super::Rows;
use super::elf::{Part, Sections};
use crate::row::{Cfa, Rule, Saved};

/// `mov $15, %rax; syscall` in both encodings: `rt_sigreturn`. Debuggers know trampolines by these
/// bytes too.
const TRAMPOLINES: [&[u8]; 2] =
    [&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05], &[0xb8, 15, 0, 0, 0, 0x0f, 0x05]];

/// The size of an entry of the procedure linkage table.
const ENTRY: usize = 16;

/// Whether a function is a trampoline of signals. Its entry may begin one byte before it, for
/// unwinders that look one byte before a return address.
pub(super) fn is_trampoline(sections: &Sections<'_>, start: u64) -> bool {
    let Some(code) = sections.code_at(start) else { return false };
    TRAMPOLINES
        .iter()
        .any(|bytes| code.starts_with(bytes) || code.get(1..).is_some_and(|code| code.starts_with(bytes)))
}

/// Adds rows for what is known in a range without information.
pub(super) fn fill(sections: &Sections<'_>, range: Range<u64>, rows: &mut Rows) {
    let mut found = Vec::new();
    for table in &sections.linkage {
        let end = table.vaddr.saturating_add(table.bytes.len() as u64);
        if !table.bytes.is_empty() && range.start <= table.vaddr && end <= range.end {
            linkage(table, &mut found);
            found.push((end, Rule::Unsupported));
        }
    }
    for part in &sections.code {
        let from = range.start.max(part.vaddr);
        let to = range.end.min(part.vaddr.saturating_add(part.bytes.len() as u64));
        if from < to {
            let (first, after) = ((from - part.vaddr) as usize, (to - part.vaddr) as usize);
            trampolines(Part { vaddr: from, bytes: &part.bytes[first..after] }, &mut found);
        }
    }
    // Of two rows for an address, the later is that of the code after it.
    found.sort_by_key(|(vaddr, _)| *vaddr);
    for (vaddr, rule) in found {
        rows.push(vaddr, rule);
    }
}

/// Finds the trampolines in code.
fn trampolines(code: Part<'_>, found: &mut Vec<(u64, Rule)>) {
    let mut at = 0;
    while let Some(rest) = code.bytes.get(at..) {
        // The system call is what is rare.
        let Some(end) = rest.windows(2).position(|pair| pair == [0x0f, 0x05]).map(|place| place + 2) else {
            return;
        };
        if let Some(bytes) = TRAMPOLINES.iter().find(|bytes| rest[..end].ends_with(bytes)) {
            let end = code.vaddr.saturating_add((at + end) as u64);
            found.push((end - bytes.len() as u64, Rule::Signal));
            found.push((end, Rule::Unsupported));
        }
        at += end;
    }
}

/// Finds the rows of a procedure linkage table. Its first entry may be the one that goes on to the
/// dynamic linker with two words pushed, the second at its second instruction.
fn linkage(table: &Part<'_>, found: &mut Vec<(u64, Rule)>) {
    let frame = |cfa| Rule::Frame { cfa, rbp: Saved::No, rbx: Saved::No };
    let (mut vaddr, mut entries) = (table.vaddr, table.bytes);
    // push [rip + displacement]
    if entries.starts_with(&[0xff, 0x35]) {
        found.push((vaddr, frame(Cfa::Rsp(16))));
        found.push((vaddr.saturating_add(6), frame(Cfa::Rsp(24))));
        entries = entries.get(ENTRY..).unwrap_or_default();
        vaddr = vaddr.saturating_add(ENTRY as u64);
    }
    let cfa = match entries {
        // jmp [rip + displacement]; push number; jmp
        [0xff, 0x25, _, _, _, _, 0x68, ..] => Cfa::Plt(11),
        // endbr64; push number; jmp
        [0xf3, 0x0f, 0x1e, 0xfa, 0x68, ..] => Cfa::Plt(9),
        // push number; jmp
        [0x68, ..] => Cfa::Plt(5),
        [] => return,
        _ => Cfa::Rsp(8),
    };
    if vaddr.is_multiple_of(ENTRY as u64) || cfa == Cfa::Rsp(8) {
        found.push((vaddr, frame(cfa)));
    }
}
