//! Keeps the tracer from waiting for ever for a thread that itself waits for room in a ring, or for
//! a context.
//!
//! With `lossless`, a thread goes on when there is room, which the tracer makes by reading. While
//! the tracer waits for such a thread (to deliver a signal to it, or to let it go), it reads on.
//! That may not be enough: the room may be behind the record of another thread that waits for the
//! tracer, or nobody takes records from the tracer. So if nothing was read for a while, the threads
//! of that process go on without room, and their records are dropped and counted.

use std::time::{Duration, Instant};

mod drainer;

/// How long nothing may be read before waiting threads go on without room. A reader of the output
/// may be slow.
pub(crate) const NO_PROGRESS_LIMIT: Duration = Duration::from_secs(10);

/// How long the tracer has waited for a thread without progress.
#[derive(Debug)]
pub(crate) struct ProgressTimer {
    since: Instant,
    /// Records read by then.
    read: u64,
    over: bool,
}

impl ProgressTimer {
    /// Starts waiting.
    pub(crate) fn new() -> ProgressTimer {
        ProgressTimer { since: Instant::now(), read: 0, over: false }
    }

    /// Whether nothing was read for too long; `read` is the number of records read so far.
    pub(crate) fn is_over(&mut self, read: u64) -> bool {
        if read != self.read {
            (self.read, self.since) = (read, Instant::now());
        }
        self.since.elapsed() > NO_PROGRESS_LIMIT
    }
}
