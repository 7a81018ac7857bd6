//! The breakpoints that the kernel's uprobes have put into a process.
//!
//! The kernel writes `int3` over the first byte of an instruction, in a page of code that the
//! process gets for itself. Over a no-operation of five bytes it may write a call later (Linux
//! 6.18). So the pages of code that are the process's own are compared with their files.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use process::{Mapping, Memory, Page, PageMap};

use super::memory::PAGE;
use crate::change::{Change, LONGEST};

const INT3: u8 = 0xcc;
const CALL: u8 = 0xe8;
/// The no-operation.
const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// Memory of the kernel's uprobes in a process, which is not shown: where displaced instructions
/// are executed, and where such calls go to.
pub(super) fn kernel_memory(mappings: &[Mapping]) -> impl Iterator<Item = Range<u64>> {
    let is_one =
        |mapping: &&Mapping| mapping.label.as_deref().is_some_and(|label| label.starts_with("[uprobes"));
    mappings.iter().filter(is_one).map(|mapping| mapping.start..mapping.end)
}

/// The kernel's changes to the code of a process. What cannot be read has none that are known.
pub(super) fn kernel_changes(
    pid: i32,
    memory: &Memory,
    mappings: &[Mapping],
    pages: &PageMap,
) -> Vec<Change> {
    let mut changes = Vec::new();
    let code = mappings.iter().filter(|it| it.executable && !it.shared && it.inode != 0);
    for mapping in code {
        let Ok(file) = File::open(format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end))
        else {
            continue;
        };
        // Fails only if the process is gone.
        let _ = pages.runs(mapping.start..mapping.end, |run| {
            if run.page == Page::Private {
                let places = run.addresses.step_by(PAGE as usize);
                places.for_each(|place| changes.extend(of_page(place, memory, &file, mapping)));
            }
        });
    }
    changes
}

/// The changes of one page.
fn of_page(place: u64, memory: &Memory, file: &File, mapping: &Mapping) -> Vec<Change> {
    // A call may reach into the next page.
    let mut now = [0; PAGE as usize + LONGEST];
    let length = if memory.peek(place, &mut now).is_ok() { now.len() } else { PAGE as usize };
    let now = &mut now[..length];
    let mut before = [0; PAGE as usize + LONGEST];
    let offset = mapping.offset + (place - mapping.start);
    let (Ok(()), Ok(read)) = (memory.peek(place, now), file.read_at(&mut before[..length], offset)) else {
        return Vec::new();
    };
    let found = differences(&before[..read], &now[..read]);
    found.map(|at| Change::new(place + at.start as u64, &before[at.clone()], &now[at])).collect()
}

/// Where the code has a breakpoint, or a call for one, and the file has not.
fn differences(before: &[u8], now: &[u8]) -> impl Iterator<Item = Range<usize>> {
    (0..before.len().min(PAGE as usize)).filter_map(move |at| {
        let is_nop = before[at..].starts_with(&NOP5) && now.len() >= at + NOP5.len();
        match now[at] {
            byte if byte == before[at] => None,
            // Between the two, its other bytes are written before the first one.
            INT3 | CALL if is_nop => Some(at..at + NOP5.len()),
            INT3 => Some(at..at + 1),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breakpoints_and_calls_are_told_from_what_the_program_has_written() {
        let before = [0x55, 0x90, 0xcc, 0x0f, 0x1f, 0x44, 0x00, 0x00, 0x48, 0x0f, 0x1f, 0x44, 0x00, 0x00];
        let found = |now: &[u8]| differences(&before, now).collect::<Vec<_>>();
        assert_eq!(found(&before), []);
        let mut now = before;
        now[0] = INT3;
        now[1] = 0x91;
        now[3..8].copy_from_slice(&[CALL, 1, 2, 3, 4]);
        now[8] = CALL;
        now[9] = INT3;
        assert_eq!(found(&now), [0..1, 3..8, 9..14]);
    }
}
