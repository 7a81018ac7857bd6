//! A template in its compiled form.

use std::fmt;

/// How many bytes of data a control takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// So many.
    Bytes(u16),
    /// As many as a word of the probed program has: 4 or 8.
    Word,
}

impl Width {
    /// The bytes, in a record of a program with words of `word` bytes. All but 4 counts as 8.
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

/// What is made of the bytes taken.
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

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// Text that is copied.
    Literal(Box<[u8]>),
    /// Data taken from where the last item left off.
    Control(Control),
    /// `%p` alone: three bytes passed over.
    Prefix,
    /// `%p` with a control: the same, and the control takes its data from what the prefix announces.
    Prefixed(Control),
    /// `%p(...)`: a group, once, over what a prefix announces.
    Group(Part),
    /// `%r`: a control or a group, as often as what a prefix announces is long.
    Repeated(Part),
}

/// Items that take their data from a part of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) items: Box<[Item]>,
    /// How many of the items are values: all but literals and what is skipped.
    pub(super) fields: usize,
}

impl Part {
    pub(super) fn new(items: Vec<Item>) -> Part {
        let fields = items.iter().filter(|item| item.is_field()).count();
        Part { items: items.into(), fields }
    }
}

impl Item {
    /// Whether this is a value of the record.
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
