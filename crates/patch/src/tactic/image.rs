//! The planner's image of the program's bytes: which are changed, and which a jump relies on.
//!
//! It describes memory after all plans have been applied. A byte that is not in it is unchanged and
//! not relied on.

use std::collections::HashMap;

/// The number of bytes in a part of the image.
const PART: u64 = 1024;

/// How a byte is changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Change {
    /// Not changed.
    #[default]
    None,
    /// By a jump or a breakpoint: the image has its value.
    Known,
    /// By a jump to a trampoline whose address the planner does not know.
    Unknown,
}

/// The state of one byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Byte {
    /// How it is changed.
    pub(super) change: Change,
    /// How many jumps rely on its value.
    pub(super) relied: u8,
    /// Its value, if it is [`Change::Known`] or relied on.
    pub(super) value: u8,
}

impl Byte {
    /// Whether it is unchanged and not relied on.
    pub(super) fn is_free(self) -> bool {
        self.change == Change::None && self.relied == 0
    }
}

/// The changed and relied-on bytes, in parts of [`PART`] bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    parts: HashMap<u64, Box<[Byte; PART as usize]>>,
}

impl Image {
    /// The state of the byte at `address`.
    pub(super) fn byte(&self, address: u64) -> Byte {
        match self.parts.get(&(address / PART)) {
            Some(part) => part[(address % PART) as usize],
            None => Byte::default(),
        }
    }

    /// The mutable state of the byte at `address`.
    pub(super) fn byte_mut(&mut self, address: u64) -> &mut Byte {
        let part =
            self.parts.entry(address / PART).or_insert_with(|| Box::new([Byte::default(); PART as usize]));
        &mut part[(address % PART) as usize]
    }

    /// All parts, with their addresses.
    pub(super) fn each_part(&self) -> impl Iterator<Item = (u64, &Box<[Byte; PART as usize]>)> {
        self.parts.iter().map(|(number, part)| (number * PART, part))
    }

    /// Adds a part.
    pub(super) fn insert_part(&mut self, start: u64, part: Box<[Byte; PART as usize]>) {
        self.parts.insert(start / PART, part);
    }

    /// Notes that a byte changes to `value`.
    pub(super) fn change(&mut self, address: u64, value: u8) {
        let byte = self.byte_mut(address);
        debug_assert!(byte.change == Change::None && (byte.relied == 0 || byte.value == value));
        (byte.change, byte.value) = (Change::Known, value);
    }

    /// Notes that a byte is the program's again.
    pub(super) fn change_back(&mut self, address: u64) {
        self.byte_mut(address).change = Change::None;
    }

    /// Notes that one more jump relies on the byte being `value`.
    pub(super) fn rely(&mut self, address: u64, value: u8) {
        let byte = self.byte_mut(address);
        debug_assert!(byte.relied == 0 && byte.change != Change::Known || byte.value == value);
        byte.relied += 1;
        byte.value = value;
    }

    /// Notes that one jump fewer relies on the byte.
    pub(super) fn release(&mut self, address: u64) {
        let byte = self.byte_mut(address);
        debug_assert!(byte.relied > 0);
        byte.relied = byte.relied.saturating_sub(1);
    }
}
