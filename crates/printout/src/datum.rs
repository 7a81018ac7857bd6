//! A value to print: what the bytes of a log or a map mean, with names already looked up.

use std::io::Write;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Datum {
    /// No value.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A signed number.
    Signed(i64),
    /// An unsigned number.
    Unsigned(u64),
    /// A number that text shows in another way: an address, or a name of an enum.
    Symbolic {
        /// What text shows.
        text: Vec<u8>,
        /// What JSON shows.
        number: u64,
    },
    /// A string; also a symbol, a stack, an address of a network, a time.
    Text(Vec<u8>),
    /// A floating-point number.
    Float {
        /// Its bits, in an order that is that of the numbers.
        order: i64,
        /// As it is written.
        text: String,
    },
    /// Bytes that may be anything.
    Bytes(Vec<u8>),
    /// The elements of an array.
    Array(Vec<Datum>),
    /// The members of a tuple.
    Tuple(Vec<Datum>),
    /// The fields of a struct.
    Record(Vec<(String, Datum)>),
}

impl Datum {
    /// The text of a string.
    pub(crate) fn text(text: impl Into<Vec<u8>>) -> Datum {
        Datum::Text(text.into())
    }

    /// A floating-point number, written with as many digits as tell it from others of its type.
    pub(crate) fn float(value: impl Into<f64> + ToString + Copy) -> Datum {
        Datum::Float { order: ordered(value.into().to_bits()), text: value.to_string() }
    }

    /// The floating-point number that a conversion such as `%g` shows; `None` if it is none.
    pub(crate) fn as_float(&self) -> Option<f64> {
        match self {
            Datum::Float { order, .. } => {
                Some(f64::from_bits(ordered(order.cast_unsigned()).cast_unsigned()))
            }
            _ => None,
        }
    }

    /// An address.
    pub(crate) fn address(number: u64) -> Datum {
        Datum::Symbolic { text: format!("{number:#x}").into(), number }
    }

    /// A number, which has 64 bits: what is beyond them becomes the greatest number.
    pub(crate) fn integer(number: i128) -> Datum {
        match i64::try_from(number) {
            Ok(number) => Datum::Signed(number),
            Err(_) => Datum::Unsigned(u64::try_from(number).unwrap_or(u64::MAX)),
        }
    }

    /// The number that a conversion such as `%d` shows; `None` if it is none.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Datum::Bool(value) => Some(u64::from(*value)),
            Datum::Signed(value) => Some(value.cast_unsigned()),
            Datum::Unsigned(value) => Some(*value),
            Datum::Symbolic { number, .. } => Some(*number),
            _ => None,
        }
    }

    /// Appends it as text.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Datum::Null => out.extend_from_slice(b"null"),
            Datum::Bool(value) => append(out, format_args!("{value}")),
            Datum::Signed(value) => append(out, format_args!("{value}")),
            Datum::Unsigned(value) => append(out, format_args!("{value}")),
            Datum::Symbolic { text, .. } | Datum::Text(text) => out.extend_from_slice(text),
            Datum::Float { text, .. } => out.extend_from_slice(text.as_bytes()),
            Datum::Bytes(bytes) => escaped(out, bytes, true),
            // Elements of arrays are not separated by spaces, members of tuples are.
            Datum::Array(elements) => list(out, "[", ",", "]", elements),
            Datum::Tuple(members) => list(out, "(", ", ", ")", members),
            Datum::Record(fields) if fields.is_empty() => out.extend_from_slice(b"{}"),
            Datum::Record(fields) => {
                for (index, (name, value)) in fields.iter().enumerate() {
                    append(out, format_args!("{}.{name} = ", if index == 0 { "{ " } else { ", " }));
                    value.write(out);
                }
                out.extend_from_slice(b" }");
            }
        }
    }

    /// It as text.
    pub(crate) fn to_text(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    /// Appends it as the key of a map: the members of a tuple stand without its parentheses.
    pub(crate) fn write_key(&self, separator: &str, out: &mut Vec<u8>) {
        match self {
            Datum::Tuple(members) => list(out, "", separator, "", members),
            other => other.write(out),
        }
    }
}

/// The bits of a floating-point number as a number of the same order, and back.
fn ordered(bits: u64) -> i64 {
    let bits = bits.cast_signed();
    if bits < 0 { bits ^ i64::MAX } else { bits }
}

fn list(out: &mut Vec<u8>, open: &str, separator: &str, close: &str, values: &[Datum]) {
    out.extend_from_slice(open.as_bytes());
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(separator.as_bytes());
        }
        value.write(out);
    }
    out.extend_from_slice(close.as_bytes());
}

/// Appends formatted text.
pub(crate) fn append(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to memory does not fail");
}

/// Appends bytes as `%r` shows them: those that are not visible ASCII, or all, as `\x0a`.
pub(crate) fn escaped(out: &mut Vec<u8>, bytes: &[u8], keep_visible: bool) {
    for byte in bytes {
        match byte {
            b' '..=b'~' if keep_visible => out.push(*byte),
            _ => append(out, format_args!("\\x{byte:02x}")),
        }
    }
}

/// Appends bytes as `%rh` shows them: `48 65 6c`.
pub(crate) fn hexadecimal(out: &mut Vec<u8>, bytes: &[u8]) {
    for (index, byte) in bytes.iter().enumerate() {
        append(out, format_args!("{}{byte:02x}", if index == 0 { "" } else { " " }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_bpftrace_shows_them() {
        let shown = |datum: Datum| String::from_utf8(datum.to_text()).expect("ASCII");
        let numbers = vec![Datum::Signed(-1), Datum::Unsigned(2)];
        assert_eq!(shown(Datum::Array(numbers.clone())), "[-1,2]");
        let tuple = Datum::Tuple(vec![Datum::text("a b"), Datum::Tuple(numbers.clone()), Datum::Bool(true)]);
        assert_eq!(shown(tuple.clone()), "(a b, (-1, 2), true)");
        assert_eq!(shown(Datum::address(0)), "0x0");
        assert_eq!(shown(Datum::Bytes(b"a\\ \x7f\xff".to_vec())), "a\\ \\x7f\\xff");
        let fields = vec![("m".into(), Datum::Signed(2)), ("n".into(), Datum::Null)];
        assert_eq!(shown(Datum::Record(fields)), "{ .m = 2, .n = null }");
        assert_eq!(shown(Datum::Record(vec![])), "{}");

        let mut floats = [1.5, -0.25, 0.0, -3e10, f64::INFINITY, 1e-300].map(Datum::float);
        floats.sort();
        let back: Vec<f64> = floats.iter().filter_map(Datum::as_float).collect();
        assert_eq!(back, [-3e10, -0.25, 0.0, 1e-300, 1.5, f64::INFINITY]);
        assert_eq!(shown(Datum::float(0.1f32)), "0.1");

        let mut key = Vec::new();
        tuple.write_key(",", &mut key);
        assert_eq!(key, b"a b,(-1, 2),true");
    }
}
