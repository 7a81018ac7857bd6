//! Names that are written once, and meant by numbers from then on.

use super::field::interned;
use super::wire::{message, number, text};
use crate::map::Map;

/// Names of all kinds together. When there are more, all are forgotten, and told again as they come.
const MOST: usize = 1 << 16;

/// What a name is of, by its field in `InternedData`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Category,
    Event,
    Annotation,
}

/// The names that were written.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: [Map<Vec<u8>, u64>; 3],
    /// Those that have not been written yet: `InternedData`.
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
        // 0 would be none.
        let iid = known.len() as u64 + 1;
        known.insert(name.to_vec(), iid);
        message(field, &mut self.new, |out| {
            number(interned::IID, iid, out);
            text(interned::NAME, name, out);
        });
        iid
    }

    /// Whether there are so many that they are to be forgotten.
    pub(super) fn is_full(&self) -> bool {
        self.known.iter().map(Map::len).sum::<usize>() >= MOST
    }

    /// Forgets all names.
    pub(super) fn clear(&mut self) {
        self.known.iter_mut().for_each(Map::clear);
        self.new.clear();
    }
}
