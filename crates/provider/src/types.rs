//! The types of arguments: what a macro converts a value to, and what a note says of its size.

use std::fmt::{self, Display, Formatter};

/// The type of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// A whole number of the language itself.
    Number {
        /// The type in C.
        text: &'static str,
        /// How large it is.
        size: Size,
        /// Whether it can be negative.
        signed: bool,
    },
    /// A truth value: `bool`.
    Truth,
    /// A number with a fraction: `float` or `double`.
    Fraction {
        /// The type in C.
        text: &'static str,
        /// Its bytes.
        bytes: u8,
    },
    /// An address: of an object, a string, an array.
    Pointer,
    /// The address of a function.
    Function,
    /// A type that the program defines; what it is, the compiler will know.
    Named(String),
}

/// How large a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// So many bytes.
    Bytes(u8),
    /// One byte, signed or not as the compiler's options say: `char`.
    Char,
    /// As large as an address: `long`.
    Word,
}

/// The numbers: how C spells them, their size and signedness.
const NUMBERS: &[(&str, Size, bool)] = &[
    ("char", Size::Char, true),
    ("signed char", Size::Bytes(1), true),
    ("unsigned char", Size::Bytes(1), false),
    ("short", Size::Bytes(2), true),
    ("unsigned short", Size::Bytes(2), false),
    ("int", Size::Bytes(4), true),
    ("unsigned int", Size::Bytes(4), false),
    ("long", Size::Word, true),
    ("unsigned long", Size::Word, false),
    ("long long", Size::Bytes(8), true),
    ("unsigned long long", Size::Bytes(8), false),
];

/// Names that every program means the same by, and of DTrace's system; a header has what they stand
/// for, so that it needs no other header.
const KNOWN: &[(&str, &str)] = &[
    ("int8_t", "signed char"),
    ("uint8_t", "unsigned char"),
    ("int16_t", "short"),
    ("uint16_t", "unsigned short"),
    ("int32_t", "int"),
    ("uint32_t", "unsigned int"),
    ("int64_t", "long long"),
    ("uint64_t", "unsigned long long"),
    ("intptr_t", "long"),
    ("uintptr_t", "unsigned long"),
    ("ptrdiff_t", "long"),
    ("size_t", "unsigned long"),
    ("ssize_t", "long"),
    ("uchar_t", "unsigned char"),
    ("ushort_t", "unsigned short"),
    ("uint_t", "unsigned int"),
    ("ulong_t", "unsigned long"),
    ("longlong_t", "long long"),
    ("u_longlong_t", "unsigned long long"),
];

/// A number by its spelling in `NUMBERS`.
pub(crate) fn number(spelling: &str) -> Option<Type> {
    let row = NUMBERS.iter().find(|(text, ..)| *text == spelling);
    row.map(|&(text, size, signed)| Type::Number { text, size, signed })
}

/// A type by a name that is always known.
pub(crate) fn known(name: &str) -> Option<Type> {
    match name {
        "string" | "va_list" => Some(Type::Pointer),
        _ => KNOWN.iter().find(|(known, _)| *known == name).and_then(|(_, stands_for)| number(stands_for)),
    }
}

impl Display for Type {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Type::Number { text, .. } | Type::Fraction { text, .. } => out.write_str(text),
            Type::Truth => out.write_str("bool"),
            Type::Pointer => out.write_str("void *"),
            Type::Function => out.write_str("void (*)()"),
            Type::Named(name) => out.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_name_is_a_number() {
        for (name, _) in KNOWN {
            assert!(matches!(known(name), Some(Type::Number { .. })), "{name}");
        }
        assert_eq!(known("id_t"), None);
    }
}
