//! Changes to a program's code, and how they are undone.
//!
//! One byte can be written at any time: a thread executes the old instruction or the new one. More
//! bytes are written only while all threads of the address space are held ([`Held`]), many changes
//! at once: bytes that are close together are read, changed and written in one go. Many single
//! bytes are also written together while threads run, if the program cannot write to the pages
//! meanwhile ([`Fixed`]).

use std::io;

use process::{Mapping, Memory};

use crate::hold::Held;
use crate::window::Window;

/// The longest instruction of the processor, in bytes.
pub(crate) const LONGEST: usize = 15;

/// Changes that are closer together than this are written together.
const CLOSE: u64 = 4096;
/// The longest piece that is written in one go.
const PIECE: u64 = 1 << 16;

/// When a change is undone, relative to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Undo {
    /// At once.
    #[default]
    Now,
    /// After the process's changes that are undone first.
    AfterTraps,
    /// When no thread is in its bytes any more. The change may not be in effect.
    WhenUnused,
}

/// A few bytes of code, replaced by others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    address: u64,
    length: u8,
    undone: Undo,
    original: [u8; LONGEST],
    written: [u8; LONGEST],
}

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Change({:#x}: {:02x?} for {:02x?})", self.address, self.written(), self.original())
    }
}

impl Change {
    /// The change of `original` at `address` to `written`, of the same length.
    ///
    /// # Panics
    /// The lengths differ, or are not 1 to [`LONGEST`].
    pub(crate) fn new(address: u64, original: &[u8], written: &[u8]) -> Change {
        assert!(
            original.len() == written.len() && (1..=LONGEST).contains(&original.len()),
            "the lengths of a change"
        );
        let (length, all) = (original.len() as u8, [0; LONGEST]);
        let mut change = Change { address, length, undone: Undo::Now, original: all, written: all };
        change.original[..original.len()].copy_from_slice(original);
        change.written[..written.len()].copy_from_slice(written);
        change
    }

    /// The same change with another time of undoing.
    pub(crate) fn undone(self, undone: Undo) -> Change {
        Change { undone, ..self }
    }

    /// The same change for code that is `by` bytes higher.
    pub(crate) fn moved(self, by: u64) -> Change {
        Change { address: self.address.wrapping_add(by), ..self }
    }

    /// When it is undone.
    pub(crate) fn when(&self) -> Undo {
        self.undone
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// The program's bytes.
    pub(crate) fn original(&self) -> &[u8] {
        &self.original[..usize::from(self.length)]
    }

    /// The bytes written instead.
    pub(crate) fn written(&self) -> &[u8] {
        &self.written[..usize::from(self.length)]
    }

    /// Whether memory has the written bytes there.
    pub(crate) fn is_in(&self, memory: &Window<'_>) -> bool {
        self.found(memory).is_some_and(|found| found[..self.written().len()] == *self.written())
    }

    fn found(&self, memory: &Window<'_>) -> Option<[u8; LONGEST]> {
        let mut found = [0; LONGEST];
        memory.peek(self.address, &mut found[..usize::from(self.length)]).ok()?;
        Some(found)
    }

    /// Replaces written bytes by the program's where this change overlaps `bytes`, which were read
    /// at `address`.
    pub(crate) fn hide(&self, address: u64, bytes: &mut [u8]) {
        for (place, (original, written)) in self.original().iter().zip(self.written()).enumerate() {
            let here =
                (self.address + place as u64).checked_sub(address).and_then(|at| bytes.get_mut(at as usize));
            if let Some(byte) = here.filter(|byte| **byte == *written) {
                *byte = *original;
            }
        }
    }

    /// Writes a change of one byte. Longer changes need all threads held: [`Batch`].
    pub(crate) fn write_byte(&self, memory: &Memory) -> io::Result<()> {
        debug_assert_eq!(self.length, 1, "one byte is written while threads run");
        memory.poke(self.address, &self.written()[..1])
    }

    /// Undoes a change of one byte, unless another byte is there by now.
    pub(crate) fn restore_byte(&self, memory: &Memory) {
        debug_assert_eq!(self.length, 1, "one byte is written while threads run");
        let mut found = [0];
        if memory.peek(self.address, &mut found).is_ok() && found == self.written()[..1] {
            // Fails only if the process is gone or has unmapped the page meanwhile.
            let _ = memory.poke(self.address, &self.original()[..1]);
        }
    }
}

/// Changes to be made or undone together.
#[derive(Debug, Default)]
pub(crate) struct Batch(Vec<(Change, Direction)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    In,
    Out,
}

impl Batch {
    /// Adds a change to be made.
    pub(crate) fn put_in(&mut self, change: Change) {
        self.0.push((change, Direction::In));
    }

