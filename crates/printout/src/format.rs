//! Formats of `printf`.
//!
//! ```text
//! % [-+ #0']* [width] [.precision] [hh h l ll L q j z t] conversion      %%
//! ```

use crate::conversion::{Conversion, Kind};
use crate::datum::Datum;
use crate::terminal;

/// A format: literal text and conversions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Format {
    pub(crate) parts: Vec<Part>,
}

/// A part of a format.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Text(Vec<u8>),
    Value(Conversion),
}

impl Format {
    /// Parses a format. What is no conversion is text, as in C.
    pub(crate) fn parse(format: &[u8]) -> Format {
        let mut parts = Vec::new();
        let mut text = Vec::new();
        let mut rest = format;
        while let Some((first, others)) = rest.split_first() {
            let Some((conversion, length)) = (*first == b'%').then(|| conversion(others)).flatten() else {
                text.push(*first);
                rest = others;
                continue;
            };
            rest = &others[length..];
            match conversion {
                None => text.push(b'%'),
                Some(conversion) => {
                    parts.push(Part::Text(std::mem::take(&mut text)));
                    parts.push(Part::Value(conversion));
                }
            }
        }
        parts.push(Part::Text(text));
        Format { parts }
    }

    /// The text with these values.
    pub(crate) fn apply(&self, values: &[Datum]) -> Vec<u8> {
        self.written(values, |value, out| out.extend_from_slice(value))
    }

    /// The same for a terminal: what the format says is the script's own, what values say is not.
    pub(crate) fn apply_visibly(&self, values: &[Datum]) -> Vec<u8> {
        self.written(values, |value, out| out.extend_from_slice(&terminal::text(value)))
    }

    fn written(&self, values: &[Datum], put: impl Fn(&[u8], &mut Vec<u8>)) -> Vec<u8> {
        let (mut out, mut shown) = (Vec::new(), Vec::new());
        let mut values = values.iter();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Value(conversion) => {
                    shown.clear();
                    conversion.write(values.next().unwrap_or(&Datum::Null), &mut shown);
                    put(&shown, &mut out);
                }
            }
        }
        out
    }
}

/// The conversion behind a percent sign and its length; `Some(None)` for a second percent sign.
fn conversion(text: &[u8]) -> Option<(Option<Conversion>, usize)> {
    let mut found = Conversion::default();
    let mut at = 0;
    while let Some(flag) = text.get(at) {
        match flag {
            b'-' => found.left = true,
            b'+' => found.plus = true,
            b' ' => found.space = true,
            b'#' => found.alternative = true,
            b'0' => found.zeros = true,
            // Groups of thousands: the C locale has none.
            b'\'' => (),
            _ => break,
        }
        at += 1;
    }
    (found.width, at) = number(text, at);
    if text.get(at) == Some(&b'.') {
        let precision;
        (precision, at) = number(text, at + 1);
        found.precision = Some(precision);
    }
    let modifiers = text[at..].iter().take_while(|byte| b"hlLqjzt".contains(byte)).count();
    // Only `h` and `hh` make a number shorter: all others stand for 64 bits, as nothing does.
    found.bytes = match &text[at..at + modifiers] {
        b"hh" => 1,
        b"h" => 2,
        _ => 8,
    };
    at += modifiers;
    found.kind = match (text.get(at)?, text.get(at + 1)) {
        (b'%', _) => return Some((None, at + 1)),
        (b'd' | b'i', _) => Kind::Signed,
        (b'u', _) => Kind::Unsigned,
        (b'o', _) => Kind::Octal,
        (b'x', _) => Kind::Hex,
        (b'X', _) => Kind::UpperHex,
        (b'p', _) => Kind::Address,
        (b'c', _) => Kind::Character,
        (b's', _) => Kind::Text,
        (b'r', Some(b'x')) => Kind::EscapedBytes,
        (b'r', Some(b'h')) => Kind::HexBytes,
        (b'r', _) => Kind::Bytes,
        (b'g', Some(b'r')) => Kind::Allocation,
        (b'f' | b'F', _) => Kind::Fixed,
        (b'e' | b'E', _) => Kind::Exponent,
        (b'g' | b'G', _) => Kind::General,
        _ => return None,
    };
    found.upper = text.get(at).is_some_and(u8::is_ascii_uppercase);
    let letters = match found.kind {
        Kind::EscapedBytes | Kind::HexBytes | Kind::Allocation => 2,
        _ => 1,
    };
    Some((Some(found), at + letters))
}

/// The most that a width or precision can be: a format of a few bytes has a text of bounded size.
const MOST: usize = 1 << 16;

fn number(text: &[u8], mut at: usize) -> (usize, usize) {
    let mut number = 0usize;
    while let Some(digit @ b'0'..=b'9') = text.get(at) {
        number = (number * 10 + usize::from(digit - b'0')).min(MOST);
        at += 1;
    }
    (number, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(format: &str, values: &[Datum]) -> String {
        String::from_utf8(Format::parse(format.as_bytes()).apply(values)).expect("ASCII")
    }

    #[test]
    fn text_and_values_alternate() {
        let values = [Datum::Signed(-1), Datum::text("x"), Datum::Bytes(vec![b'a', 1])];
        assert_eq!(shown("%d|%s|%r%%\n", &values), "-1|x|a\\x01%\n");
        assert_eq!(shown("%rx %rh %r", &[values[2].clone(), values[2].clone(), values[2].clone()]), {
            "\\x61\\x01 61 01 a\\x01"
        });
        assert_eq!(
            shown("%lld%hhu%-6.2llx|", &[values[0].clone(), Datum::Signed(257), Datum::Signed(10)]),
            { "-110a    |" }
        );
    }

    #[test]
    fn a_terminal_gets_the_escapes_of_the_format_and_none_of_values() {
        let format = Format::parse(b"\x1b[1m%s|%c|%d\x1b[0m");
        let values = [Datum::text("\x1b[2J"), Datum::Signed(0x9b), Datum::Signed(-1)];
        assert_eq!(format.apply_visibly(&values), b"\x1b[1m\\x1b[2J|\\x9b|-1\x1b[0m");
    }

    #[test]
    fn what_is_no_conversion_is_text() {
        assert_eq!(shown("100%", &[]), "100%");
        assert_eq!(shown("%y %-5", &[]), "%y %-5");
        assert_eq!(shown("%d", &[]), "null");
        assert_eq!(shown("%99999999999999999999d", &[Datum::Signed(1)]).len(), MOST);
    }
}
