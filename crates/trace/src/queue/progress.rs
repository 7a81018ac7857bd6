//! What a writer and those who wait for it know of each other.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The pause between two looks whether the writer is given up.
const PAUSE: Duration = Duration::from_millis(50);

/// How far a writer is, and whether it is given up. Until it is, it waits for its device for ever.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Goes up whenever something is written.
    steps: AtomicU64,
    /// Records of the block that is being written that are written, or counted as lost.
    done: AtomicU64,
    /// The writer waits by its own will.
    rests: AtomicBool,
    given_up: AtomicBool,
}

impl Progress {
    /// Notes that something was written.
    pub fn step(&self) {
        self.0.steps.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn steps(&self) -> u64 {
        self.0.steps.load(Ordering::Relaxed)
    }

    /// Notes that a record of the block is written, or counted as lost, and nothing is kept.
    pub fn record_done(&self) {
        self.step();
        self.0.done.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn done(&self) -> u64 {
        self.0.done.load(Ordering::Relaxed)
    }

    /// A block begins.
    pub(super) fn begin(&self) {
        self.step();
        self.0.done.store(0, Ordering::Relaxed);
    }

    pub(super) fn rests(&self) -> bool {
        self.0.rests.load(Ordering::Relaxed)
    }

    /// Gives the writer up: it comes back from what it waits for.
    pub(super) fn give_up(&self) {
        self.0.given_up.store(true, Ordering::SeqCst);
    }

    /// Whether the writer is to give up.
    pub fn is_given_up(&self) -> bool {
        self.0.given_up.load(Ordering::SeqCst)
    }

    /// Waits until something may be written to a file.
    ///
    /// # Errors
    /// The writer is given up, or the time is over.
    pub fn wait_for(&self, file: BorrowedFd<'_>, patience: Duration) -> io::Result<()> {
        let mut wanted = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        let begin = Instant::now();
        loop {
            // SAFETY: `wanted` is one valid structure, and its file is open as long as it is borrowed.
            let ready = unsafe { libc::poll(&raw mut wanted, 1, PAUSE.as_millis() as i32) };
            if ready > 0 {
                return Ok(());
            }
            if self.is_given_up() || begin.elapsed() >= patience {
                return Err(stuck());
            }
        }
    }

    /// Waits until a moment, by the writer's own will.
    ///
    /// # Errors
    /// The writer is given up.
    pub fn wait_until(&self, end: Instant) -> io::Result<()> {
        self.0.rests.store(true, Ordering::Relaxed);
        let rested = loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Ok(());
            }
            if self.is_given_up() {
                break Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(left.min(PAUSE));
        };
        self.0.rests.store(false, Ordering::Relaxed);
        rested
    }
}

/// The error of a writer whose device takes nothing.
pub(crate) fn stuck() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it takes nothing any more")
}
