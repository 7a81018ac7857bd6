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
//! Changes that are made in many processes, at other addresses of each, are listed once: the entries of the list are of process 0, which is none. For each process
//! one entry says which list, and by how much farther:
//!
//! ```text
//! +0   number of the list's first entry, and 1
//! +8   process << 8 | 0x3c
//! +16  how many entries the list has
//! +32  how much farther
//! ```
//!
//! Memory that is mapped for probes has entries of the same size, by which it is unmapped when the bytes are back ([`Ledger::give_back`]):
//!
//! ```text
//! +0   where it begins, or 0
//! +8   process << 8 | what it is ([`Piece`])
//! +16  bytes of it
//! ```
//!
//! An entry of a change is complete before its bytes are written and is freed after they are restored, so at any moment every
//! change in a process has an entry.
//!
//! The sign of life is in the same case: the page by which probed processes see that their records are read. When the tracer has died, it
//! says so, and threads that wait for room in a ring go on.
//!
//! One byte, an `int3`, is put back at once. More bytes are put back while all threads of their process are held; where
//! that cannot be, they stay: they are jumps, and the memory that they lead to stays mapped, so the program runs on.

mod entered;
mod entry;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use process::Memory;

use crate::change::{Batch, Change, Fixed, Undone};
use crate::jump::{Pulse, Sign};
use crate::orphan;
pub(crate) use entered::{Entered, EnteredList, Listed};
use entry::{Content, Entry};
pub(crate) use entry::{Mapped, Piece};

