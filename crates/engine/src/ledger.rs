//! What is changed in which process, kept where it outlives the tracer.
//!
//! A tracer that is killed leaves its `int3`s behind, and an untraced program dies of the next one it reaches. The
//! ledger lies in memory shared with another process, which can then put the bytes back ([`Ledger::restore`]). It
//! is an array of entries of 48 bytes:
//!
//! ```text
//! +0   address of the change, or 0: the entry is free
//! +8   process << 8 | when it is put back ([`Undone`]) << 6 | number of bytes, 1 to 15
//! +16  the program's bytes
//! +32  the bytes written in their place
//! ```
//!
//! An entry is complete before its bytes are written and is freed after they are restored, so at any moment every
//! change in a process has an entry.
//!
//! The sign of life is in the same case: the page by which probed processes see that their records are read. When the tracer has died, it
//! says so, and threads that wait for room in a ring go on.
//!
//! One byte, an `int3`, is put back at once. More bytes are put back while all threads of their process are held; where
//! that cannot be, they stay: they are jumps, and the memory that they lead to stays mapped, so the program runs on.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use process::Memory;

use crate::change::{Batch, Change, Fixed, LONGEST, Undone};
use crate::jump::{Pulse, Sign};
use crate::orphan;

/// Entries of a ledger: one for each change in each process. Memory is used only for those that are; where there are limits, there are
/// fewer.
const CAPACITIES: [usize; 3] = [1 << 22, 1 << 18, 1 << 14];

/// In an entry's origin: the change is put back last, or when no thread is there.
const LAST: u64 = 0x40;
const IDLE: u64 = 0x80;

/// One change in one process.
#[repr(C)]
struct Entry {
    address: AtomicU64,
    origin: AtomicU64,
    original: [AtomicU64; 2],
    written: [AtomicU64; 2],
}

impl Entry {
    /// The process and the change, unless the entry is free.
    fn read(&self) -> Option<(i32, Change)> {
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
            LAST => Undone::Last,
            IDLE => Undone::Idle,
            _ => Undone::First,
        };
        Some(((origin >> 8) as i32, change.undone(undone)))
    }
}

/// What came of putting the bytes back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Sites, or changes beside them, that are as before.
    pub restored: usize,
    /// Processes in which changes stay.
    pub left: Vec<Left>,
    /// Changes in children for which there was no room: they stay.
    pub unknown: u64,
    /// Processes in which the few bytes stay that were lent for a call, since a thread needs them for its way back, and why.
    pub lent: Vec<(i32, String)>,
}

/// A process in which changes stay: jumps, which work, and traps, which it answers itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The process.
    pub pid: i32,
    /// How many.
    pub changes: usize,
    /// Why.
    pub reason: String,
}

impl Restored {
    /// Takes what came of the changes of one process. One that is gone has none.
    fn note(&mut self, pid: i32, changes: usize, result: Result<(), process::Error>) {
        match result {
            Ok(()) => self.restored += changes,
            Err(error) if error.is_gone() => {}
            Err(error) => self.left.push(Left { pid, changes, reason: error.to_string() }),
        }
    }
}

/// There is no room for another change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "there is no room left to note what is changed, by which the program's bytes are put back if the tracer is killed",
        )
    }
}

impl From<Full> for io::Error {
    fn from(full: Full) -> io::Error {
        io::Error::new(io::ErrorKind::OutOfMemory, full.to_string())
    }
}

/// A ledger. Made before the tracer's process is forked off, it is shared by both.
pub struct Ledger {
    /// One more than there are changes: the origin of the last one is how many were not entered.
    entries: NonNull<Entry>,
    capacity: usize,
    /// Entries that were used and are free, and how many have ever been used; the tracer's own.
    free: RefCell<(Vec<usize>, usize)>,
    /// By what processes see that their tracer reads; without it all probes are traps.
    sign: Option<Arc<Sign>>,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ledger {{ used: {} }}", self.free.borrow().1)
    }
}

