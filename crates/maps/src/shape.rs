//! Where the words of a map are.
//!
//! ```text
//!     place                      place + words
//!     | copy 0                   | copy 1 ...
//!     | header | value |                                    a map without keys
//!     | header | ... up to 16 | bucket | bucket ...         a map with keys
//!
//!     header:  updates that were lost; the lock of a map without keys
//!     bucket:  control word | entry 0 | ... | entry 6 | ... up to a multiple of 8
//!     entry:   length of the key in bytes | key | value
//! ```

use core::sync::atomic::AtomicU64;

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
            return Some((HEADER + self.value_words()).next_multiple_of(SPACING));
        }
        let buckets = (self.buckets() as usize).checked_mul(self.bucket_words())?;
        Some(buckets.checked_add(SPACING)?.next_multiple_of(SPACING))
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
        let value = self.words.get(HEADER..HEADER + info.value_words())?;
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