/// Entries of a ledger: one for each change in each process. Memory is used only for those that are; where there are limits, there are
/// fewer.
const CAPACITIES: [usize; 3] = [1 << 22, 1 << 18, 1 << 14];

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
    /// Processes in which memory stays that was mapped for probes, and why.
    pub kept: Vec<(i32, String)>,
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

    /// Enters memory that has been mapped in a process. What is returned is to be dropped before the process can have it for anything else.
    pub(crate) fn enter_memory(self: &Rc<Self>, process: i32, memory: Mapped) -> Result<Entered, Full> {
        let number = self.take()?;
        self.entries()[number].write_memory(process, memory);
        Ok(Entered { ledger: Rc::clone(self), number })
    }

    /// Enters a change that is about to be made; dropping what is returned strikes it out again.
    pub(crate) fn enter(self: &Rc<Self>, process: i32, change: &Change) -> Result<Entered, Full> {
        let number = self.take()?;
        self.entries()[number].write(process, change);
        Ok(Entered { ledger: Rc::clone(self), number })
    }

    /// Lists changes that are to be made in many processes. Dropping what is returned takes the list away.
    pub(crate) fn list<'a>(
        self: &Rc<Self>,
        changes: impl Iterator<Item = &'a Change>,
    ) -> Result<Listed, Full> {
        let first = self.free.borrow().1;
        let mut listed = Listed { ledger: Rc::clone(self), first, count: 0 };
        for change in changes {
            let number = first + listed.count;
            if number >= self.capacity {
                return Err(Full);
            }
            self.free.borrow_mut().1 += 1;
            self.entries()[number].write(0, change);
            listed.count += 1;
        }
        Ok(listed)
    }

    /// Enters that all changes of a list are about to be made in a process, so much farther; dropping what is returned strikes it out again.
    pub(crate) fn enter_list(
        self: &Rc<Self>,
        process: i32,
        listed: &Rc<Listed>,
        by: u64,
    ) -> Result<EnteredList, Full> {
        let number = self.take()?;
        self.entries()[number].write_list(process, listed.first, listed.count, by);
        let entered = Entered { ledger: Rc::clone(self), number };
        Ok(EnteredList { _entered: entered, _listed: Rc::clone(listed) })
    }

    /// Takes a free entry.
    fn take(&self) -> Result<usize, Full> {
        let mut free = self.free.borrow_mut();
        match free.0.pop() {
            Some(number) => Ok(number),
            None if free.1 < self.capacity => {
                free.1 += 1;
                Ok(free.1 - 1)
            }
            None => Err(Full),
        }
    }

    fn strike(&self, number: usize) {
        self.entries()[number].clear();
        self.free.borrow_mut().0.push(number);
    }

    /// The changes that were made in processes, those of lists among them.
    fn changes(&self) -> Vec<(i32, Change)> {
        // Entries are used from the first on; one that was never used has no origin.
        let used = self.entries().iter().take_while(|entry| entry.origin.load(Ordering::Relaxed) != 0);
        let mut changes = Vec::new();
        for content in used.filter_map(Entry::content) {
            match content {
                Content::Change(0, _) => {}
                Content::Change(process, change) => changes.push((process, change)),
                Content::List { process, first, count, by } => {
                    let listed = self.entries().iter().skip(first).take(count).filter_map(Entry::read);
                    changes.extend(listed.map(|(_, change)| (process, change.moved(by))));
                }
            }
        }
        changes
    }

    /// Puts back the bytes of all changes entered, on behalf of a tracer that has died: first where all are traps, which is done at once.
    /// Before that, nobody waits any more for it to read.
    pub fn restore(&self) -> Restored {
        self.sign.iter().for_each(|sign| sign.abandon());
        let mut done = Restored { unknown: self.unknown().load(Ordering::Relaxed), ..Restored::default() };
        let mut all: BTreeMap<i32, Vec<Change>> = BTreeMap::new();
        let mut lent = Vec::new();
        for (process, change) in self.changes() {
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

    /// Unmaps what was mapped for probes in processes whose bytes are as before, on behalf of a tracer that has died. It stays where bytes
    /// do not, and where a thread may still be in it.
    pub fn give_back(&self, done: &mut Restored) {
        let mut all: BTreeMap<i32, Vec<Mapped>> = BTreeMap::new();
        let used = self.entries().iter().take_while(|entry| entry.origin.load(Ordering::Relaxed) != 0);
        for (process, memory) in used.filter_map(Entry::memory) {
            all.entry(process).or_default().push(memory);
        }
        all.retain(|pid, _| !done.left.iter().any(|left| left.pid == *pid));
        for (process, memory) in all {
            match orphan::unmap(process, &memory) {
                Err(error) if !error.is_gone() => done.kept.push((process, error.to_string())),
                _ => {}
            }
        }
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
    fn what_is_listed_once_is_restored_in_each_process_that_has_it() {
        let ledger = Rc::new(Ledger::with_capacity(8).expect("memory"));
        let changes: Vec<Change> =
            (1..=3).map(|place| Change::new(place * 0x100, &[1, 2], &[0xe9, place as u8])).collect();
        let listed = Rc::new(ledger.list(changes.iter()).expect("room"));
        assert!(ledger.changes().is_empty(), "a list is in no process yet");
        let entered = [(7, 0x1000), (8, 0x1000_u64.wrapping_neg())]
            .map(|(process, by)| ledger.enter_list(process, &listed, by).expect("room"));
        let own = ledger.enter(9, &changes[0]).expect("room");
        let all: Vec<(i32, Change)> = [(7, 0x1000), (8, 0x1000_u64.wrapping_neg())]
            .into_iter()
            .flat_map(|(process, by)| changes.iter().map(move |change| (process, change.moved(by))))
            .chain([(9, changes[0])])
            .collect();
        assert_eq!(ledger.changes(), all);
        assert!(ledger.list(changes.iter()).is_err(), "there are two entries left");
        drop(entered);
        assert_eq!(ledger.changes(), all[6..]);
        drop((listed, own));
        assert!(ledger.changes().is_empty());
        assert!(ledger.has_room(8).is_ok() && ledger.has_room(9).is_err());
        // What was listed last is listed again in the same place.
        let first = ledger.list(changes[..1].iter()).expect("room");
        let last = ledger.list(changes[1..].iter());
        drop(last);
        assert!(ledger.has_room(7).is_ok() && ledger.has_room(8).is_err());
        drop(first);
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