impl Ledger {
    /// An empty ledger in memory that processes forked later share.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new() -> io::Result<Ledger> {
        let mut made = Err(io::ErrorKind::OutOfMemory.into());
        for capacity in CAPACITIES {
            made = Ledger::with_capacity(capacity);
            if made.is_ok() {
                break;
            }
        }
        made
    }

    /// One with room for so many changes.
    fn with_capacity(capacity: usize) -> io::Result<Ledger> {
        // SAFETY: a fresh mapping, zeroed by the kernel.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                (capacity + 1) * size_of::<Entry>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        match NonNull::new(memory.cast::<Entry>()) {
            Some(entries) if memory != libc::MAP_FAILED => {
                Ok(Ledger { entries, capacity, free: RefCell::default(), sign: Sign::new().ok() })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The sign of life of the tracer.
    pub(crate) fn sign(&self) -> Option<Arc<Sign>> {
        self.sign.clone()
    }

    /// By what processes see that their records are read; `None` where none share memory with the tracer.
    pub fn pulse(&self) -> Option<Pulse> {
        self.sign().map(Pulse)
    }

    fn entries(&self) -> &[Entry] {
        // SAFETY: the mapping has this many entries, lives as long as `self`, and atomics may be shared.
        unsafe { std::slice::from_raw_parts(self.entries.as_ptr(), self.capacity) }
    }

    /// How many changes were made without an entry.
    fn unknown(&self) -> &AtomicU64 {
        // SAFETY: the mapping has one entry more than `capacity`, lives as long as `self`, and atomics may be shared.
        unsafe { &self.entries.add(self.capacity).as_ref().origin }
    }

    /// Whether there is room for so many more changes.
    pub(crate) fn has_room(&self, more: usize) -> Result<(), Full> {
        let free = self.free.borrow();
        if self.capacity - free.1 + free.0.len() >= more { Ok(()) } else { Err(Full) }
    }

    /// Changes have come with a child's memory for which there is no room: nobody puts them back but the tracer.
    pub(crate) fn misses(&self, changes: usize) {
        self.unknown().fetch_add(changes as u64, Ordering::Relaxed);
    }

    /// Enters a change that is about to be made; dropping what is returned strikes it out again.
    pub(crate) fn enter(self: &Rc<Self>, process: i32, change: &Change) -> Result<Entered, Full> {
        let mut free = self.free.borrow_mut();
        let number = match free.0.pop() {
            Some(number) => number,
            None if free.1 < self.capacity => {
                free.1 += 1;
                free.1 - 1
            }
            None => return Err(Full),
        };
        let entry = &self.entries()[number];
        let store = |words: &[AtomicU64; 2], bytes: &[u8]| {
            let mut all = [0; 16];
            all[..bytes.len()].copy_from_slice(bytes);
            let all = u128::from_le_bytes(all);
            words[0].store(all as u64, Ordering::Relaxed);
            words[1].store((all >> 64) as u64, Ordering::Relaxed);
        };
        store(&entry.original, change.original());
        store(&entry.written, change.written());
        let undone = match change.when() {
            Undone::First => 0,
            Undone::Last => LAST,
            Undone::Idle => IDLE,
        };
        let origin = (process as u32 as u64) << 8 | undone | change.written().len() as u64;
        entry.origin.store(origin, Ordering::Relaxed);
        entry.address.store(change.address(), Ordering::Release);
        Ok(Entered { ledger: Rc::clone(self), number })
    }

    fn strike(&self, number: usize) {
        self.entries()[number].address.store(0, Ordering::Release);
        self.free.borrow_mut().0.push(number);
    }

    /// Puts back the bytes of all changes entered, on behalf of a tracer that has died: first where all are traps, which is done at once.
    /// Before that, nobody waits any more for it to read.
    pub fn restore(&self) -> Restored {
        self.sign.iter().for_each(|sign| sign.abandon());
        let mut done = Restored { unknown: self.unknown().load(Ordering::Relaxed), ..Restored::default() };
        let mut all: BTreeMap<i32, Vec<Change>> = BTreeMap::new();
        // Entries are used from the first on; one that was never used has no origin.
        let used = self.entries().iter().take_while(|entry| entry.origin.load(Ordering::Relaxed) != 0);
        let mut lent = Vec::new();
        for (process, change) in used.filter_map(Entry::read) {
            match change.when() {
                Undone::Idle => lent.push((process, change)),
                _ => all.entry(process).or_default().push(change),
            }
        }
        // A jump's last bytes may be a neighbour's: where there are any, all bytes change at once.
        let trap = |change: &Change| change.written().len() == 1;
        let (traps, jumps): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(_, changes)| changes.iter().all(trap));
        for (process, changes) in traps {
            match Memory::open(process) {
                Ok(memory) => {
                    // Every moment counts: until then a thread that comes to one with SIGTRAP blocked dies, and its process.
                    let fixed = Fixed::of(&process::maps(process).unwrap_or_default());
                    let mut batch = Batch::default();
                    changes.iter().for_each(|change| batch.take_out(*change));
                    match batch.write_bytes(&memory, &fixed) {
                        // Where the process is gone, or has unmapped the page, nothing of ours is left.
                        Err(error) if !matches!(error.raw_os_error(), Some(libc::EIO | libc::ESRCH)) => {
                            let (changes, reason) = (changes.len(), error.to_string());
                            done.left.push(Left { pid: process, changes, reason });
                        }
                        _ => done.restored += changes.len(),
                    }
                }
                Err(error) => done.note(process, changes.len(), Err(error)),
            }
        }
        for (process, changes) in jumps {
            let held = orphan::held(process, &changes, |memory, held| {
                let mut batch = Batch::default();
                changes.iter().for_each(|change| batch.take_out(*change));
                batch.write(memory, held)
            });
            done.note(process, changes.len(), held);
        }
        for (process, change) in lent {
            match orphan::give_back(process, &change) {
                Err(error) if !error.is_gone() => done.lent.push((process, error.to_string())),
                _ => {}
            }
        }
        done
    }
}

