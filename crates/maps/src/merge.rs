//! Reads an aggregate's entry in all its copies, each copy as a whole.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::key::Key;
use crate::shape::Copy as MapCopy;
use crate::value::Pair;
use crate::{Kind, MapInfo, Maps, series, single};

/// Reads an entry's value in one copy. `None` if the copy does not have it. What is read while
/// others keep on setting it to zeros may be a part of it.
#[inline]
fn read<T>(
    info: &MapInfo,
    copy: MapCopy<'_>,
    key: &Key<'_>,
    mut read: impl FnMut(&[AtomicU64]) -> T,
) -> Option<T> {
    let mut last = None;
    if info.key == 0 {
        let (lock, value) = copy.single(info)?;
        let _ = single::read(lock, || last = Some(read(value)));
        return last.or_else(|| Some(read(value)));
    }
    copy.table(info)?.read(key, |value| {
        last = Some(read(value));
        true
    })?;
    last
}

impl<'a> Maps<'a> {
    /// What this reads of an entry's value in each copy that has the entry.
    pub(crate) fn read<T>(
        &self,
        info: &MapInfo,
        key: Key<'_>,
        each: impl Fn(&[AtomicU64]) -> T,
    ) -> impl Iterator<Item = T> {
        self.copies(info).filter_map(move |copy| read(info, copy, &key, &each))
    }

    /// The first word of a plain map's entry; 0 if there is none.
    pub(crate) fn first(&self, info: &MapInfo, key: Key<'_>) -> u64 {
        let first = |value: &[AtomicU64]| value.first().map_or(0, |word| word.load(Relaxed));
        self.copy(info, 0).and_then(|copy| read(info, copy, &key, first)).unwrap_or(0)
    }

    /// What the copies of a value of one or two words are together.
    pub(crate) fn pair(&self, info: &MapInfo, key: Key<'_>) -> Pair {
        let kind = info.kind();
        let pairs = self.read(info, key, Pair::of);
        pairs.reduce(|sum, pair| sum.merge(kind, pair)).unwrap_or_default()
    }

    /// The newest interval that a series has a number for.
    pub(crate) fn newest(&self, info: &MapInfo, key: Key<'_>) -> Option<u64> {
        self.read(info, key, series::newest).flatten().max()
    }

    /// The number that a series has for an interval.
    pub(crate) fn interval(&self, info: &MapInfo, key: Key<'_>, epoch: u64) -> Option<u64> {
        let kind = series::aggregation(info);
        let pairs = self.read(info, key, |slots| series::get(slots, epoch)).flatten();
        Some(pairs.reduce(|sum, pair| sum.merge(kind, pair))?.number(kind, info))
    }

    /// What the copies of an entry amount to as one number: of a histogram, how many numbers were
    /// added; of a series, the number of its newest interval.
    pub(crate) fn merged(&self, info: &MapInfo, key: Key<'_>) -> u64 {
        let sum =
            |value: &[AtomicU64]| value.iter().map(|word| word.load(Relaxed)).fold(0, u64::wrapping_add);
        match info.kind() {
            Kind::Hist | Kind::Lhist => self.read(info, key, sum).fold(0, u64::wrapping_add),
            Kind::Tseries => {
                let newest = self.newest(info, key);
                newest.and_then(|epoch| self.interval(info, key, epoch)).unwrap_or(0)
            }
            kind => self.pair(info, key).number(kind, info),
        }
    }
}
