//! Splits a template file into tokens: names, `=`, `,`, numbers and C strings. Comments are
//! skipped.

use std::iter::Peekable;
use std::ops::Range;
use std::str::CharIndices;

use super::problem::Mistake;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A keyword, in lower case.
    Name(String),
    Equals,
    Comma,
    /// A number; none if it is malformed, which was reported.
    Number(Option<u32>),
    Text(StringLiteral),
}

/// The bytes of a string with its escapes resolved, and the position of each byte in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StringLiteral {
    pub(super) bytes: Vec<u8>,
    pub(super) places: Vec<usize>,
}

impl From<&str> for StringLiteral {
    /// Makes one from a text without escapes.
    fn from(text: &str) -> StringLiteral {
        StringLiteral { bytes: text.as_bytes().to_vec(), places: (0..text.len()).collect() }
    }
}

impl StringLiteral {
    fn push(&mut self, bytes: &[u8], place: usize) {
        self.bytes.extend_from_slice(bytes);
        self.places.extend(bytes.iter().map(|_| place));
    }

    pub(super) fn append(&mut self, other: StringLiteral) {
        self.bytes.extend(other.bytes);
        self.places.extend(other.places);
    }
}

/// A token and its position.
#[derive(Clone, Debug)]
pub(super) struct Word {
    pub(super) token: Token,
    pub(super) range: Range<usize>,
}

/// The tokens of a text. Anything else is reported and skipped.
pub(super) fn words(text: &str, mistakes: &mut Vec<Mistake>) -> Vec<Word> {
    let mut lexer = Lexer { text, rest: text.char_indices().peekable(), mistakes };
    let mut words = Vec::new();
    while let Some((start, first)) = lexer.rest.next() {
        if let Some(token) = lexer.token(start, first) {
            words.push(Word { token, range: start..lexer.here() });
        }
    }
    words
}

struct Lexer<'a> {
    text: &'a str,
    rest: Peekable<CharIndices<'a>>,
    mistakes: &'a mut Vec<Mistake>,
}

impl Lexer<'_> {
    /// The position of the next character.
    fn here(&mut self) -> usize {
        self.rest.peek().map_or(self.text.len(), |&(at, _)| at)
    }

    fn tell(&mut self, range: Range<usize>, message: impl Into<String>, expected: impl Into<String>) {
        self.mistakes.push(Mistake::new(range, message, expected));
    }

    /// Skips characters while `is_so` is true.
    fn skip_while(&mut self, mut is_so: impl FnMut(char) -> bool) {
        while self.rest.next_if(|&(_, next)| is_so(next)).is_some() {}
    }

    /// The token that begins with `first`; none for blanks and comments.
    fn token(&mut self, start: usize, first: char) -> Option<Token> {
        match first {
            _ if first.is_whitespace() => None,
            '=' => Some(Token::Equals),
            ',' => Some(Token::Comma),
            '"' => Some(Token::Text(self.string(start))),
            '0'..='9' => Some(Token::Number(self.number(start))),
            'A'..='Z' | 'a'..='z' | '_' => {
                self.skip_while(|next| next.is_ascii_alphanumeric() || next == '_');
                let end = self.here();
                Some(Token::Name(self.text[start..end].to_ascii_lowercase()))
            }
            '/' if self.rest.next_if(|&(_, next)| next == '/').is_some() => {
                self.skip_while(|next| next != '\n');
                None
            }
            '/' if self.rest.next_if(|&(_, next)| next == '*').is_some() => {
                self.comment(start);
                None
            }
            other => {
                let end = self.here();
                self.tell(
                    start..end,
                    format!("`{}` has no meaning here", other.escape_debug()),
                    "keyword=value expected",
                );
                None
            }
        }
    }

    fn comment(&mut self, start: usize) {
        let mut last = ' ';
        for (_, next) in self.rest.by_ref() {
            if last == '*' && next == '/' {
                return;
            }
            last = next;
        }
        self.tell(start..start + 2, "this comment does not end", "`*/` expected after it");
    }

    /// Reads a decimal or hexadecimal number.
    fn number(&mut self, start: usize) -> Option<u32> {
        self.skip_while(|next| next.is_ascii_alphanumeric() || next == '_');
        let range = start..self.here();
        let text = &self.text[range.clone()];
        let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => (digits, 16),
            None => (text, 10),
        };
        if radix == 10 && text.len() > 1 && text.starts_with('0') {
            let decimal = text.trim_start_matches('0');
            self.tell(
                range,
                format!("`{text}` would be octal in C; codes are decimal or hexadecimal"),
                format!("`{}` or `0x...` expected", if decimal.is_empty() { "0" } else { decimal }),
            );
            return None;
        }
        let number = u32::from_str_radix(digits, radix).ok();
        if number.is_none() {
            self.tell(
                range,
                format!("`{text}` is not a code"),
                "a number from 0 to 4294967295 expected, as in 12 or 0x0c",
            );
        }
        number
    }

    /// Reads a string after its opening quote. It ends with its line at the latest.
    fn string(&mut self, start: usize) -> StringLiteral {
        let mut quoted = StringLiteral::default();
        while let Some((at, next)) = self.rest.next_if(|&(_, next)| next != '\n') {
            match next {
                '"' => return quoted,
                '\\' => self.escape(at, &mut quoted),
                other => quoted.push(other.encode_utf8(&mut [0; 4]).as_bytes(), at),
            }
        }
        let end = self.here();
        self.tell(start..end, "this string does not end", "`\"` expected before the end of the line");
        quoted
    }

    /// Reads an escape after its backslash.
    fn escape(&mut self, at: usize, quoted: &mut StringLiteral) {
        let Some((_, next)) = self.rest.next_if(|&(_, next)| next != '\n') else { return };
        let byte = match next {
            'n' => b'\n',
            't' => b'\t',
            'r' => b'\r',
            'a' => 0x07,
            'b' => 0x08,
            'f' => 0x0c,
            'v' => 0x0b,
            '\\' | '"' | '\'' | '?' => next as u8,
            'x' | '0'..='7' => return self.code(at, next, quoted),
            other => {
                let end = self.here();
                self.tell(
                    at..end,
                    format!("`\\{}` is not an escape", other.escape_debug()),
                    "one of \\n \\t \\\\ \\\" \\' \\? \\r \\a \\b \\f \\v \\x41 \\101 expected",
                );
                return;
            }
        };
        quoted.push(&[byte], at);
    }

    /// Reads a byte given by number: `\x` with one or two hexadecimal digits, or one to three octal
    /// ones.
    fn code(&mut self, at: usize, first: char, quoted: &mut StringLiteral) {
        let (radix, most) = if first == 'x' { (16, 2) } else { (8, 3) };
        let mut value = first.to_digit(8);
        let mut count = u32::from(value.is_some());
        while count < most
            && let Some(digit) = self.rest.peek().and_then(|&(_, next)| next.to_digit(radix))
        {
            self.rest.next();
            value = Some(value.unwrap_or(0) * radix + digit);
            count += 1;
        }
        let end = self.here();
        match value.map(u8::try_from) {
            Some(Ok(1..)) => quoted.push(&[value.unwrap_or(0) as u8], at),
            Some(Ok(0)) => {
                self.tell(at..end, "a text cannot contain a NUL", "a number from 1 to 0xff expected");
            }
            Some(Err(_)) => {
                self.tell(at..end, "this does not fit in a byte", "a number up to \\377 expected")
            }
            None => self.tell(at..end, "`\\x` without digits", "hexadecimal digits expected"),
        }
    }
}
