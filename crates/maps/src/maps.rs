//! The maps of a program, and what its handlers do with them.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::key::{self, Key, byte_words};
use crate::shape::Copy as MapCopy;
use crate::single;
use crate::table::{Entry, TRIES, Table};
use crate::{Kind, MapInfo, value};

/// The maps of a program: what they are, and the words that all its users share.
#[derive(Clone, Copy, Debug, Default)]
pub struct Maps<'a> {
    /// The maps, by their numbers. Trusted.
    pub infos: &'a [MapInfo],
    /// The words of all maps. Anybody may write anything to them at any time.
    pub words: &'a [AtomicU64],
}

impl<'a> Maps<'a> {
    pub(crate) fn info(&self, map: usize) -> Option<&'a MapInfo> {
        self.infos.get(map)
    }

    pub(crate) fn copy(&self, info: &MapInfo, copy: u32) -> Option<MapCopy<'a>> {
        info.copy(self.words, copy)
    }

    /// The table of all keys: copy 0. Other copies have only keys that are in it as well.
    pub(crate) fn keys(&self, info: &MapInfo) -> Option<Table<'a>> {
        self.copy(info, 0)?.table(info)
    }

    pub(crate) fn copies(&self, info: &MapInfo) -> impl Iterator<Item = MapCopy<'a>> + Clone {
        let words = self.words;
        (0..info.copies).map_while(move |copy| info.copy(words, copy))
    }

    /// Counts a loss in one copy. False, for callers to return.
    pub(crate) fn lose(copy: MapCopy<'_>) -> bool {
        if let Some(lost) = copy.lost() {
            lost.fetch_add(1, Relaxed);
        }
        false
    }

    /// A key that the map can have.
    fn key<'k>(info: &MapInfo, key: &'k [u8]) -> Option<Key<'k>> {
        (key.len() <= info.key as usize).then(|| Key::new(key))
    }

    /// Adds a value to an entry, which is made if there is none. False: the table is full, or the
    /// map has no such interval any more, which counts as a loss; or there is no such map.
    pub fn update(&self, map: usize, key: &[u8], value: u64, processor: u32, now: u64) -> bool {
        let Some(info) = self.info(map) else { return false };
        match info.kind() {
            Kind::Plain => {
                return self.change_first(info, key, value, |word| word.fetch_add(value, Relaxed)).is_some();
            }
            Kind::Stacks => return false,
            _ => {}
        }
        let number = match processor {
            processor if processor < info.copies => processor,
            processor => processor.checked_rem(info.copies).unwrap_or(0),
        };
        let Some(copy) = self.copy(info, number) else { return false };
        let words = match info.key {
            0 => copy.single(info).map(|(_, value)| value),
            _ => self.entry(info, copy, number, key),
        };
        let added = words.is_some_and(|words| value::add(info, words, value, now));
        added || Self::lose(copy)
    }

    /// The value of an aggregate's entry in one copy, which is made if there is none.
    fn entry(&self, info: &MapInfo, copy: MapCopy<'a>, number: u32, key: &[u8]) -> Option<&'a [AtomicU64]> {
        let key = Self::key(info, key)?;
        let table = copy.table(info)?;
        if let Some(entry) = table.find(&key) {
            return Some(entry.value);
        }
        if number == 0 {
            return Some(table.find_or_insert(&key, zero)?.0.value);
        }
        // Keys are removed from copy 0 first. So if the key is in copy 0 after it is in this one,
        // whoever removes it from there comes here later.
        let keys = self.keys(info)?;
        keys.find_or_insert(&key, zero)?;
        let entry = table.find_or_insert(&key, zero)?.0;
        if keys.find_or_insert(&key, zero).is_none() {
            table.erase(&key);
            return None;
        }
        Some(entry.value)
    }

    /// Changes the first word of a plain map's entry, which is made with the first word `initial`
    /// if there is none. What `change` returns, 0 if the entry is new.
    fn change_first(
        &self,
        info: &MapInfo,
        key: &[u8],
        initial: u64,
        change: impl FnOnce(&AtomicU64) -> u64,
    ) -> Option<u64> {
        if info.kind() != Kind::Plain {
            return None;
        }
        let copy = self.copy(info, 0)?;
        let result = (|| {
            if info.key == 0 {
                return Some(change(copy.single(info)?.1.first()?));
            }
            let fill = |words: &[AtomicU64]| write(words, [initial].into_iter());
            let table = copy.table(info)?;
            let (entry, new) = table.find_or_insert(&Self::key(info, key)?, fill)?;
            if new { Some(0) } else { Some(change(entry.value.first()?)) }
        })();
        if result.is_none() {
            Self::lose(copy);
        }
        result
    }

    /// Copies an entry's value: a plain one's bytes, an aggregate's number. The rest of `into`
    /// becomes zeros, all of it if there is no entry. Whether there was one.
    pub fn fetch(&self, map: usize, key: &[u8], into: &mut [u8]) -> bool {
        let found = self.fetch_found(map, key, into).is_some();
        if !found {
            into.fill(0);
        }
        found
    }

    fn fetch_found(&self, map: usize, key: &[u8], into: &mut [u8]) -> Option<()> {
        let info = self.info(map)?;
        if info.kind() != Kind::Plain {
            return self.has(map, key).then(|| put_number(into, self.load(map, key)));
        }
        let copy = self.copy(info, 0)?;
        if info.key == 0 {
            let (lock, value) = copy.single(info)?;
            return single::read(lock, || key::copy(value, into));
        }
        let key = Self::key(info, key)?;
        let whole = copy.table(info)?.read(&key, |value| {
            key::copy(value, into);
            key::is_copy(value, into)
        })?;
        whole.then_some(())
    }

    /// Sets an entry of a plain map; what is shorter than the map's value is filled with zeros,
    /// what is longer is cut. False: there is no room, which counts as a loss, or no such plain
    /// map.
    pub fn store(&self, map: usize, key: &[u8], from: &[u8]) -> bool {
        let Some(info) = self.info(map).filter(|info| info.kind() == Kind::Plain) else {
            return false;
        };
        let Some(copy) = self.copy(info, 0) else { return false };
        let stored = match info.key {
            0 => copy
                .single(info)
                .is_some_and(|(lock, value)| single::change(lock, || write(value, byte_words(from)))),
            _ => Self::store_keyed(info, copy, key, from).is_some(),
        };
        stored || Self::lose(copy)
    }

    fn store_keyed(info: &MapInfo, copy: MapCopy<'_>, key: &[u8], from: &[u8]) -> Option<()> {
        let key = Self::key(info, key)?;
        let table = copy.table(info)?;
        let fill = |words: &[AtomicU64]| write(words, byte_words(from));
        for _ in 0..TRIES {
            let (mut entry, new) = table.find_or_insert(&key, fill)?;
            if new {
                return Some(());
            }
            if entry.value.len() <= 1 {
                fill(entry.value);
                return Some(());
            }
            if entry.lock() {
                fill(entry.value);
                if entry.publish() {
                    return Some(());
                }
            }
        }
        None
    }

    /// Removes an entry from all copies; of a map without keys, sets the value to zeros. Whether
    /// there was one.
    pub fn erase(&self, map: usize, key: &[u8]) -> bool {
        let Some(info) = self.info(map) else { return false };
        if info.key == 0 {
            self.zero(map);
            return true;
        }
        let Some(key) = Self::key(info, key) else { return false };
        let tables = self.copies(info).filter_map(|copy| copy.table(info));
        tables.fold(false, |erased, table| table.erase(&key) | erased)
    }

    /// The entry's number: a plain value's first word, what an aggregate amounts to over all
    /// copies (of a histogram: how many numbers it has; of a series: its newest number). 0 if there
    /// is no entry.
    pub fn load(&self, map: usize, key: &[u8]) -> u64 {
        let Some(info) = self.info(map) else { return 0 };
        let Some(key) = Self::key(info, key) else { return 0 };
        let has = || info.key == 0 || self.keys(info).is_some_and(|keys| keys.find(&key).is_some());
        match info.kind() {
            Kind::Plain => self.first(info, key),
            _ if has() => self.merged(info, key),
            _ => 0,
        }
    }

    /// Sets the first word of a plain map's entry; those after it are zeros if it is new. False:
    /// as for [`store`](Self::store).
    pub fn put(&self, map: usize, key: &[u8], value: u64) -> bool {
        let Some(info) = self.info(map) else { return false };
        let set = |word: &AtomicU64| {
            word.store(value, Relaxed);
            0
        };
        self.change_first(info, key, value, set).is_some()
    }

    /// Adds to the first word of a plain map's entry, which is made if there is none. The word
    /// before; 0 if there is no room, which counts as a loss.
    pub fn bump(&self, map: usize, key: &[u8], by: u64) -> u64 {
        let Some(info) = self.info(map) else { return 0 };
        self.change_first(info, key, by, |word| word.fetch_add(by, Relaxed)).unwrap_or(0)
    }

    /// Whether there is an entry. Maps without keys have theirs always.
    pub fn has(&self, map: usize, key: &[u8]) -> bool {
        let Some(info) = self.info(map) else { return false };
        if info.key == 0 {
            return true;
        }
        let key = Self::key(info, key);
        key.is_some_and(|key| self.keys(info).is_some_and(|keys| keys.find(&key).is_some()))
    }

    /// Copies the entry at or after a position, which is 0 at first: the key, zero-extended, and a
    /// plain map's value or an aggregate's number. The position to go on from, or 0 if there was
    /// no more entry. `key` must have room for the map's keys.
    pub fn next(&self, map: usize, position: u64, key: &mut [u8], value: &mut [u8]) -> u64 {
        key.fill(0);
        value.fill(0);
        let Some(info) = self.info(map) else { return 0 };
        if info.key == 0 {
            return (position == 0 && self.fetch(map, &[], value)).into();
        }
        let Some(keys) = self.keys(info) else { return 0 };
        for index in keys.indices(position) {
            let Some(length) = copy_entry(info, &keys, index, key, value) else { continue };
            if info.kind() != Kind::Plain {
                let found = Key::new(key.get(..length).unwrap_or_default());
                put_number(value, self.merged(info, found));
            }
            return index + 1;
        }
        key.fill(0);
        value.fill(0);
        0
    }

    /// The number of entries.
    pub fn entries(&self, map: usize) -> u64 {
        let Some(info) = self.info(map) else { return 0 };
        if info.key == 0 { 1 } else { self.keys(info).map_or(0, |keys| keys.count()) }
    }

    /// The updates and stores that were lost since the program began.
    pub fn lost(&self, map: usize) -> u64 {
        let Some(info) = self.info(map) else { return 0 };
        let counts = self.copies(info).filter_map(|copy| Some(copy.lost()?.load(Relaxed)));
        counts.fold(0, u64::wrapping_add)
    }

    /// The entries that were evicted since the program began.
    pub fn evicted(&self, map: usize) -> u64 {
        let recency = self.info(map).and_then(|info| self.copy(info, 0)?.recency(info));
        recency.map_or(0, |recency| recency.evicted.load(Relaxed))
    }

    /// Removes all entries. Those that are being made meanwhile may stay.
    pub fn clear(&self, map: usize) {
        let Some(info) = self.info(map) else { return };
        if info.key == 0 {
            return self.zero(map);
        }
        self.copies(info).filter_map(|copy| copy.table(info)).for_each(|table| table.clear());
    }

    /// Sets all values to zeros; the keys stay. Of an update under way, a part may be left.
    pub fn zero(&self, map: usize) {
        let Some(info) = self.info(map) else { return };
        for copy in self.copies(info) {
            if info.key == 0 {
                if let Some((lock, value)) = copy.single(info) {
                    single::change(lock, || zero(value));
                }
            } else if let Some(table) = copy.table(info) {
                table.indices(0).for_each(|index| zero_entry(info, &table, index));
            }
        }
    }
}

