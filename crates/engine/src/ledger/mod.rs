//! Records what was changed in each process, in memory that outlives the tracer.
//!
//! If the tracer is killed, its `int3`s stay, and an untraced program without a guard dies at the
//! next one it reaches. The ledger is in memory shared with another process, which can then restore
//! the bytes ([`Ledger::restore`]). It is an array of entries of 48 bytes:
//!
//! ```text
//! +0   address of the change, or 0: the entry is free
//! +8   process << 8 | when it is put back ([`Undo`]) << 6 | number of bytes, 1 to 15
//! +16  the program's bytes
//! +32  the bytes written in their place
//! ```
//!
//! Changes made in many processes, at different addresses in each, are listed once: the entries of
//! the list have process 0, which does not exist. One entry for each process refers to the list and
//! gives the distance:
//!
//! ```text
//! +0   number of the list's first entry, and 1
//! +8   process << 8 | 0x3c
//! +16  how many entries the list has
//! +32  how much farther
//! ```
//!
//! Memory mapped for probes has entries of the same size. It is unmapped after the bytes are
//! restored ([`Ledger::give_back`]):
//!
//! ```text
//! +0   where it begins, or 0
//! +8   process << 8 | what it is ([`Piece`])
//! +16  bytes of it
//! ```
//!
//! A counter of the program that is counted up while it is traced (`semaphores.rs`) has an entry
//! too. It is counted down, not restored, since others count as well:
//!
//! ```text
//! +0   address of the counter, or 0
//! +8   process << 8 | 0x3b
//! ```
//!
//! An entry for a change is complete before the bytes are written, and is freed after they are
//! restored. So at any moment every change in a process has an entry.
//!
//! The sign of life serves the same purpose: a page that tells probed processes that their records
//! are read. When the tracer has died, the page says so, and threads stop waiting for room in a
//! ring.
//!
//! One byte, an `int3`, is restored at once. More bytes are restored while all threads of their
//! process are held. If that is not possible, they stay: they are jumps, and the memory they lead
//! to stays mapped, so the program runs on.

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

use crate::after_tracer;
use crate::change::{Batch, Change, Fixed, Undo, is_of_unmapped_memory};
use crate::counter;
use crate::jump::{Heartbeat, HeartbeatHandle};
pub(crate) use entered::{Entered, EnteredList, Listed};
use entry::{Content, Entry};
pub(crate) use entry::{Mapped, Piece};

/// Entries of a ledger: one for each change in each process. Memory is used only for entries in
/// use. If the memory is limited, a smaller capacity is tried.
const CAPACITIES: [usize; 3] = [1 << 22, 1 << 18, 1 << 14];

/// The result of restoring bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Changes that were undone.
    pub restored: usize,
    /// Processes in which changes stay.
    pub left: Vec<Left>,
    /// Changes in forked children for which the ledger had no room: they stay.
    pub unknown: u64,
    /// Processes in which bytes lent for a system call stay, since a thread still needs them to
    /// return; and why.
    pub lent: Vec<(i32, String)>,
    /// Processes in which memory mapped for probes stays, and why.
    pub kept: Vec<(i32, String)>,
}

/// A process in which changes stay: jumps, which work, and traps, which the process handles itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The process.
    pub pid: i32,
    /// The number of changes.
    pub changes: usize,
    /// Why.
    pub reason: String,
}

impl Restored {
    /// Adds the result for the changes of one process. A process that is gone has none.
    fn note(&mut self, pid: i32, changes: usize, result: Result<(), process::Error>) {
        match result {
            Ok(()) => self.restored += changes,
            Err(error) if error.is_gone() => {}
            Err(error) => self.left.push(Left { pid, changes, reason: error.to_string() }),
        }
    }
}

/// The ledger is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl std::error::Error for Full {}

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the ledger is full: a killed tracer's changes could not be undone")
    }
}

impl From<Full> for io::Error {
    fn from(full: Full) -> io::Error {
        io::Error::new(io::ErrorKind::OutOfMemory, full.to_string())
    }
}

/// A ledger. It is created before the tracer's process is forked, and shared by both processes.
pub struct Ledger {
    /// One entry more than `capacity`: its origin counts the changes that were not entered.
    entries: NonNull<Entry>,
    capacity: usize,
    /// The free list, and how many entries have ever been used. Private to the tracer.
    free: RefCell<(Vec<usize>, usize)>,
    /// Tells processes that the tracer is alive; without it all probes are traps.
    sign: Option<Arc<Heartbeat>>,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ledger {{ used: {} }}", self.free.borrow().1)
    }
}

impl Ledger {
    /// An empty ledger, in memory shared with processes forked later.
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

    /// A ledger with room for `capacity` changes.
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
                Ok(Ledger { entries, capacity, free: RefCell::default(), sign: Heartbeat::new().ok() })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The sign of life of the tracer.
    pub(crate) fn sign(&self) -> Option<Arc<Heartbeat>> {
        self.sign.clone()
    }

    /// A handle to the sign of life; `None` if no memory is shared with processes.
    pub fn pulse(&self) -> Option<HeartbeatHandle> {
        self.sign().map(HeartbeatHandle)
    }

    fn entries(&self) -> &[Entry] {
        // SAFETY: the mapping has this many entries, lives as long as `self`, and atomics may be
        // shared.
        unsafe { std::slice::from_raw_parts(self.entries.as_ptr(), self.capacity) }
    }

    /// The number of changes made without an entry.
    fn unknown(&self) -> &AtomicU64 {
        // SAFETY: the mapping has one entry more than `capacity`, lives as long as `self`, and
        // atomics may be shared.
        unsafe { &self.entries.add(self.capacity).as_ref().origin }
    }

