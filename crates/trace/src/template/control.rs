//! The compiled form of a template.

use std::fmt;

/// How many bytes of data a control takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// A fixed number of bytes.
    Bytes(u16),
    /// The size of a word of the probed program: 4 or 8 bytes.
    Word,
}

impl Width {
    /// The number of bytes, in a program with words of `word` bytes (any value but 4 means 8).
    pub fn bytes(self, word: usize) -> usize {
        match self {
            Width::Bytes(bytes) => bytes.into(),
            Width::Word if word == 4 => 4,
            Width::Word => 8,
        }
    }
}

impl fmt::Display for Width {
    /// The number of bits, or `-word`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Width::Bytes(bytes) => write!(f, "{}", u32::from(*bytes) * 8),
            Width::Word => f.write_str("-word"),
        }
    }
}

/// A conversion of data bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// `%c`
    Characters(Width),
    /// `%d`
    Signed(Width),
    /// `%f`
    Float(Width),
    /// `%i`
    Skip(Width),
    /// `%s`
    Text,
    /// `%u`
    Unsigned(Width),
    /// `%x`
    Hexadecimal(Width),
    /// `%z`
    Dump,
}

/// An element of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// Text that is copied to the output.
    Literal(Box<[u8]>),
    /// Converts the next data bytes.
    Control(Control),
    /// `%p` alone: skips a prefix of three bytes.
    Prefix,
    /// `%p` with a control: reads a prefix, and converts the data that it announces.
    Prefixed(Control),
    /// `%p(...)`: applies a group once to the data that a prefix announces.
    Group(Group),
    /// `%r`: applies a control or a group repeatedly, until the data that a prefix announces is
    /// used up.
    Repeated(Group),
}

/// A sequence of items that is applied to a part of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) items: Box<[Item]>,
    /// How many of the items are values: all but literals, prefixes and skips.
    pub(super) fields: usize,
}

impl Group {
    pub(super) fn new(items: Vec<Item>) -> Group {
        let fields = items.iter().filter(|item| item.is_field()).count();
        Group { items: items.into(), fields }
    }
}

impl Item {
    /// Whether the item makes a value of the record.
    pub(super) fn is_field(&self) -> bool {
        match self {
            Item::Literal(_) | Item::Prefix => false,
            Item::Control(control) | Item::Prefixed(control) => control.is_field(),
            Item::Group(part) | Item::Repeated(part) => part.fields > 0,
        }
    }
}

impl Control {
    pub(super) fn is_field(self) -> bool {
        !matches!(self, Control::Skip(_))
    }
}
