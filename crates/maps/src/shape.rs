//! Where the words of a map are.
//!
//! ```text
//!     place                      place + words
//!     | copy 0                   | copy 1 ...
//!     | header | value | counted | absorbed |               a map without keys
//!     | header | ... up to 16 | bucket | bucket ...         a map with keys
//!
//!     header:  updates that were lost; the lock of a map without keys
//!     counted: what compiled code has counted, which only the processor of the copy writes, without
//!              locks; absorbed: how much of that is in the value. Only of counts, sums and
//!              histograms without keys
//!     bucket:  control word | entry 0 | ... | entry 6 | ... up to a multiple of 8
//!     entry:   length of the key in bytes | key | value
//! ```

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::control::LANES;
use crate::table::Table;
use crate::{Kind, MapInfo};

/// Words of a copy before its value, if the map has no keys.
const HEADER: usize = 2;
/// Words of a copy before its buckets; copies are a multiple of it: 128 bytes, what processors
/// fetch at once.
const SPACING: usize = 16;
/// A cache line's words.
const LINE: usize = 8;

/// Where the entries of a map with keys are, for compiled code that looks for one: in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLayout {
    /// The first bucket of copy 0.
    pub first: usize,
    /// The distance of two copies.
    pub copy_words: usize,
    /// The number of buckets.
    pub buckets: u32,
    /// The distance of two buckets.
    pub bucket_words: usize,
    /// The distance of two entries. The first is behind the bucket's control word.
    pub entry_words: usize,
    /// The most words of a key. Each is behind its length, before the value.
    pub key_words: usize,
}

impl MapInfo {
    /// The map's kind. Unknown numbers are plain maps.
    #[inline]
    pub fn kind(&self) -> Kind {
        Kind::from_number(self.kind).unwrap_or(Kind::Plain)
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
        (1 + LANES * (1 + self.key_words() + self.value_words())).next_multiple_of(LINE)
    }

    /// Buckets of a copy: one for each four entries, so that lanes are three quarters more than
    /// entries. With half more, one in a million entries finds both of its buckets full before the
    /// map is; with a quarter more, one in a thousand.
    #[inline]
    fn buckets(&self) -> u32 {
        self.entries / 4 + 1
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

    /// Where the entries of a map with keys are.
    pub fn table_layout(&self) -> TableLayout {
        TableLayout {
            first: self.place as usize + SPACING,
            copy_words: self.words as usize,
            buckets: self.buckets(),
            bucket_words: self.bucket_words(),
            entry_words: 1 + self.key_words() + self.value_words(),
            key_words: self.key_words(),
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

    /// The buckets of a map with keys.
    #[inline]
    pub(crate) fn table(&self, info: &MapInfo) -> Option<Table<'a>> {
        Some(Table {
            words: self.words.get(SPACING..)?,
            buckets: info.buckets(),
            bucket_words: info.bucket_words(),
            key_words: info.key_words(),
            entry_words: 1 + info.key_words() + info.value_words(),
        })
    }
}
