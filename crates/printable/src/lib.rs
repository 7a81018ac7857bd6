//! Makes foreign text - names of symbols, files, threads and sections, program text - safe to show
//! in a message, a table or a file.
//!
//! A terminal interprets what it is sent. A name may hold an escape sequence that clears the
//! screen, sets the window's title or makes the terminal answer with a command; a line break that
//! starts a new line; a mark that changes the direction of what follows; or zero-width characters
//! that hide a part. The owner of the probed program chooses such names. So:
//!
//! * foreign text within a line goes through [`text`], [`bytes`] or [`path`]: the result is one
//!   line in which everything is visible;
//! * a whole message goes through [`lines`], which leaves line breaks and tabs: foreign text that
//!   was not escaped before does no harm.
//!
//! | what | comes out as |
//! |---|---|
//! | control characters of ASCII, DEL | `\x1b` |
//! | those above (C1), marks of direction, characters without width, separators of lines | `\u{202e}` |
//! | bytes that are not UTF-8 | `\xff` |
//!
//! * A program's lines that a message quotes, with marks below them, keep their columns:
//!   [`laid_out`].
//!
//! Everything else stays, including backslashes: the text is for people to read. A format with its
//! own escapes (JSON) uses those for what [`is_plain`] refuses; pages and pictures use [`markup`].

#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether a character is visible and has no other effect.
#[inline]
pub fn is_plain(character: char) -> bool {
    match character {
        ' '..='~' => true,
        '\0'..='\u{9f}' => false,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' => false,
        '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => false,
        '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' => false,
        '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' => false,
        '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}' => false,
        // Private use: its meaning depends on the font.
        '\u{e000}'..='\u{f8ff}' | '\u{f0000}'.. => false,
        _ => true,
    }
}

/// Escapes foreign text for use within a line.
pub fn text(text: &str) -> Cow<'_, str> {
    match text.chars().all(is_plain) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(Shown(text.as_bytes()).to_string()),
    }
}

/// Escapes foreign text for a page of HTML or a picture (SVG): nothing in it is markup, and what is
/// not visible is shown as by [`text`]. Line breaks stay.
pub fn markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' => out.push('\n'),
            // XML has no such characters.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            letter if is_plain(letter) => out.push(letter),
            letter => out.push_str(&self::text(letter.encode_utf8(&mut [0; 4]))),
        }
    }
    out
}

/// Escapes a message, which may have several lines. As a rule, its foreign parts have been through
/// [`text`].
pub fn lines(text: &str) -> Cow<'_, str> {
    let stays = |character: char| is_plain(character) || matches!(character, '\n' | '\t');
    if text.chars().all(stays) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match stays(character) {
            true => shown.push(character),
            false => escape(character, &mut shown),
        }
    }
    Cow::Owned(shown)
}

/// Makes safe a message laid out in columns, with foreign lines in it and perhaps colours. Each
/// character that is not plain becomes one sign, so marks below a line still point to the right
/// place.
pub fn laid_out(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let length = match colour(rest) {
            0 => character.len_utf8(),
            length => length,
        };
        match length > 1 && character == '\x1b' || is_plain(character) || matches!(character, '\n' | '\t') {
            true => shown.push_str(&rest[..length]),
            false => shown.push(char::REPLACEMENT_CHARACTER),
        }
        rest = &rest[length..];
    }
    shown
}

/// Length in bytes of a colour sequence at the start of a text; 0 if there is none.
fn colour(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\x1b[") else { return 0 };
    let digits = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b';').count();
    if rest[digits..].starts_with('m') { digits + 3 } else { 0 }
}

/// Foreign bytes, escaped for use within a line.
pub fn bytes(bytes: &[u8]) -> impl Display {
    Shown(bytes)
}

/// A path, escaped for use within a line.
pub fn path(path: &Path) -> impl Display {
    Shown(path.as_os_str().as_bytes())
}

/// Foreign bytes, written escaped.
struct Shown<'a>(&'a [u8]);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut shown = String::with_capacity(self.0.len());
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                match is_plain(character) {
                    true => shown.push(character),
                    false => escape(character, &mut shown),
                }
            }
            for byte in chunk.invalid() {
                // Writing to a string cannot fail.
                let _ = write!(shown, "\\x{byte:02x}");
            }
        }
        // Honours the width of the format.
        f.pad(&shown)
    }
}

/// Appends a character that is not plain, escaped.
fn escape(character: char, shown: &mut String) {
    // Writing to a string cannot fail.
    let _ = match character {
        '\0'..='\x7f' => write!(shown, "\\x{:02x}", character as u32),
        _ => write!(shown, "\\u{{{:x}}}", character as u32),
    };
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn nothing_in_markup_is_a_tag_or_invisible() {
        assert_eq!(markup("<a href=\"x\">&'</a>"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;&lt;/a&gt;");
        assert_eq!(markup("a\nb\x1b\u{202e}\u{ffff}"), "a\nb\\x1b\\u{202e}\u{fffd}");
    }

    #[test]
    fn what_a_terminal_obeys_is_seen() {
        let hostile =
            "a\x1b]0;title\x07\r\nb\tc\x7f\u{9b}31m\u{202e}d\u{200b}e\u{2066}\u{feff}\u{2028}\u{e0041}";
        let shown = r"a\x1b]0;title\x07\x0d\x0ab\x09c\x7f\u{9b}31m\u{202e}d\u{200b}e\u{2066}\u{feff}\u{2028}\u{e0041}";
        assert_eq!(text(hostile), shown);
        assert_eq!(bytes(hostile.as_bytes()).to_string(), shown);
        assert_eq!(lines("a\tb\r\nc\x1b[2J\n"), "a\tb\\x0d\nc\\x1b[2J\n");
    }

    #[test]
    fn what_is_text_stays_text() {
        for plain in
            ["", "malloc@@GLIBC_2.2.5", "naïve Ümläut 変数 عربي 🦀", r"C:\path", "operator<<(int, char)"]
        {
            assert!(matches!(text(plain), Cow::Borrowed(same) if same == plain));
            assert!(matches!(lines(plain), Cow::Borrowed(same) if same == plain));
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_seen_and_paths_are_padded_like_text() {
        assert_eq!(bytes(b"ab\xff\xc3(\xe2\x82").to_string(), r"ab\xff\xc3(\xe2\x82");
        let name = Path::new(OsStr::from_bytes(b"\xfe/x"));
        assert_eq!(format!("{:>8}|{:<8}|", path(name), path(name)), r"  \xfe/x|\xfe/x  |");
    }

    #[test]
    fn what_is_laid_out_keeps_its_columns_and_colours() {
        let message = "\x1b[1m\x1b[38;5;9merror\x1b[0m: x\n1 | \u{9b}31m\u{202e}\t\x1b[2J\x1b\x1b]0;a\x07\n  |     ^\x1b[1";
        let shown = "\x1b[1m\x1b[38;5;9merror\x1b[0m: x\n1 | \u{fffd}31m\u{fffd}\t\u{fffd}[2J\u{fffd}\u{fffd}]0;a\u{fffd}\n  |     ^\u{fffd}[1";
        assert_eq!(laid_out(message), shown);
    }

    /// For any input the output is plain, and escaping it again changes nothing.
    #[test]
    fn every_character_comes_out_plain() {
        for character in (0..=0x10ffff).filter_map(char::from_u32) {
            let one = character.to_string();
            let shown = text(&one);
            assert!(shown.chars().all(is_plain), "{shown:?}");
            assert_eq!(text(&shown), shown);
        }
    }
}
