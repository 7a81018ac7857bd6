//! Byte strings by number: stacks, each stored once.
//!
//! A number is the upper half of the string's hash and, below it, 1 + its place in the table. So it
//! is never 0, and a number from before the table was cleared does not name another string.

use core::sync::atomic::Ordering::Relaxed;

use crate::key::Key;
use crate::{Kind, Maps};

const PLACE: u64 = u32::MAX as u64;

impl Maps<'_> {
    /// The number of these bytes, which are stored if they are new. 0: there is no room, or no such
    /// map of [`Kind::Stacks`].
    pub fn intern(&self, map: usize, bytes: &[u8]) -> u64 {
        let Some(info) = self.infos.get(map) else { return 0 };
        if info.kind() != Kind::Stacks || info.key == 0 {
            return 0;
        }
        let Some(copy) = self.copy(info, 0) else { return 0 };
        let key = Key::new(bytes);
        let fits = bytes.len() <= info.key as usize;
        let table = copy.table(info).filter(|_| fits);
        match table.and_then(|table| table.find_or_insert(&key, |_| {})) {
            Some((entry, _)) if entry.index < PLACE => number(&key, entry.index),
            _ => {
                Self::lose(copy);
                0
            }
        }
    }
}

impl Maps<'_> {
    /// The frames, words of 8 bytes, of the stack that [`intern`](Self::intern) gave a number; 0 if
    /// there is none.
    pub fn depth(&self, map: usize, number: u64) -> u64 {
        let Some(info) = self.infos.get(map).filter(|info| info.kind() == Kind::Stacks && info.key != 0)
        else {
            return 0;
        };
        let entry = self.keys(info).zip(index(number)).and_then(|(table, index)| table.at(index));
        let bytes = entry.and_then(|entry| entry.key.first()).map_or(0, |length| length.load(Relaxed));
        bytes.min(info.key.into()) / 8
    }
}

pub(crate) fn number(key: &Key<'_>, index: u64) -> u64 {
    key.hash & !PLACE | (index + 1)
}

/// The place in the table that a number names.
pub(crate) fn index(number: u64) -> Option<u64> {
    (number & PLACE).checked_sub(1)
}
