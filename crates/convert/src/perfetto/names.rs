//! Interned names: each is written once, and referred to by number.

use super::field::interned;
use super::wire::{message, number, text};
use crate::map::Map;

/// Most names of all kinds. When there are more, all are forgotten and written again as needed.
const MAX_NAMES: usize = 1 << 16;

/// The kind of a name, by its field in `InternedData`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Category,
    Event,
    Annotation,
}

/// The names written so far.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: [Map<Vec<u8>, u64>; 3],
    /// Names not written yet, as the body of `InternedData`.
    pub(super) new: Vec<u8>,
}

impl Names {
    /// The number of a name.
    pub(super) fn number(&mut self, kind: Kind, name: &[u8]) -> u64 {
        let (known, field) = match kind {
            Kind::Category => (&mut self.known[0], interned::CATEGORIES),
            Kind::Event => (&mut self.known[1], interned::EVENTS),
            Kind::Annotation => (&mut self.known[2], interned::ANNOTATIONS),
        };
        if let Some(&known) = known.get(name) {
            return known;
        }
        // 0 means no name.
        let iid = known.len() as u64 + 1;
        known.insert(name.to_vec(), iid);
        message(field, &mut self.new, |out| {
            number(interned::IID, iid, out);
            text(interned::NAME, name, out);
        });
        iid
    }

    /// Whether there are so many names that they must be forgotten.
    pub(super) fn is_full(&self) -> bool {
        self.known.iter().map(Map::len).sum::<usize>() >= MAX_NAMES
    }

    /// Forgets all names.
    pub(super) fn clear(&mut self) {
        self.known.iter_mut().for_each(Map::clear);
        self.new.clear();
    }
}
