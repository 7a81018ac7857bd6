//! The state that a writer shares with the threads that wait for it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The interval at which a waiting writer checks whether it is given up.
const PAUSE: Duration = Duration::from_millis(50);

/// The progress of a writer, and whether it is given up. Until then it waits for its device without
/// limit.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<ProgressState>);

#[derive(Debug, Default)]
struct ProgressState {
    /// Incremented whenever something is written.
    steps: AtomicU64,
    /// Records of the current block that are written or counted as lost.
    done: AtomicU64,
    /// The writer waits on purpose.
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

    /// Notes that a record of the block is written or counted as lost. The writer keeps no part of
    /// it.
    pub fn record_done(&self) {
        self.step();
        self.0.done.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn done(&self) -> u64 {
        self.0.done.load(Ordering::Relaxed)
    }

    /// Notes that the writer begins a block.
    pub(super) fn begin(&self) {
        self.step();
        self.0.done.store(0, Ordering::Relaxed);
    }

    pub(super) fn rests(&self) -> bool {
        self.0.rests.load(Ordering::Relaxed)
    }

    /// Gives the writer up: it returns from what it waits for.
    pub(super) fn give_up(&self) {
        self.0.given_up.store(true, Ordering::SeqCst);
    }

    /// Whether the writer is given up.
    pub fn is_given_up(&self) -> bool {
        self.0.given_up.load(Ordering::SeqCst)
    }

    /// Waits until a file is writable.
    ///
    /// # Errors
    /// The writer is given up, or `patience` is over.
    pub fn wait_for(&self, file: BorrowedFd<'_>, patience: Duration) -> io::Result<()> {
        let mut wanted = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        let begin = Instant::now();
        loop {
            // SAFETY: `wanted` is one valid structure, and its file is open as long as it is
            // borrowed.
            let ready = unsafe { libc::poll(&raw mut wanted, 1, PAUSE.as_millis() as i32) };
            if ready > 0 {
                return Ok(());
            }
            if self.is_given_up() || begin.elapsed() >= patience {
                return Err(stuck());
            }
        }
    }

    /// Waits until a moment, on purpose: for example, to keep to a rate limit.
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

/// The error of a writer whose device makes no progress.
pub(crate) fn stuck() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it accepts no more data")
}
