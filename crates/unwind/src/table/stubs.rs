//! Code without unwinding information, or with information that does not say what it is: the
//! trampolines of signals, linkage tables of linkers that do not describe them, and functions with
//! a frame pointer at their first and last instructions.

use std::ops::Range;
use std::vec::Vec;

use super::elf::{Part, Sections};
use super::rows::Rows;
use crate::row::{Cfa, Rule, Saved};

/// `mov $15, %rax; syscall` in both encodings: `rt_sigreturn`. Debuggers know trampolines by these
/// bytes too.
const TRAMPOLINES: [&[u8]; 2] =
    [&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05], &[0xb8, 15, 0, 0, 0, 0x0f, 0x05]];

/// `endbr64`, where control flow is enforced.
const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// The most rows that are found in one range. Chromium, which has little information but frame
/// pointers, has 3 million.
const FOUND: usize = 1 << 23;

/// The alignment of functions.
const ALIGNMENT: u64 = 16;

/// `int3` and `nop`.
const FILLING: [u8; 2] = [0xcc, 0x90];

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

/// Whether there is nothing but padding between the end of a function and the next one. No
/// instruction there is executed, so that the rows of both may merge.
pub(super) fn is_padding(sections: &Sections<'_>, gap: Range<u64>) -> bool {
    let size = gap.end - gap.start;
    let is_filled = || {
        let code = sections.code_at(gap.start).and_then(|code| code.get(..size as usize));
        code.is_some_and(|code| code.iter().all(|byte| FILLING.contains(byte)))
    };
    size < ALIGNMENT && (gap.end.is_multiple_of(ALIGNMENT) || is_filled())
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
            code_without_rows(Part { vaddr: from, bytes: &part.bytes[first..after] }, &mut found);
        }
    }
    // Of two rows for an address, the later is that of the code after it.
    found.sort_by_key(|(vaddr, _)| *vaddr);
    for (vaddr, rule) in found {
        rows.push(vaddr, rule);
    }
}

/// Finds trampolines, and where functions set up and leave their frame. In between, the frame
/// pointer is right, so nothing need be said.
///
/// ```text
///   endbr64              rsp + 8
///   push rbp             rsp + 8
///   mov rbp, rsp         rsp + 16, rbp saved
///   ...
///   pop rbp, or leave
///   ret                  rsp + 8
/// ```
fn code_without_rows(code: Part<'_>, found: &mut Vec<(u64, Rule)>) {
    let frame = |bytes, rbp| Rule::Frame { cfa: Cfa::Rsp(bytes), rbp, rbx: Saved::No };
    let mut has_frames = false;
    for (at, byte) in code.bytes.iter().enumerate() {
        if found.len() > FOUND {
            return;
        }
        let mut add =
            |offset: usize, rule| found.push((code.vaddr.saturating_add((at + offset) as u64), rule));
        let rest = &code.bytes[at..];
        match byte {
            0x48 | 0xb8 => {
                if let Some(bytes) = TRAMPOLINES.iter().find(|bytes| rest.starts_with(bytes)) {
                    add(0, Rule::Signal);
                    add(bytes.len(), Rule::Unsupported);
                }
            }
            0xf3 if rest.starts_with(&ENDBR) && set_up(&rest[ENDBR.len()..]) => add(0, frame(8, Saved::No)),
            0x55 if set_up(rest) => {
                has_frames = true;
                add(0, frame(8, Saved::No));
                add(1, frame(16, Saved::Below(16)));
                add(4, Rule::Unsupported);
            }
            0x5d | 0xc9 if has_frames && rest.get(1) == Some(&0xc3) => {
                add(1, frame(8, Saved::No));
                // The next function often follows, and its first row is the same.
                let filling =
                    rest[2..].iter().take(ALIGNMENT as usize).take_while(|byte| FILLING.contains(byte));
                if !set_up(&rest[2 + filling.count()..]) {
                    add(2, Rule::Unsupported);
                }
            }
            _ => {}
        }
    }
}

/// Whether code begins with `push rbp; mov rbp, rsp`, in either encoding.
fn set_up(code: &[u8]) -> bool {
    code.starts_with(&[0x55, 0x48, 0x89, 0xe5]) || code.starts_with(&[0x55, 0x48, 0x8b, 0xec])
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