    /// Adds a change to be undone. A byte that is not the one written stays.
    pub(crate) fn take_out(&mut self, change: Change) {
        self.0.push((change, Direction::Out));
    }

    /// Sorts the changes by address in advance, which makes the writing faster.
    pub(crate) fn sort(&mut self) {
        self.0.sort_by_key(|(change, _)| change.address);
    }

    /// The changes to be made.
    pub(crate) fn made(&self) -> Vec<Change> {
        let made = self.0.iter().filter(|(_, direction)| *direction == Direction::In);
        made.map(|(change, _)| *change).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of changes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Makes the changes. If one cannot be written, the rest are still written.
    ///
    /// # Errors
    /// The first error; one of unmapped memory ([`is_of_unmapped_memory`]) only if there is no
    /// other.
    pub(crate) fn write(self, memory: &Memory, _held: &Held) -> io::Result<()> {
        self.write_pieces(memory)
    }

    /// Makes changes of one byte each while threads run.
    ///
    /// # Errors
    /// As of [`Batch::write`].
    pub(crate) fn write_bytes(self, memory: &Memory, fixed: &Fixed) -> io::Result<()> {
        debug_assert!(
            self.0.iter().all(|(change, _)| change.length == 1),
            "one byte is written while threads run"
        );
        let is_last = |(change, direction): &(Change, Direction)| {
            change.undone == Undo::AfterTraps && *direction == Direction::Out
        };
        let (last, first): (Vec<_>, Vec<_>) = self.0.into_iter().partition(is_last);
        let result = write_bytes_together(first, memory, fixed);
        let rest = write_bytes_together(last, memory, fixed);
        first_error(result, rest)
    }

    fn write_pieces(mut self, memory: &Memory) -> io::Result<()> {
        self.sort();
        let mut result = Ok(());
        let mut rest = &self.0[..];
        let mut bytes = Vec::new();
        while let Some((first, _)) = rest.first() {
            let start = first.address;
            let mut end = start;
            let count = rest
                .iter()
                .take_while(|(change, _)| {
                    let near =
                        end == start || (change.address < end + CLOSE && change.address - start < PIECE);
                    if near {
                        end = end.max(change.address + u64::from(change.length));
                    }
                    near
                })
                .count();
            let (piece, others) = rest.split_at(count);
            rest = others;
            bytes.resize((end - start) as usize, 0);
            if write_piece(memory, start, &mut bytes, piece).is_err() {
                // One of them may be in unmapped memory: tries each by itself.
                result = piece.iter().fold(result, |result, one| {
                    let length = usize::from(one.0.length);
                    let bytes = &mut bytes[..length];
                    first_error(result, write_piece(memory, one.0.address, bytes, std::slice::from_ref(one)))
                });
            }
        }
        result
    }
}

/// Code that the program cannot change: private mappings without write permission.
#[derive(Debug, Default)]
pub(crate) struct Fixed(Vec<(u64, u64)>);

impl Fixed {
    /// The fixed code of a process.
    pub(crate) fn of(mappings: &[Mapping]) -> Fixed {
        let fixed =
            mappings.iter().filter(|mapping| mapping.executable && !mapping.writable && !mapping.shared);
        Fixed(fixed.map(|mapping| (mapping.start, mapping.end)).collect())
    }

