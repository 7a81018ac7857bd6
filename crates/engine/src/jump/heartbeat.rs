//! The sign of life of the reader of all rings.
//!
//! It is a word in a page that probed processes can read and only the tracer can write, whatever
//! they do with the descriptor (F_SEAL_FUTURE_WRITE). While the reader lives, the word changes
//! several times a second, also while the tracer waits for something: a separate thread takes care
//! of that. When the reader is dead, the word is ABANDONED, and nobody waits for room in a ring any
//! more. If nobody is left to write that, a thread that has waited for long notes it in its
//! process's identity page.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use layout::{ABANDONED, PAGE};
use memmap2::{MmapOptions, MmapRaw};

/// The page that begins with the word.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    file: OwnedFd,
    page: MmapRaw,
}

impl Heartbeat {
    /// Makes a new one. Processes forked off later share it.
    ///
    /// # Errors
    /// No descriptors or no addresses are left.
    pub(crate) fn new() -> io::Result<Arc<Heartbeat>> {
        let (file, page) = super::shared::within_limits(|| process::read_only_for_others(PAGE, map))?;
        let sign = Arc::new(Heartbeat { file, page });
        sign.beat();
        Ok(sign)
    }

    /// Its descriptor, to be passed to a process.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the mapping is a page that lives as long as `self`, and the word is atomic.
        unsafe { &*self.page.as_ptr().cast() }
    }

    /// Changes the word. After ABANDONED, the reader counts as alive again: it was only stopped.
    /// The word is never 0.
    pub(crate) fn beat(&self) {
        let sign = self.word().load(Ordering::Relaxed).wrapping_add(1);
        self.word().store(if sign == ABANDONED || sign == 0 { 1 } else { sign }, Ordering::Relaxed);
    }

    /// Marks the reader as dead.
    pub(crate) fn abandon(&self) {
        self.word().store(ABANDONED, Ordering::Relaxed);
    }
}

/// Maps the page writable.
fn map(file: &OwnedFd) -> io::Result<MmapRaw> {
    MmapOptions::new().len(PAGE as usize).map_raw(file)
}

/// A handle for showing, from any thread, that the reader lives.
#[derive(Debug)]
pub struct HeartbeatHandle(pub(crate) Arc<Heartbeat>);

impl HeartbeatHandle {
    /// Changes the sign of life.
    pub fn beat(&self) {
        self.0.beat();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use memmap2::UncheckedAdvice;

    use super::*;

    #[test]
    fn a_beat_is_seen_and_takes_back_what_others_have_thought() {
        let sign = Heartbeat::new().expect("memory");
        let pulse = HeartbeatHandle(Arc::clone(&sign));
        for before in [0, 7, ABANDONED, ABANDONED - 1, ABANDONED - 2] {
            sign.word().store(before, Ordering::Relaxed);
            pulse.beat();
            let after = sign.word().load(Ordering::Relaxed);
            assert!(after != before && after != ABANDONED && after != 0, "{before} {after}");
        }
    }

    #[test]
    fn nobody_else_can_write_it() {
        let sign = Heartbeat::new().expect("memory");
        // As a process can that was given the descriptor: reopens the file.
        let path = format!("/proc/self/fd/{}", sign.descriptor().as_raw_fd());
        let again = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("it is open to all");
        assert!(std::io::Write::write(&mut &again, &[1]).is_err());
        assert!(again.set_len(0).is_err());
        assert!(map(&again.into()).is_err(), "it cannot be mapped to be written");
        let page = MmapOptions::new()
            .len(PAGE as usize)
            .map_raw_read_only(&sign.descriptor())
            .expect("it is mapped");
        // SAFETY: the page is the mapping; no reference is made to what is there.
        unsafe {
            let place = page.as_mut_ptr().cast();
            assert_eq!(libc::mprotect(place, PAGE as usize, libc::PROT_READ | libc::PROT_WRITE), -1);
            assert!(page.unchecked_advise(UncheckedAdvice::Remove).is_err());
        }
    }
}
