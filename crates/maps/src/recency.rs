//! Which entries of a map were used recently, for maps that evict.
//!
//! The clock is the number of keys that were new; an entry has the time at which it was used last.
//! So a use costs a store only if a key was added since the last one. What is evicted is the oldest
//! of the entries in the two buckets that the new key may be in: of a large map, not the oldest of
//! all.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counts of a map that evicts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recency<'a> {
    /// Entries that were evicted.
    pub(crate) evicted: &'a AtomicU64,
    /// Keys that were new.
    pub(crate) clock: &'a AtomicU64,
}

impl Recency<'_> {
    /// Notes that an entry is used.
    #[inline]
    pub(crate) fn touch(self, used: &AtomicU64) {
        let now = self.clock.load(Relaxed);
        if used.load(Relaxed) != now {
            used.store(now, Relaxed);
        }
    }

    /// Notes that an entry is new.
    pub(crate) fn begin(self, used: &AtomicU64) {
        used.store(self.clock.fetch_add(1, Relaxed).wrapping_add(1), Relaxed);
    }

    /// How long ago an entry was used, in new keys.
    pub(crate) fn age(self, used: &AtomicU64) -> u64 {
        self.clock.load(Relaxed).wrapping_sub(used.load(Relaxed))
    }
}
