//! What the reader sees: the entries of a map, merged over its copies.
//!
//! The words may have been written by anybody. What is read is bounded by the size of the table,
//! and numbers wrap.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::vec;
use std::vec::Vec;

use crate::key::Key;
use crate::maps::{copy_entry, key_length};
use crate::value::Pair;
use crate::{Kind, MapInfo, Maps, series, stacks};

/// An entry of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key, extended with zeros to [`MapInfo::key`] bytes.
    pub key: Vec<u8>,
    /// The value.
    pub value: Value,
}

/// The value of an entry, by the [`Kind`] of its map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// The bytes of a plain map, or none for stacks.
    Bytes(Vec<u8>),
    /// A count, a sum, the least or the greatest number; 0 if there was none.
    Number(u64),
    /// An average.
    Avg {
        /// How many numbers.
        count: u64,
        /// Their sum, signed if the map is.
        sum: u64,
    },
    /// Statistics.
    Stats {
        /// How many numbers.
        count: u64,
        /// Their sum, signed if the map is.
        sum: u64,
    },
    /// How many numbers each bucket of a histogram has.
    Buckets(Vec<u64>),
    /// The intervals of a series up to the newest one that has a number, in ascending order: the
    /// time each starts at, in nanoseconds, and its number. Empty if it has none at all.
    Series(Vec<(i64, Option<u64>)>),
}

impl Maps<'_> {
    /// All entries of a map, in no order. Empty if there is no such map.
    pub fn view(&self, map: usize) -> Vec<Entry> {
        let Some(info) = self.info(map) else { return Vec::new() };
        if info.key == 0 {
            return vec![Entry { key: Vec::new(), value: self.single_value(map, info) }];
        }
        let Some(keys) = self.keys(info) else { return Vec::new() };
        let mut key = vec![0; info.key as usize];
        let mut bytes = vec![0; info.value as usize];
        let mut entries = Vec::new();
        for index in keys.indices(0) {
            let Some(length) = copy_entry(info, &keys, index, &mut key, &mut bytes) else { continue };
            let value = match info.kind() {
                Kind::Plain | Kind::Stacks => Value::Bytes(bytes.clone()),
                _ => {
                    let found = Key::new(&key[..length]);
                    self.value(info, found)
                }
            };
            entries.push(Entry { key: key.clone(), value });
        }
        entries
    }

    fn single_value(&self, map: usize, info: &MapInfo) -> Value {
        if matches!(info.kind(), Kind::Plain | Kind::Stacks) {
            let mut bytes = vec![0; info.value as usize];
            self.fetch(map, &[], &mut bytes);
            return Value::Bytes(bytes);
        }
        self.value(info, Key::new(&[]))
    }

    /// What the copies of an aggregate's entry are together.
    fn value(&self, info: &MapInfo, key: Key<'_>) -> Value {
        let pair = || self.pair(info, key);
        match info.kind() {
            Kind::Avg => {
                let Pair(sum, count) = pair();
                Value::Avg { count, sum }
            }
            Kind::Stats => {
                let Pair(sum, count) = pair();
                Value::Stats { count, sum }
            }
            Kind::Hist | Kind::Lhist => Value::Buckets(self.buckets(info, key)),
            Kind::Tseries => Value::Series(self.intervals(info, key)),
            kind => Value::Number(pair().number(kind, info)),
        }
    }

    fn buckets(&self, info: &MapInfo, key: Key<'_>) -> Vec<u64> {
        let mut sums = vec![0u64; info.value_words()];
        let counts =
            |value: &[AtomicU64]| -> Vec<u64> { value.iter().map(|count| count.load(Relaxed)).collect() };
        for counts in self.read(info, key, counts) {
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum = sum.wrapping_add(count);
            }
        }
        sums
    }

    fn intervals(&self, info: &MapInfo, key: Key<'_>) -> Vec<(i64, Option<u64>)> {
        let length = (info.value_words() / series::SLOT) as u64;
        let Some(newest) = self.newest(info, key) else { return Vec::new() };
        let first = newest.saturating_sub(length.saturating_sub(1));
        let start = |epoch: u64| epoch.wrapping_mul(series::interval(info)) as i64;
        (first..=newest).map(|epoch| (start(epoch), self.interval(info, key, epoch))).collect()
    }

    /// The bytes that [`intern`](Self::intern) gave a number.
    pub fn stack(&self, map: usize, number: u64) -> Option<Vec<u8>> {
        let info = self.info(map).filter(|info| info.kind() == Kind::Stacks && info.key != 0)?;
        let table = self.keys(info)?;
        let index = stacks::index(number)?;
        let mut bytes = vec![0; key_length(info, &table.at(index)?)];
        let length = copy_entry(info, &table, index, &mut bytes, &mut [])?;
        let is_whole = length == bytes.len();
        (is_whole && stacks::number(&Key::new(&bytes), index) == number).then_some(bytes)
    }
}
