//! What is changed in which process, kept where it outlives the tracer.
//!
//! A tracer that is killed leaves its `int3`s behind, and an untraced program dies of the next one it reaches. The
//! ledger lies in memory shared with another process, which can then put the bytes back ([`Ledger::restore`]). It
//! is an array of entries of 16 bytes:
//!
//! ```text
//! +0  address of the site, or 0: the entry is free
//! +8  process << 8 | original byte
//! ```
//!
//! An entry is complete before its `int3` is written and is freed after the byte is restored, so at any moment every
//! `int3` in a process has an entry.

use std::cell::RefCell;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::site::INT3;

/// Entries of a ledger: one for each site of each process. Memory is used only for those that are.
const CAPACITY: usize = 1 << 18;

/// One site of one process.
#[repr(C)]
struct Entry {
    address: AtomicU64,
    origin: AtomicU64,
}

/// A ledger. Made before the tracer's process is forked off, it is shared by both.
pub struct Ledger {
    entries: NonNull<Entry>,
    /// Entries that were used and are free, and how many have ever been used; the tracer's own.
    free: RefCell<(Vec<usize>, usize)>,
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
        // SAFETY: a fresh mapping, zeroed by the kernel.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                CAPACITY * size_of::<Entry>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        match NonNull::new(memory.cast::<Entry>()) {
            Some(entries) if memory != libc::MAP_FAILED => Ok(Ledger { entries, free: RefCell::default() }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn entries(&self) -> &[Entry] {
        // SAFETY: the mapping has this many entries, lives as long as `self`, and atomics may be shared.
        unsafe { std::slice::from_raw_parts(self.entries.as_ptr(), CAPACITY) }
    }

    /// Enters a site that is about to be armed; dropping what is returned strikes it out again. `None`: the ledger
    /// is full.
    pub(crate) fn enter(self: &Rc<Self>, process: i32, address: u64, original: u8) -> Option<Entered> {
        let mut free = self.free.borrow_mut();
        let number = match free.0.pop() {
            Some(number) => number,
            None if free.1 < CAPACITY => {
                free.1 += 1;
                free.1 - 1
            }
            None => return None,
        };
        let entry = &self.entries()[number];
        entry.origin.store((process as u32 as u64) << 8 | u64::from(original), Ordering::Relaxed);
        entry.address.store(address, Ordering::Release);
        Some(Entered { ledger: Rc::clone(self), number })
    }

    fn strike(&self, number: usize) {
        self.entries()[number].address.store(0, Ordering::Release);
        self.free.borrow_mut().0.push(number);
    }

    /// Puts back the bytes of all sites entered, on behalf of a tracer that has died: how many.
    pub fn restore(&self) -> usize {
        let mut restored = 0;
        // Entries are used from the first on; one that was never used has no origin.
        for entry in self.entries().iter().take_while(|entry| entry.origin.load(Ordering::Relaxed) != 0) {
            let address = entry.address.load(Ordering::Acquire);
            let origin = entry.origin.load(Ordering::Relaxed);
            if address != 0 && restore_byte((origin >> 8) as u32, address, origin as u8).is_ok() {
                restored += 1;
            }
        }
        restored
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
        unsafe { libc::munmap(self.entries.as_ptr().cast(), CAPACITY * size_of::<Entry>()) };
    }
}

/// Puts one byte back where an `int3` is.
fn restore_byte(process: u32, address: u64, original: u8) -> io::Result<()> {
    let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{process}/mem"))?;
    let mut byte = [0];
    memory.read_exact_at(&mut byte, address)?;
    if byte[0] == INT3 { memory.write_all_at(&[original], address) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_entered_and_not_struck_out_is_restored() {
        static CODE: [u8; 64] = [INT3; 64];
        let byte = |place: usize| std::ptr::from_ref(&CODE[place]) as u64;
        let pid = std::process::id() as i32;
        let ledger = Rc::new(Ledger::new().expect("memory"));
        let first = ledger.enter(pid, byte(1), 0x55).expect("room");
        let second = ledger.enter(pid, byte(2), 0x90).expect("room");
        drop(first);
        assert_eq!(ledger.restore(), 1);
        drop(second);
        // SAFETY: reads of a static; volatile, since another way has written there.
        let now: [u8; 3] =
            std::array::from_fn(|place| unsafe { std::ptr::from_ref(&CODE[place]).read_volatile() });
        assert_eq!(now, [INT3, INT3, 0x90]);
        let third = ledger.enter(pid, byte(3), 0x55).expect("room");
        assert!(third.number < 2, "a free entry is used again");
    }
}
