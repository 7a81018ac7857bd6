//! Fast conversion of numbers, times and strings to text.

use std::time::{Duration, UNIX_EPOCH};

pub(crate) use trace::digits::{bytes as hex, decimal};

/// Appends a number in C's hexadecimal form: `0x7f001234`.
pub(crate) fn hexadecimal(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"0x");
    trace::digits::short(number, out);
}

/// Appends the shortest text that reads back as the same floating point number; `null` if JSON has
/// no number for it.
pub(crate) fn float(number: f64, out: &mut Vec<u8>) {
    match number.is_finite() {
        true => out.extend_from_slice(ryu::Buffer::new().format_finite(number).as_bytes()),
        false => out.extend_from_slice(b"null"),
    }
}

/// Appends a JSON string. Bytes that are not UTF-8 become U+FFFD.
pub(crate) fn string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let is_plain = |byte: &u8| (0x20..0x7f).contains(byte) && *byte != b'"' && *byte != b'\\';
    if text.iter().all(is_plain) {
        out.extend_from_slice(text);
    } else {
        for chunk in text.utf8_chunks() {
            for letter in chunk.valid().chars() {
                letter_of_string(letter, out);
            }
            if !chunk.invalid().is_empty() {
                out.extend_from_slice("\u{fffd}".as_bytes());
            }
        }
    }
    out.push(b'"');
}

fn letter_of_string(letter: char, out: &mut Vec<u8>) {
    match letter {
        '"' => out.extend_from_slice(b"\\\""),
        '\\' => out.extend_from_slice(b"\\\\"),
        '\n' => out.extend_from_slice(b"\\n"),
        '\t' => out.extend_from_slice(b"\\t"),
        '\r' => out.extend_from_slice(b"\\r"),
        // Characters that some readers take for line ends, that a terminal interprets, or that are
        // invisible.
        letter if !printable::is_plain(letter) => {
            for code in letter.encode_utf16(&mut [0; 2]) {
                out.extend_from_slice(b"\\u");
                hex(&code.to_be_bytes(), out);
            }
        }
        letter => out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// Formats times as dates in UTC, with nanoseconds: `2026-01-31T12:00:00.123456789Z`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// The second formatted last, and its text up to the period.
    second: Option<u64>,
    text: Vec<u8>,
}

impl Clock {
    /// Appends a time in nanoseconds since 1970.
    pub(crate) fn show(&mut self, time: u64, out: &mut Vec<u8>) {
        let (second, mut rest) = (time / 1_000_000_000, time % 1_000_000_000);
        if self.second != Some(second) {
            // In the range of 64 bits of nanoseconds, years have four digits.
            let date = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(second));
            self.text = date.to_string().trim_end_matches('Z').as_bytes().to_vec();
            self.second = Some(second);
        }
        out.extend_from_slice(&self.text);
        let mut digits = *b".000000000Z";
        for place in (1..=9).rev() {
            digits[place] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        out.extend_from_slice(&digits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(with: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        with(&mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn numbers_and_bytes() {
        assert_eq!(shown(|out| hexadecimal(0, out)), "0x0");
        assert_eq!(shown(|out| hexadecimal(0x1_0f, out)), "0x10f");
        assert_eq!(shown(|out| hexadecimal(u64::MAX, out)), "0xffffffffffffffff");
        assert_eq!(shown(|out| hex(b"\x00\xff\x1a", out)), "00ff1a");
        assert_eq!(shown(|out| float(1e300, out)), "1e300");
        assert_eq!(shown(|out| float(f64::NAN, out)), "null");
    }

    #[test]
    fn strings_of_json_hold_anything() {
        assert_eq!(shown(|out| string(b"plain", out)), r#""plain""#);
        assert_eq!(shown(|out| string(b"\"\\\n\x01\x7f", out)), r#""\"\\\n\u0001\u007f""#);
        assert_eq!(shown(|out| string("\u{e4}\u{2028}".as_bytes(), out)), "\"\u{e4}\\u2028\"");
        assert_eq!(shown(|out| string(b"a\xffb", out)), "\"a\u{fffd}b\"");
        assert_eq!(
            shown(|out| string("\u{202e}\u{9b}\u{e0041}".as_bytes(), out)),
            r#""\u202e\u009b\udb40\udc41""#
        );
    }

    #[test]
    fn times_are_dates() {
        let mut clock = Clock::default();
        let mut date = |time| shown(|out| clock.show(time, out));
        assert_eq!(date(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(date(1_700_000_000_000_000_001), "2023-11-14T22:13:20.000000001Z");
        assert_eq!(date(1_700_000_000_123_456_789), "2023-11-14T22:13:20.123456789Z");
        assert_eq!(date(u64::MAX), "2554-07-21T23:34:33.709551615Z");
    }
}
