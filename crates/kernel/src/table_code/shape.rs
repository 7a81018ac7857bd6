//! Where the parts of a map are, and what functions on it return.

use maps::{Kind, MapInfo, Places};

/// Nothing was found, or there is no room.
pub(crate) const NONE: i32 = 0;
/// It was done.
pub(crate) const DONE: i32 = 1;
/// It must be done again.
pub(crate) const AGAIN: i32 = 2;

/// A map, and where its parts are, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) number: u16,
    pub(super) info: MapInfo,
    pub(super) places: Places,
    /// The first word of copy 0: how many updates were lost.
    pub(super) lost: i32,
    /// Bytes of a copy.
    pub(super) copy: i32,
    /// The first bucket of copy 0.
    pub(super) table: i32,
    /// The value of a map without keys.
    pub(super) value: i32,
    pub(super) bucket: i32,
    pub(super) entry: i32,
    /// The value in an entry.
    pub(super) value_in_entry: i32,
    pub(super) value_bytes: i32,
}

impl Shape {
    pub(super) fn of(number: u16, info: &MapInfo) -> Shape {
        let places = info.places();
        let bytes = |words: usize| 8 * words as i32;
        let lost = bytes(info.place as usize);
        Shape {
            number,
            info: *info,
            places,
            lost,
            copy: bytes(info.words as usize),
            table: lost + bytes(places.table),
            value: lost + bytes(places.value),
            bucket: bytes(places.bucket_words),
            entry: bytes(places.entry_words),
            value_in_entry: bytes(1 + places.key_words),
            value_bytes: bytes(places.value_words),
        }
    }

    pub(super) fn kind(&self) -> Kind {
        self.info.kind()
    }

    pub(super) fn copies(&self) -> i32 {
        self.info.copies.max(1) as i32
    }

    pub(super) fn is_keyed(&self) -> bool {
        self.info.key > 0
    }

    /// The first bucket of the last copy.
    pub(super) fn last_table(&self) -> i32 {
        self.table + (self.copies() - 1) * self.copy
    }

    /// The place of the last bucket of all copies.
    pub(super) fn last_bucket(&self) -> i32 {
        self.last_table() + (self.places.buckets as i32 - 1) * self.bucket
    }

    /// The place of the last entry of all copies.
    pub(super) fn last_entry(&self) -> i32 {
        self.last_bucket() + 8 + (maps::LANES as i32 - 1) * self.entry
    }
}