    fn holds(&self, address: u64) -> bool {
        let behind = self.0.partition_point(|&(start, _)| start <= address);
        behind.checked_sub(1).is_some_and(|place| address < self.0[place].1)
    }
}

/// Makes changes of one byte each while threads run; together where the code is fixed.
fn write_bytes_together(changes: Vec<(Change, Direction)>, memory: &Memory, fixed: &Fixed) -> io::Result<()> {
    let (fixed, others): (Vec<_>, Vec<_>) =
        changes.into_iter().partition(|(change, _)| fixed.holds(change.address));
    let result = Batch(fixed).write_pieces(memory);
    others.into_iter().fold(result, |result, one| {
        let written = write_piece(memory, one.0.address, &mut [0], std::slice::from_ref(&one));
        first_error(result, written)
    })
}

/// Whether memory was not written since it is not mapped (any more), or since the process is gone:
/// its memory then reads as an empty file.
pub(crate) fn is_of_unmapped_memory(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::ESRCH))
        || error.kind() == io::ErrorKind::UnexpectedEof
}

/// The first of two errors, but one of unmapped memory only if the other is of the same kind.
fn first_error(first: io::Result<()>, second: io::Result<()>) -> io::Result<()> {
    match (first, second) {
        (Err(first), Err(second)) if is_of_unmapped_memory(&first) => Err(second),
        (Err(first), _) => Err(first),
        (Ok(()), second) => second,
    }
}