    /// Whether there is room for `more` changes.
    pub(crate) fn has_room(&self, more: usize) -> Result<(), Full> {
        let free = self.free.borrow();
        if self.capacity - free.1 + free.0.len() >= more { Ok(()) } else { Err(Full) }
    }

    /// Counts changes that a forked child has inherited and for which there is no room: only the
    /// tracer can undo them.
    pub(crate) fn misses(&self, changes: usize) {
        self.unknown().fetch_add(changes as u64, Ordering::Relaxed);
    }

    /// Enters memory mapped in a process. The returned entry must be dropped before the process can
    /// use the addresses for anything else.
    pub(crate) fn enter_memory(self: &Rc<Self>, process: i32, memory: Mapped) -> Result<Entered, Full> {
        let number = self.take()?;
        self.entries()[number].write_memory(process, memory);
        Ok(Entered { ledger: Rc::clone(self), number })
    }

    /// Enters a counter of two bytes that is about to be counted up; the returned entry is to be
    /// dropped after it is counted down.
    pub(crate) fn enter_counter(self: &Rc<Self>, process: i32, address: u64) -> Result<Entered, Full> {
        let number = self.take()?;
        self.entries()[number].write_counter(process, address);
        Ok(Entered { ledger: Rc::clone(self), number })
    }

    /// Enters a change that is about to be made; dropping the returned entry strikes it out.
    pub(crate) fn enter(self: &Rc<Self>, process: i32, change: &Change) -> Result<Entered, Full> {
        let number = self.take()?;
        self.entries()[number].write(process, change);
        Ok(Entered { ledger: Rc::clone(self), number })
    }

    /// Lists changes that are to be made in many processes. Dropping the returned list frees its
    /// entries.
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

    /// Enters that all changes of a list are about to be made in a process, `by` bytes higher;
    /// dropping the returned entry strikes it out.
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

    /// Allocates an entry.
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

    /// All changes made in processes, including those of lists.
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

    /// Undoes all entered changes, on behalf of a tracer that has died. Before that, it makes
    /// threads stop waiting for the tracer. Processes with traps only come first, since they need
    /// no hold.
    pub fn restore(&self) -> Restored {
        self.sign.iter().for_each(|sign| sign.abandon());
        let mut done = Restored { unknown: self.unknown().load(Ordering::Relaxed), ..Restored::default() };
        let mut all: BTreeMap<i32, Vec<Change>> = BTreeMap::new();
        let mut lent = Vec::new();
        for (process, change) in self.changes() {
            match change.when() {
                Undo::WhenUnused => lent.push((process, change)),
                _ => all.entry(process).or_default().push(change),
            }
        }
        // A jump's last bytes may belong to another change: in a process with jumps, all bytes
        // change at once.
        let trap = |change: &Change| change.written().len() == 1;
        let (traps, jumps): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(_, changes)| changes.iter().all(trap));
        for (process, changes) in traps {
            match Memory::open(process) {
                Ok(memory) => {
                    // Urgent: until then a thread that hits a trap with SIGTRAP blocked dies, and
                    // with it its process.
                    let fixed = Fixed::of(&process::maps(process).unwrap_or_default());
                    let mut batch = Batch::default();
                    changes.iter().for_each(|change| batch.take_out(*change));
                    match unless_unmapped(batch.write_bytes(&memory, &fixed)) {
                        Err(error) => {
                            let (changes, reason) = (changes.len(), error.to_string());
                            done.left.push(Left { pid: process, changes, reason });
                        }
                        Ok(()) => done.restored += changes.len(),
                    }
                }
                Err(error) => done.note(process, changes.len(), Err(error)),
            }
        }
        for (process, changes) in jumps {
            let held = after_tracer::held(process, &changes, |memory, held| {
                let mut batch = Batch::default();
                changes.iter().for_each(|change| batch.take_out(*change));
                unless_unmapped(batch.write(memory, held))
            });
            done.note(process, changes.len(), held);
        }
        let used = self.entries().iter().take_while(|entry| entry.origin.load(Ordering::Relaxed) != 0);
        for (process, address) in used.filter_map(Entry::counter) {
            // A process that is gone has no counter.
            if let Ok(memory) = Memory::open(process) {
                counter::lower(&memory, address);
            }
        }
        for (process, change) in lent {
            match after_tracer::give_back(process, &change) {
                Err(error) if !error.is_gone() => done.lent.push((process, error.to_string())),
                _ => {}
            }
        }
        done
    }

    /// Unmaps the memory for probes in processes whose bytes are restored, on behalf of a tracer
    /// that has died. The memory stays where bytes could not be restored or a thread may still be
    /// in it.
    pub fn give_back(&self, done: &mut Restored) {
        let mut all: BTreeMap<i32, Vec<Mapped>> = BTreeMap::new();
        let used = self.entries().iter().take_while(|entry| entry.origin.load(Ordering::Relaxed) != 0);
        for (process, memory) in used.filter_map(Entry::memory) {
            all.entry(process).or_default().push(memory);
        }
        all.retain(|pid, _| !done.left.iter().any(|left| left.pid == *pid));
        for (process, memory) in all {
            match after_tracer::unmap(process, &memory) {
                Err(error) if !error.is_gone() => done.kept.push((process, error.to_string())),
                _ => {}
            }
        }
    }
}

/// The result of undoing changes: nothing is left to undo where a process is gone, or where memory
/// is no longer mapped, since the program has unmapped it or the process executes another program.
fn unless_unmapped(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if is_of_unmapped_memory(&error) => Ok(()),
        result => result,
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new`, and no reference to it is left.
        unsafe { libc::munmap(self.entries.as_ptr().cast(), (self.capacity + 1) * size_of::<Entry>()) };
    }
}

#[cfg(test)]
mod tests;
