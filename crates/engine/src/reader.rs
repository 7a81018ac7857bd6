//! Settings for reading rings: their size, and how often they are read.

use std::time::{Duration, Instant};

use layout::{GREATEST_RING, LEAST_RING, RING_SIZE};

use crate::jump::Drain;

/// The range of a ring's size in bytes. There is a ring for each processor; its size is a power of
/// two.
pub const BUFFERS: std::ops::RangeInclusive<u64> = LEAST_RING..=GREATEST_RING;

/// A ring of at least this size need not be read often while idle: it has room for the records of
/// one tick, even of a burst.
const ROOMY: u64 = 8 << 20;
/// How long rings are read often after a record.
const LATELY: Duration = Duration::from_millis(500);

/// The reader of the rings.
pub(crate) struct Reader {
    pub(crate) drain: Drain,
    /// Bytes of a ring, for processes that get theirs from now on: a power of two.
    pub(crate) ring_size: u64,
    /// The number of records read when the last one came, and the time.
    seen: (u64, Instant),
}

impl Reader {
    /// A reader that has read nothing yet.
    pub(crate) fn new() -> Reader {
        Reader { drain: Drain::new(), ring_size: RING_SIZE, seen: (0, Instant::now()) }
    }

    /// Sets the size of rings, in bytes. It is rounded up to a power of two within [`BUFFERS`].
    pub(crate) fn set_buffer(&mut self, bytes: u64) {
        let size = bytes.checked_next_power_of_two().unwrap_or(GREATEST_RING);
        self.ring_size = size.clamp(LEAST_RING, GREATEST_RING);
    }

    /// Whether rings are to be read often: records came recently, or the rings are small.
    pub(crate) fn is_lively(&mut self) -> bool {
        if self.seen.0 != self.drain.read() {
            self.seen = (self.drain.read(), Instant::now());
        }
        self.ring_size < ROOMY || self.seen.1.elapsed() < LATELY
    }
}
