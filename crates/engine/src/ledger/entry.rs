//! One entry of a ledger, in memory shared by two processes.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::change::{Change, LONGEST, Undo};

/// In an entry's origin: the change is undone last, or once no thread is in its bytes.
const LAST: u64 = 0x40;
const IDLE: u64 = 0x80;

/// In an origin, instead of a number of bytes: the entry is for memory.
const PIECE: u64 = 0x3d;
const TABLE: u64 = 0x3e;
const GUARD: u64 = 0x3f;

/// The use of memory that is mapped for probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Piece {
    /// Used by probes.
    Probes,
    /// Read by the guard's handler.
    Table,
    /// The guard: code, words, and room for frames.
    Guard,
}

/// Memory that is mapped for the probes of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mapped {
    /// Where it begins.
    pub(crate) base: u64,
    /// Bytes of it.
    pub(crate) size: u64,
    /// What it is.
    pub(crate) piece: Piece,
}

/// In an origin, instead of a number of bytes: the entry refers to a list of changes in one
/// process.
const LISTED: u64 = 0x3c;

/// In an origin, instead of a number of bytes: the entry is for a counter of two bytes that was
/// counted up.
const COUNTER: u64 = 0x3b;

/// A change in one process, a change of a list, or a list applied in one process.
#[repr(C)]
pub(super) struct Entry {
    address: AtomicU64,
    pub(super) origin: AtomicU64,
    original: [AtomicU64; 2],
    written: [AtomicU64; 2],
}

/// The content of an entry.
pub(super) enum Content {
    /// A change in a process. Process 0: the change belongs to a list.
    Change(i32, Change),
    /// All changes of a list were made in a process, `by` bytes higher. The list is `count` entries
    /// from `first` on.
    List { process: i32, first: usize, count: usize, by: u64 },
}

impl Entry {
    /// Writes a change.
    pub(super) fn write(&self, process: i32, change: &Change) {
        let store = |words: &[AtomicU64; 2], bytes: &[u8]| {
            let mut all = [0; 16];
            all[..bytes.len()].copy_from_slice(bytes);
            let all = u128::from_le_bytes(all);
            words[0].store(all as u64, Ordering::Relaxed);
            words[1].store((all >> 64) as u64, Ordering::Relaxed);
        };
        store(&self.original, change.original());
        store(&self.written, change.written());
        let undone = match change.when() {
            Undo::Now => 0,
            Undo::AfterTraps => LAST,
            Undo::WhenUnused => IDLE,
        };
        let origin = (process as u32 as u64) << 8 | undone | change.written().len() as u64;
        self.origin.store(origin, Ordering::Relaxed);
        self.address.store(change.address(), Ordering::Release);
    }

    /// Writes that the changes of a list are made in a process.
    pub(super) fn write_list(&self, process: i32, first: usize, count: usize, by: u64) {
        self.original[0].store(count as u64, Ordering::Relaxed);
        self.written[0].store(by, Ordering::Relaxed);
        self.origin.store((process as u32 as u64) << 8 | LISTED, Ordering::Relaxed);
        self.address.store(first as u64 + 1, Ordering::Release);
    }

    /// Writes that memory is mapped in a process.
    pub(super) fn write_memory(&self, process: i32, memory: Mapped) {
        let piece = match memory.piece {
            Piece::Probes => PIECE,
            Piece::Table => TABLE,
            Piece::Guard => GUARD,
        };
        self.original[0].store(memory.size, Ordering::Relaxed);
        self.origin.store((process as u32 as u64) << 8 | piece, Ordering::Relaxed);
        self.address.store(memory.base, Ordering::Release);
    }

    /// Writes that a counter is counted up in a process.
    pub(super) fn write_counter(&self, process: i32, address: u64) {
        self.origin.store((process as u32 as u64) << 8 | COUNTER, Ordering::Relaxed);
        self.address.store(address, Ordering::Release);
    }

    /// The process and the address, if the entry is for a counter.
    pub(super) fn counter(&self) -> Option<(i32, u64)> {
        let address = self.address.load(Ordering::Acquire);
        let origin = self.origin.load(Ordering::Relaxed);
        (address != 0 && origin & 0xff == COUNTER).then_some(((origin >> 8) as i32, address))
    }

    /// Frees the entry.
    pub(super) fn clear(&self) {
        self.address.store(0, Ordering::Release);
    }

    /// The change or list, unless the entry is free.
    pub(super) fn content(&self) -> Option<Content> {
        let address = self.address.load(Ordering::Acquire);
        let origin = self.origin.load(Ordering::Relaxed);
        if address != 0 && origin & 0xff == LISTED {
            return Some(Content::List {
                process: (origin >> 8) as i32,
                first: address as usize - 1,
                count: self.original[0].load(Ordering::Relaxed) as usize,
                by: self.written[0].load(Ordering::Relaxed),
            });
        }
        self.read().map(|(process, change)| Content::Change(process, change))
    }

    /// The process and the change, unless the entry is free.
    pub(super) fn read(&self) -> Option<(i32, Change)> {
        let address = self.address.load(Ordering::Acquire);
        let origin = self.origin.load(Ordering::Relaxed);
        let length = (origin & 0x3f) as usize;
        if address == 0 || !(1..=LONGEST).contains(&length) {
            return None;
        }
        let bytes = |words: &[AtomicU64; 2]| -> [u8; 16] {
            let [low, high] = words.each_ref().map(|word| u128::from(word.load(Ordering::Relaxed)));
            (low | high << 64).to_le_bytes()
        };
        let (original, written) = (bytes(&self.original), bytes(&self.written));
        let change = Change::new(address, &original[..length], &written[..length]);
        let undone = match origin & 0xc0 {
            LAST => Undo::AfterTraps,
            IDLE => Undo::WhenUnused,
            _ => Undo::Now,
        };
        Some(((origin >> 8) as i32, change.undone(undone)))
    }

    /// The process and the memory, if the entry is for memory.
    pub(super) fn memory(&self) -> Option<(i32, Mapped)> {
        let base = self.address.load(Ordering::Acquire);
        let origin = self.origin.load(Ordering::Relaxed);
        let piece = match origin & 0xff {
            PIECE => Piece::Probes,
            TABLE => Piece::Table,
            GUARD => Piece::Guard,
            _ => return None,
        };
        let size = self.original[0].load(Ordering::Relaxed);
        (base != 0).then_some(((origin >> 8) as i32, Mapped { base, size, piece }))
    }
}
