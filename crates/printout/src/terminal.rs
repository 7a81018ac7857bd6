//! Output for a terminal. Strings come from processes: their control characters must not reach it.
//!
//! ```text
//! "a\x1b[2Jb\n\xff"   as text: a\x1b[2Jb, line end, \xff        in JSON: \u001b (json does that)
//! U+202E, U+009B               \u{202e}, \u{9b}                          \u202e, \u009b
//! ```
//!
//! Line ends and tabs stay: they are what most texts with several lines are.

use std::borrow::Cow;

use crate::datum::append;

/// Text of which all is foreign.
pub(crate) fn text(bytes: &[u8]) -> Cow<'_, [u8]> {
    if bytes.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t')) {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        out.extend_from_slice(printable::lines(chunk.valid()).as_bytes());
        chunk.invalid().iter().for_each(|byte| append(&mut out, format_args!("\\x{byte:02x}")));
    }
    Cow::Owned(out)
}

/// Lines of JSON. What is not plain stands in strings only, where it is escaped.
pub(crate) fn json(bytes: &[u8]) -> Cow<'_, [u8]> {
    if bytes.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n')) {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len() + 16);
    for character in String::from_utf8_lossy(bytes).chars() {
        if printable::is_plain(character) || character == '\n' {
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            append(&mut out, format_args!("\\u{unit:04x}"));
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_interprets_is_left() {
        let rude = "a\x1b[2Jb\tc\n\u{9b}\u{202e}é\r".as_bytes();
        let shown = text(rude);
        assert_eq!(String::from_utf8_lossy(&shown), "a\\x1b[2Jb\tc\n\\u{9b}\\u{202e}é\\x0d");
        assert_eq!(&*text(b"\x9b\xff."), b"\\x9b\\xff.");
        assert_eq!(&*text(b"plain\n"), b"plain\n");
        let shown = json("\"\u{9b}é\u{e0001}\"\n".as_bytes());
        assert_eq!(String::from_utf8_lossy(&shown), "\"\\u009bé\\udb40\\udc01\"\n");
    }
}