/// Sets an entry of a plain map to zeros while nobody can see it, and one of an aggregate word by
/// word: updates go on meanwhile, and its key must stay.
fn zero_entry(info: &MapInfo, table: &Table<'_>, index: u64) {
    if info.kind() != Kind::Plain {
        let Some(entry) = table.at(index) else { return };
        return entry.value.iter().filter(|_| entry.has_key()).for_each(|word| word.store(0, Relaxed));
    }
    for _ in 0..TRIES {
        let Some(mut entry) = table.at(index) else { return };
        if entry.lock() {
            zero(entry.value);
            // If it was taken meanwhile, there is no such entry any more.
            entry.publish();
            return;
        }
    }
}

/// Copies the key and the value at a place of a table. The key's length, if there is an entry.
pub(crate) fn copy_entry(
    info: &MapInfo,
    table: &Table<'_>,
    index: u64,
    key: &mut [u8],
    value: &mut [u8],
) -> Option<usize> {
    for _ in 0..TRIES {
        let entry = table.at(index)?;
        let length = key_length(info, &entry);
        let room = length.min(key.len());
        key[room..].fill(0);
        let words = entry.key.get(1..)?;
        key::copy(words, &mut key[..room]);
        let mut is_whole = true;
        if info.kind() == Kind::Plain {
            key::copy(entry.value, value);
            is_whole = key::is_copy(entry.value, value);
        }
        if is_whole && key::is_copy(words, &key[..room]) && entry.is_unchanged() {
            return Some(length);
        }
    }
    None
}

/// The length of an entry's key, no more than keys of the map have.
pub(crate) fn key_length(info: &MapInfo, entry: &Entry<'_>) -> usize {
    let length = entry.key.first().map_or(0, |length| length.load(Relaxed));
    length.min(u64::from(info.key)) as usize
}

fn zero(words: &[AtomicU64]) {
    words.iter().for_each(|word| word.store(0, Relaxed));
}

/// Writes words; what is left of the value becomes zeros.
fn write(words: &[AtomicU64], mut from: impl Iterator<Item = u64>) {
    for word in words {
        word.store(from.next().unwrap_or(0), Relaxed);
    }
}

/// Writes a number to the beginning of some bytes, and zeros to the rest.
fn put_number(into: &mut [u8], number: u64) {
    let bytes = number.to_le_bytes();
    let length = into.len().min(bytes.len());
    into[..length].copy_from_slice(&bytes[..length]);
    into[length..].fill(0);
}