/// A site's place in a ledger, as long as the site is armed.
#[derive(Debug)]
pub(crate) struct Entered {
    ledger: Rc<Ledger>,
    number: usize,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.ledger.strike(self.number);
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new`, and no reference to it is left.
        unsafe { libc::munmap(self.entries.as_ptr().cast(), (self.capacity + 1) * size_of::<Entry>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a static, as they are now: another way has written there.
    fn now<const N: usize>(code: &[u8]) -> [u8; N] {
        // SAFETY: reads of a static, within it.
        std::array::from_fn(|place| unsafe { std::ptr::from_ref(&code[place]).read_volatile() })
    }

    #[test]
    fn what_was_entered_and_not_struck_out_is_restored() {
        static CODE: [u8; 64] = [0xcc; 64];
        let int3 = |place: usize, original| {
            Change::new(std::ptr::from_ref(&CODE[place]) as u64, &[original], &[0xcc])
        };
        let pid = std::process::id() as i32;
        let ledger = Rc::new(Ledger::new().expect("memory"));
        let first = ledger.enter(pid, &int3(1, 0x55)).expect("room");
        let second = ledger.enter(pid, &int3(2, 0x90)).expect("room");
        drop(first);
        assert_eq!(ledger.restore(), Restored { restored: 1, ..Restored::default() });
        drop(second);
        assert_eq!(now(&CODE), [0xcc, 0xcc, 0x90]);
        let third = ledger.enter(pid, &int3(3, 0x55)).expect("room");
        assert!(third.number < 2, "a free entry is used again");
    }

    #[test]
    fn a_change_of_many_bytes_is_entered_whole() {
        let ledger = Rc::new(Ledger::new().expect("memory"));
        let original: Vec<u8> = (1..=15).collect();
        let written: Vec<u8> = (101..=115).collect();
        let change = Change::new(0x7fff_1234_5678, &original, &written);
        let _entered = ledger.enter(4711, &change).expect("room");
        assert_eq!(ledger.entries()[0].read(), Some((4711, change)));
    }

    #[test]
    fn a_jump_stays_where_its_threads_cannot_be_held() {
        static CODE: [u8; 64] = [0xe9; 64];
        let ledger = Rc::new(Ledger::new().expect("memory"));
        let change = Change::new(std::ptr::from_ref(&CODE[1]) as u64, &[1, 2], &[0xe9, 0xe9]);
        // Nobody can trace itself.
        let _entered = ledger.enter(std::process::id() as i32, &change).expect("room");
        let restored = ledger.restore();
        assert_eq!((restored.restored, restored.unknown), (0, 0));
        assert_eq!(restored.left.iter().map(|left| left.changes).collect::<Vec<_>>(), [1]);
        assert_eq!(now(&CODE), [0xe9; 3]);
    }

    #[test]
    fn a_full_ledger_takes_nothing_and_loses_nothing() {
        let ledger = Rc::new(Ledger::with_capacity(4).expect("memory"));
        let change = |place: u64| Change::new(place, &[0x55], &[0xcc]);
        let mut entered: Vec<Entered> =
            (1..=4).map(|place| ledger.enter(4711, &change(place)).expect("room")).collect();
        assert_eq!(ledger.enter(4711, &change(5)).err(), Some(Full));
        assert_eq!(ledger.has_room(1), Err(Full));
        ledger.misses(3);
        assert_eq!(ledger.restore().unknown, 3);
        entered.pop();
        assert_eq!((ledger.has_room(1), ledger.has_room(2)), (Ok(()), Err(Full)));
        assert!(ledger.enter(4711, &change(6)).is_ok());
    }

    #[test]
    fn a_process_that_nothing_can_be_done_with_is_left() {
        let mut done = Restored::default();
        let failed = |errno| process::Error::Refused {
            what: "tracing",
            pid: 7,
            cause: io::Error::from_raw_os_error(errno),
        };
        done.note(7, 3, Err(failed(libc::EPERM)));
        done.note(8, 3, Err(process::Error::Gone { pid: 8 }));
        done.note(9, 2, Ok(()));
        assert_eq!((done.restored, done.left.len(), done.left[0].pid, done.left[0].changes), (2, 1, 7, 3));
    }
}
