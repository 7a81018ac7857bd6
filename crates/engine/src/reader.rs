//! The reading of rings: how large they are, and how often they are read.

use std::time::{Duration, Instant};

use layout::{GREATEST_RING, LEAST_RING, RING_SIZE};

use crate::jump::Drain;

/// Bytes of records that may wait to be read, for each processor: the least and the most. A buffer's size is a power of two.
pub const BUFFERS: std::ops::RangeInclusive<u64> = LEAST_RING..=GREATEST_RING;

/// Bytes of a ring that need not be read often while nothing comes: a tick's worth of records, however many there are at once.
const ROOMY: u64 = 8 << 20;
/// For how long rings are read often after a record.
const LATELY: Duration = Duration::from_millis(500);

/// The reader of the rings.
pub(crate) struct Reader {
    pub(crate) drain: Drain,
    /// Bytes of a ring, in processes that get theirs from now on: a power of two.
    pub(crate) ring_size: u64,
    /// How many records had been read when the last came, and when that was.
    seen: (u64, Instant),
}

impl Reader {
    /// One that has read nothing yet.
    pub(crate) fn new() -> Reader {
        Reader { drain: Drain::new(), ring_size: RING_SIZE, seen: (0, Instant::now()) }
    }

    /// Sets how many bytes of records may wait. It is rounded up to a power of two within [`BUFFERS`].
    pub(crate) fn set_buffer(&mut self, bytes: u64) {
        let size = bytes.checked_next_power_of_two().unwrap_or(GREATEST_RING);
        self.ring_size = size.clamp(LEAST_RING, GREATEST_RING);
    }

    /// Whether rings are to be read often: records have come lately, or there is little room for those that may.
    pub(crate) fn is_lively(&mut self) -> bool {
        if self.seen.0 != self.drain.read() {
            self.seen = (self.drain.read(), Instant::now());
        }
        self.ring_size < ROOMY || self.seen.1.elapsed() < LATELY
    }
}
