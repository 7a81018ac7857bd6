//! Where the words of a map are.
//!
//! ```text
//!     place                      place + words
//!     | copy 0                   | copy 1 ...
//!     | header | value | counted | absorbed |               a map without keys
//!     | header | ... up to 16 | bucket | bucket ...         a map with keys
//!
//!     header:  updates that were lost; the lock of a map without keys; of one that evicts: how many
//!              entries were, and how many keys were new
//!     counted: what compiled code has counted, which only the processor of the copy writes, without
//!              locks; absorbed: how much of that is in the value. Only of counts, sums and
//!              histograms without keys
//!     bucket:  control word | entry 0 | ... | entry 6 | ... up to a multiple of 8
//!     entry:   length of the key in bytes | key | value | (of a map that evicts) when it was used
//! ```

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::control::LANES;
use crate::recency::Recency;
use crate::table::Table;
use crate::{Kind, MapInfo};

/// Words of a copy before its value, if the map has no keys.
const HEADER: usize = 2;
/// Words of a copy before its buckets; copies are a multiple of it: 128 bytes, what processors
/// fetch at once.
const SPACING: usize = 16;
/// A cache line's words.
const LINE: usize = 8;

/// Where the parts of a copy are, in words: for code that is compiled to work on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// The first word of the value of a map without keys. The word before it is its lock.
    pub value: usize,
    /// The first bucket of a map with keys.
    pub table: usize,
    /// The number of buckets.
    pub buckets: u32,
    /// The words of a bucket: a control word, then the entries.
    pub bucket_words: usize,
    /// The words of a key, behind its length.
    pub key_words: usize,
    /// The words of a value, behind the key.
    pub value_words: usize,
    /// The words of an entry.
    pub entry_words: usize,
}

impl MapInfo {
    /// The map's kind. Unknown numbers are plain maps.
    #[inline]
    pub fn kind(&self) -> Kind {
        Kind::from_number(self.kind).unwrap_or(Kind::Plain)
    }

    /// Whether a new key takes the place of another one, where there is no room.
    #[inline]
    pub fn is_evicting(&self) -> bool {
        self.evicts != 0 && self.key != 0
    }

    #[inline]
    pub(crate) fn value_words(&self) -> usize {
        self.value as usize / 8
    }

    #[inline]
    fn key_words(&self) -> usize {
        self.key as usize / 8
    }

    #[inline]
    fn bucket_words(&self) -> usize {
        (1 + LANES * self.entry_words()).next_multiple_of(LINE)
    }

    #[inline]
    fn entry_words(&self) -> usize {
        1 + self.key_words() + self.value_words() + usize::from(self.is_evicting())
    }

    /// Buckets of a copy: one for each four entries, so that lanes are three quarters more than
    /// entries. With half more, one in a million entries finds both of its buckets full before the
    /// map is; with a quarter more, one in a thousand.
    ///
    /// A map that evicts needs no spare lanes: a key that finds no room makes some.
    #[inline]
    fn buckets(&self) -> u32 {
        if self.is_evicting() { self.entries.div_ceil(LANES as u32).max(1) } else { self.entries / 4 + 1 }
    }

    /// The lanes of a bucket that are used: of a map that evicts, no more than make its entries.
    #[inline]
    fn lanes(&self) -> usize {
        match self.is_evicting() {
            true => ((self.entries / self.buckets()) as usize).clamp(1, LANES),
            false => LANES,
        }
    }

    /// The words of a copy; `None` if they cannot be counted.
    #[cfg(any(test, feature = "std"))]
    pub(crate) fn copy_words(&self) -> Option<usize> {
        if self.key == 0 {
            let parts = if self.is_counted() { 3 } else { 1 };
            let words = self.value_words().checked_mul(parts)?.checked_add(HEADER)?;
            // A power of 2, so that compiled code finds a processor's copy by shifting.
            return words.max(SPACING).checked_next_power_of_two();
        }
        let buckets = (self.buckets() as usize).checked_mul(self.bucket_words())?;
        Some(buckets.checked_add(SPACING)?.next_multiple_of(SPACING))
    }

    /// Whether compiled code counts in words of its own ([`MapInfo::counted`]).
    pub fn is_counted(&self) -> bool {
        self.key == 0 && matches!(self.kind(), Kind::Count | Kind::Sum | Kind::Hist)
    }

    /// Where compiled code counts on behalf of processor 0: the first word of as many as a value
    /// has. Those of the next processor are [`MapInfo::words`] further. Only the processor itself
    /// may write them, if `copies` are at least as many as processors; all others use
    /// [`Maps::update`](crate::Maps::update), or the words of the value, atomically.
    pub fn counted(&self) -> usize {
        self.value_place() + self.value_words()
    }

    /// The first word of the value of copy 0, if the map has no keys.
    pub fn value_place(&self) -> usize {
        self.place as usize + HEADER
    }

    /// Where the parts of a copy are.
    pub fn places(&self) -> Places {
        Places {
            value: HEADER,
            table: SPACING,
            buckets: self.buckets(),
            bucket_words: self.bucket_words(),
            key_words: self.key_words(),
            value_words: self.value_words(),
            entry_words: self.entry_words(),
        }
    }

    /// One copy of the map.
    #[inline]
    pub(crate) fn copy<'a>(&self, words: &'a [AtomicU64], copy: u32) -> Option<Copy<'a>> {
        let size = self.words as usize;
        let start = (self.place as usize).checked_add((copy as usize).checked_mul(size)?)?;
        let words = words.get(start..start.checked_add(size)?)?;
        Some(Copy { words })
    }
}

/// Adds to a word of a value what was counted since this was done last. Of those who do it at the
/// same time, one does.
fn absorb(value: &AtomicU64, counted: &AtomicU64, absorbed: &AtomicU64) {
    let (now, before) = (counted.load(Relaxed), absorbed.load(Relaxed));
    if now != before && absorbed.compare_exchange(before, now, Relaxed, Relaxed).is_ok() {
        value.fetch_add(now.wrapping_sub(before), Relaxed);
    }
}

/// The words of one copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Copy<'a> {
    /// The number of updates that were lost.
    #[inline]
    pub(crate) fn lost(&self) -> Option<&'a AtomicU64> {
        self.words.first()
    }

    /// The lock and the value of a map without keys.
    #[inline]
    pub(crate) fn single(&self, info: &MapInfo) -> Option<(&'a AtomicU64, &'a [AtomicU64])> {
        let size = info.value_words();
        let value = self.words.get(HEADER..HEADER + size)?;
        if info.is_counted() {
            let rest = self.words.get(HEADER + size..HEADER + 3 * size)?;
            let (counted, absorbed) = rest.split_at(size);
            value.iter().zip(counted).zip(absorbed).for_each(|((value, from), by)| absorb(value, from, by));
        }
        Some((self.words.get(1)?, value))
    }

    /// The number of entries that were evicted, and of keys that were new.
    pub(crate) fn recency(&self, info: &MapInfo) -> Option<Recency<'a>> {
        let [evicted, clock] = self.words.get(1..3)? else { return None };
        info.is_evicting().then_some(Recency { evicted, clock })
    }

    /// The buckets of a map with keys.
    #[inline]
    pub(crate) fn table(&self, info: &MapInfo) -> Option<Table<'a>> {
        Some(Table {
            lanes: info.lanes(),
            recency: self.recency(info),
            words: self.words.get(SPACING..)?,
            buckets: info.buckets(),
            bucket_words: info.bucket_words(),
            key_words: info.key_words(),
            entry_words: info.entry_words(),
        })
    }
}