/// Makes changes that are in one piece of memory.
fn write_piece(
    memory: &Memory,
    start: u64,
    bytes: &mut [u8],
    piece: &[(Change, Direction)],
) -> io::Result<()> {
    memory.peek(start, bytes)?;
    for (change, direction) in piece {
        match direction {
            Direction::Out => change.hide(start, bytes),
            Direction::In => {
                let at = (change.address - start) as usize;
                bytes[at..at + change.written().len()].copy_from_slice(change.written());
            }
        }
    }
    memory.poke(start, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_is_restored_unless_somebody_else_has_written_there() {
        let mut code = Box::new([0x55_u8, 0x56, 0x57]);
        let base = code.as_mut_ptr() as u64;
        let memory = Memory::open(std::process::id() as i32).expect("own memory");
        let found = || {
            let mut found = [0; 3];
            memory.peek(base, &mut found).expect("own memory");
            found
        };
        let change = Change::new(base + 1, &[0x56], &[0xcc]);
        change.write_byte(&memory).expect("own memory");
        assert_eq!(found(), [0x55, 0xcc, 0x57]);
        change.restore_byte(&memory);
        assert_eq!(found(), [0x55, 0x56, 0x57]);
        memory.poke(base + 1, &[0x90]).expect("own memory");
        change.restore_byte(&memory);
        assert_eq!(found(), [0x55, 0x90, 0x57]);
        // Nothing is there: nothing happens.
        Change::new(16, &[0x56], &[0xcc]).restore_byte(&memory);
    }

    #[test]
    fn changes_are_made_and_undone_together() {
        let mut code: Vec<u8> = (0..20_000u32).map(|byte| (byte % 251) as u8).collect();
        code.shrink_to_fit();
        let before = code.clone();
        let base = code.as_ptr() as u64;
        let memory = Memory::open(std::process::id() as i32).expect("own memory");
        let places = [3usize, 8, 4100, 12_000, 19_990];
        let changes: Vec<Change> = places
            .iter()
            .map(|&place| {
                Change::new(base + place as u64, &before[place..place + 5], &[0xe9, 1, 2, 3, place as u8])
            })
            .collect();
        let held = Held::of_one();
        let mut batch = Batch::default();
        changes.iter().rev().for_each(|change| batch.put_in(*change));
        batch.write(&memory, &held).expect("own memory");
        let window = Window::new(&memory);
        assert!(changes.iter().all(|change| change.is_in(&window)));
        let mut seen = vec![0; before.len()];
        memory.peek(base, &mut seen).expect("own memory");
        let mut expected = before.clone();
        for &place in &places {
            expected[place..place + 5].copy_from_slice(&[0xe9, 1, 2, 3, place as u8]);
        }
        assert!(seen == expected, "all are there, and nothing else");
        for change in &changes {
            change.hide(base, &mut seen);
        }
        assert_eq!(seen, before);
        // Somebody else has written over a byte of one: that byte stays.
        memory.poke(base + 4101, &[0x90]).expect("own memory");
        let mut batch = Batch::default();
        changes.iter().for_each(|change| batch.take_out(*change));
        batch.write(&memory, &held).expect("own memory");
        memory.peek(base, &mut seen).expect("own memory");
        let differ: Vec<usize> = (0..seen.len()).filter(|&at| seen[at] != before[at]).collect();
        assert_eq!(differ, [4101]);
    }

    #[test]
    fn single_bytes_are_written_together_only_where_the_program_cannot_write() {
        let mapping = |start, writable, shared| Mapping {
            start,
            end: start + 0x1000,
            readable: true,
            writable,
            executable: true,
            shared,
            offset: 0,
            device: (0, 0),
            inode: 0,
            path: None,
            label: None,
            deleted: false,
        };
        let fixed = Fixed::of(&[
            mapping(0x1000, false, false),
            mapping(0x2000, true, false),
            mapping(0x3000, false, true),
            mapping(0x5000, false, false),
        ]);
        let held = [0xfff, 0x1000, 0x1fff, 0x2000, 0x3000, 0x4fff, 0x5000, 0x6000].map(|at| fixed.holds(at));
        assert_eq!(held, [false, true, true, false, false, false, true, false]);
        let before: Vec<u8> = (0..9000u32).map(|byte| (byte % 251) as u8).collect();
        for fixed in [Fixed::default(), Fixed(vec![(0, u64::MAX)])] {
            let code = before.clone();
            let base = code.as_ptr() as u64;
            let memory = Memory::open(std::process::id() as i32).expect("own memory");
            let changes: Vec<Change> = [5000usize, 7, 8, 8999]
                .iter()
                .map(|&place| Change::new(base + place as u64, &before[place..=place], &[0xcc]))
                .collect();
            let mut batch = Batch::default();
            changes.iter().for_each(|change| batch.put_in(*change));
            batch.write_bytes(&memory, &fixed).expect("own memory");
            let mut seen = vec![0; before.len()];
            memory.peek(base, &mut seen).expect("own memory");
            assert_eq!([seen[6], seen[7], seen[8], seen[5000], seen[8999]], [6, 0xcc, 0xcc, 0xcc, 0xcc]);
            let mut batch = Batch::default();
            changes.iter().for_each(|change| batch.take_out(*change));
            batch.write_bytes(&memory, &fixed).expect("own memory");
            memory.peek(base, &mut seen).expect("own memory");
            assert!(seen == before);
        }
    }

    #[test]
    fn what_cannot_be_written_does_not_keep_the_rest() {
        let code = [0x55u8; 64];
        let base = code.as_ptr() as u64;
        let memory = Memory::open(std::process::id() as i32).expect("own memory");
        let mut batch = Batch::default();
        batch.put_in(Change::new(0x10, &[1], &[2]));
        batch.put_in(Change::new(base, &[0x55], &[0xcc]));
        assert!(batch.write(&memory, &Held::of_one()).is_err());
        let mut byte = [0];
        memory.peek(base, &mut byte).expect("own memory");
        assert_eq!(byte, [0xcc]);
    }
}
