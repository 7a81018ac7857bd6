//! How long a sink waits for its device.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long a device may take nothing while its sink is ending.
const STUCK: Duration = Duration::from_secs(2);
/// How long a sink may take to end.
const LONGEST: Duration = Duration::from_secs(10);
/// The pause between two looks whether the sink is ending.
const PAUSE: Duration = Duration::from_millis(50);

/// Tells a sink that waits in its thread that it is to come to an end. As long as it is not, it waits for its device forever.
#[derive(Clone, Debug, Default)]
pub struct Closing {
    /// When it was told.
    since: Arc<OnceLock<Instant>>,
    /// The last time that its device is known to have taken something; or a time to come, until which it waits by its own will.
    moved: Arc<Mutex<Option<Instant>>>,
}

impl Closing {
    /// Tells it.
    pub(super) fn begin(&self) {
        let _ = self.since.set(Instant::now());
    }

    /// When its device has taken something, as far as is known; a time to come while nothing is to be taken before.
    pub(super) fn moved(&self) -> Option<Instant> {
        *self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moves(&self, at: Instant) {
        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        *moved = (*moved).max(Some(at));
    }

    /// Whether to give up: the device has taken nothing since `progress`.
    pub(super) fn gives_up(&self, progress: Instant) -> bool {
        let stuck = |since: &Instant| progress.max(*since).elapsed() > STUCK || since.elapsed() > LONGEST;
        self.since.get().is_some_and(stuck)
    }

    /// Waits until something may be written.
    ///
    /// # Errors
    /// It is given up.
    pub(super) fn wait_for(&self, file: BorrowedFd<'_>, progress: Instant) -> io::Result<()> {
        self.moves(progress);
        let mut wanted = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        loop {
            // SAFETY: `wanted` is one valid structure, and its file is open as long as it is borrowed.
            let ready = unsafe { libc::poll(&raw mut wanted, 1, PAUSE.as_millis() as i32) };
            if ready > 0 {
                return Ok(());
            }
            if self.gives_up(progress) {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it takes nothing any more"));
            }
        }
    }

    /// Waits until a moment.
    ///
    /// # Errors
    /// It is given up.
    pub(super) fn wait_until(&self, end: Instant) -> io::Result<()> {
        let begin = Instant::now();
        self.moves(end);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            if self.gives_up(begin) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(left.min(PAUSE));
        }
    }
}
