//! The compiled form of a template.

use std::fmt;
use std::sync::Arc;

use super::condition::Condition;
use super::mask::Mask;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// `%c`
    Characters(Width),
    /// `%d`
    Signed(Width),
    /// `%f`
    Float(Width),
    /// `%i`
    Skip(Width),
    /// `%m`
    Names(Width, Arc<Mask>),
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
    Control(Single),
    /// `%p` alone: skips a prefix of three bytes.
    Prefix,
    /// `%p` with a control: reads a prefix, and converts the data that it announces.
    Prefixed(Single),
    /// `%p(...)`: applies a group once to the data that a prefix announces.
    Group(Group),
    /// `%r`: applies a control or a group repeatedly, until the data that a prefix announces is
    /// used up.
    Repeated(Group),
    /// `%?`: applies a group if a condition holds. Its values belong to the sequence around it.
    Conditional(Condition, Group),
}

/// A control in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Single {
    pub(super) control: Control,
    /// Where its value is kept for the conditions that ask for it.
    pub(super) slot: Option<u8>,
}

impl From<Control> for Single {
    fn from(control: Control) -> Single {
        Single { control, slot: None }
    }
}

/// A sequence of items that is applied to a part of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) items: Box<[Item]>,
    /// How many values the items make: all but literals, prefixes and skips make some.
    pub(super) fields: usize,
}

impl Group {
    pub(super) fn new(items: Vec<Item>) -> Group {
        let fields = items.iter().map(Item::fields).sum();
        Group { items: items.into(), fields }
    }
}

impl Item {
    /// How many values of the record the item makes.
    fn fields(&self) -> usize {
        match self {
            Item::Literal(_) | Item::Prefix => 0,
            Item::Control(single) | Item::Prefixed(single) => usize::from(single.control.is_field()),
            Item::Group(part) | Item::Repeated(part) => usize::from(part.fields > 0),
            Item::Conditional(_, part) => part.fields,
        }
    }
}

impl Control {
    pub(super) fn is_field(&self) -> bool {
        !matches!(self, Control::Skip(_))
    }

    /// The width of an integer that a condition can ask for, and whether it is signed.
    pub(super) fn integer(&self) -> Option<(Width, bool)> {
        match self {
            Control::Signed(width) => Some((*width, true)),
            Control::Hexadecimal(Width::Bytes(9..)) => None,
            Control::Unsigned(width) | Control::Hexadecimal(width) | Control::Names(width, _) => {
                Some((*width, false))
            }
            _ => None,
        }
    }
}
