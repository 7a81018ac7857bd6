//! The sign of life of the reader of all rings.
//!
//! It is a word in the cells ([`super::cells::READER`]), which all probed processes see. While the reader lives, it changes several times a
//! second, also while the tracer waits for something: a thread that does nothing else sees to that. When the reader is dead, the
//! word is ABANDONED, and nobody waits for room in a ring any more.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use agent::layout::{ABANDONED, PAGE};

use super::cells::READER;
use super::shared::Shared;

/// Shows that the reader lives, from any thread.
#[derive(Debug)]
pub struct Pulse {
    /// The page that begins with the word: a mapping of its own.
    page: NonNull<AtomicU64>,
}

// SAFETY: the mapping belongs to this value alone, and what is in it is atomic.
unsafe impl Send for Pulse {}

impl Pulse {
    /// That of these cells.
    ///
    /// # Errors
    /// There are no addresses left.
    pub(crate) fn of(cells: &Shared) -> io::Result<Pulse> {
        let descriptor = cells.descriptor().ok_or(io::ErrorKind::NotFound)?.as_raw_fd();
        // SAFETY: a fresh mapping of a file that is longer.
        let memory = unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let null = std::ptr::null_mut();
            libc::mmap(null, PAGE as usize, rights, libc::MAP_SHARED, descriptor, READER as libc::off_t)
        };
        match NonNull::new(memory.cast::<AtomicU64>()) {
            Some(page) if memory != libc::MAP_FAILED => Ok(Pulse { page }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Shows that the reader lives.
    pub fn beat(&self) {
        // SAFETY: the mapping lives as long as `self`, and the word is atomic.
        beat(unsafe { self.page.as_ref() });
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `of`, and no reference to it is left.
        unsafe { libc::munmap(self.page.as_ptr().cast(), PAGE as usize) };
    }
}

/// Changes the word: if others have taken the reader for dead, it was only asleep.
pub(crate) fn beat(word: &AtomicU64) {
    let sign = word.load(Ordering::Relaxed).wrapping_add(1);
    word.store(if sign == ABANDONED { 0 } else { sign }, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jump::Cells;

    #[test]
    fn a_beat_is_seen_and_takes_back_what_others_have_thought() {
        let memory = Cells::memory().expect("memory");
        let cells = Cells::over(memory);
        let pulse = Pulse::of(cells.shared()).expect("addresses");
        let word = cells.reader().expect("it is there");
        for before in [0, 7, ABANDONED, ABANDONED - 1] {
            word.store(before, Ordering::Relaxed);
            pulse.beat();
            let after = word.load(Ordering::Relaxed);
            assert!(after != before && after != ABANDONED, "{before} {after}");
        }
    }
}
