//! The lexer: source text in, tokens out.
//!
//! It applies the text rules of the C preprocessor: a backslash at the end of a line joins it to
//! the next, a comment counts as a space. Each token says whether it starts a line and whether a
//! space precedes it. The lexer reports no errors: unreadable text becomes a token of an error
//! kind, because it does not matter in a skipped `#if` group.

use std::rc::Rc;
use std::sync::Arc;

use source::{SourceId, SourceLocation, Span};

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name: letters, digits, `_`, `.`, `$` and `@`, not starting with a digit.
    Name,
    /// A digit and all name characters that follow it: perhaps a number.
    Number,
    /// A string; the token's text excludes the quotes.
    Text,
    /// An operator or punctuation sign of the language.
    Sign,
    /// A character that starts no token.
    Unknown,
    /// A string that is not closed on its line.
    OpenText,
    /// A `/*` without its `*/`.
    OpenComment,
    /// The end of the input; the token's text says of what.
    End,
}

/// A token.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) text: Rc<str>,
    pub(crate) place: SourceLocation,
    /// Whether it is the first token of its line.
    pub(crate) starts_line: bool,
    /// Whether a space, a comment, or the start of a line precedes it.
    pub(crate) spaced: bool,
    /// Whether it is a macro's name that must not be expanded again.
    pub(crate) frozen: bool,
}

impl Token {
    pub(crate) fn is(&self, sign: &str) -> bool {
        self.kind == Kind::Sign && &*self.text == sign
    }

    /// Whether it is this word, ignoring case.
    pub(crate) fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Name && self.text.eq_ignore_ascii_case(word)
    }

    /// The token as messages show it.
    pub(crate) fn describe(&self) -> String {
        match self.kind {
            Kind::End => self.text.to_string(),
            Kind::Text => source::quote(&format!("\"{}\"", self.text)),
            _ => source::quote(&self.text),
        }
    }
}

/// All signs; longer ones precede their prefixes.
const SIGNS: &[&str] = &[
    "...", "<<", ">>", "&&", "||", "==", "!=", "<=", ">=", "##", "=", ",", ":", "(", ")", "+", "-", "*", "/",
    "%", "&", "|", "^", "~", "!", "<", ">", "?", "#",
];

/// Whether a name may start with this character.
fn starts_name(character: char) -> bool {
    character.is_ascii_alphabetic() || matches!(character, '_' | '.' | '$' | '@')
}

/// Whether a name or a number may contain this character.
fn continues_name(character: char) -> bool {
    starts_name(character) || character.is_ascii_digit()
}

/// Whether the lexer would read `text` as one name.
pub(crate) fn is_name(text: &str) -> bool {
    text.chars().next().is_some_and(starts_name) && text.chars().all(continues_name) && text != "..."
}

/// Reads tokens from one source.
#[derive(Debug)]
pub(crate) struct Lexer {
    text: Arc<str>,
    source: SourceId,
    at: usize,
    line_start: bool,
    peeked: Option<Token>,
}

impl Lexer {
    pub(crate) fn new(source: SourceId, text: Arc<str>) -> Lexer {
        Lexer { text, source, at: 0, line_start: true, peeked: None }
    }

    /// The next token, or `None` at the end of the source.
    pub(crate) fn next(&mut self) -> Option<Token> {
        self.peeked.take().or_else(|| self.read())
    }

    /// The next token, without taking it.
    pub(crate) fn peek(&mut self) -> Option<&Token> {
        if self.peeked.is_none() {
            self.peeked = self.read();
        }
        self.peeked.as_ref()
    }

    /// Skips line joins (a backslash and a newline) at `at`; returns the offset after them.
    fn joined(&self, mut at: usize) -> usize {
        while self.text[at..].starts_with('\\') {
            let rest = &self.text[at + 1..];
            match rest.strip_prefix('\n').or_else(|| rest.strip_prefix("\r\n")) {
                Some(next) => at = self.text.len() - next.len(),
                None => break,
            }
        }
        at
    }

    /// The character at `at` after line joins, and its end.
    fn character(&self, at: usize) -> Option<(char, usize)> {
        let at = self.joined(at);
        self.text[at..].chars().next().map(|character| (character, at + character.len_utf8()))
    }

    /// Takes the characters of `wanted` if they come next.
    fn eat(&mut self, wanted: &str) -> bool {
        let mut at = self.at;
        for expected in wanted.chars() {
            match self.character(at) {
                Some((found, end)) if found == expected => at = end,
                _ => return false,
            }
        }
        self.at = at;
        true
    }

    /// Takes characters as long as `wanted` returns true.
    fn eat_while(&mut self, text: &mut String, wanted: impl Fn(char) -> bool) {
        while let Some((character, end)) = self.character(self.at).filter(|(it, _)| wanted(*it)) {
            text.push(character);
            self.at = end;
        }
    }

    /// Skips spaces and comments. Returns whether there were any, or the place of an unclosed
    /// comment.
    fn pass_space(&mut self) -> Result<bool, Span> {
        let mut any = false;
        loop {
            let start = self.joined(self.at);
            if self.eat("//") {
                self.eat_while(&mut String::new(), |character| character != '\n');
            } else if self.eat("/*") {
                loop {
                    if self.eat("*/") {
                        break;
                    }
                    let Some((_, end)) = self.character(self.at) else {
                        self.at = self.text.len();
                        return Err(self.span(start, start + 2));
                    };
                    self.at = end;
                }
            } else {
                match self.character(self.at) {
                    Some(('\n', end)) => {
                        self.line_start = true;
                        self.at = end;
                    }
                    Some((space, end)) if space.is_whitespace() || space == '\u{feff}' => self.at = end,
                    _ => return Ok(any),
                }
            }
            any = true;
        }
    }

    fn span(&self, start: usize, end: usize) -> Span {
        // A u32 suffices: files are at most `LARGEST_FILE` bytes.
        let byte = |at| u32::try_from(at).unwrap_or(u32::MAX);
        Span { source: self.source, start: byte(start), end: byte(end) }
    }

    fn read(&mut self) -> Option<Token> {
        let space = self.pass_space();
        let starts_line = std::mem::take(&mut self.line_start);
        let token = |kind, text: &str, span: Span, spaced: bool| Token {
            kind,
            text: text.into(),
            place: span.into(),
            starts_line,
            spaced: spaced || starts_line,
            frozen: false,
        };
        let spaced = match space {
            Ok(spaced) => spaced,
            Err(span) => return Some(token(Kind::OpenComment, "/*", span, true)),
        };
        let start = self.joined(self.at);
        let (first, end) = self.character(self.at)?;
        let mut text = String::new();
        let kind = if starts_name(first) && !self.text[start..].starts_with("...") {
            self.eat_while(&mut text, continues_name);
            Kind::Name
        } else if first.is_ascii_digit() {
            self.eat_while(&mut text, continues_name);
            Kind::Number
        } else if first == '"' {
            self.at = end;
            self.read_text(&mut text)
        } else if let Some(sign) = SIGNS.iter().find(|sign| self.eat(sign)) {
            text.push_str(sign);
            Kind::Sign
        } else {
            text.push(first);
            self.at = end;
            Kind::Unknown
        };
        Some(token(kind, &text, self.span(start, self.at), spaced))
    }

    /// Reads the rest of a string, after its opening quote.
    fn read_text(&mut self, text: &mut String) -> Kind {
        loop {
            match self.character(self.at) {
                None | Some(('\n', _)) => return Kind::OpenText,
                Some(('"', end)) => {
                    self.at = end;
                    return Kind::Text;
                }
                Some(('\\', end)) => match self.character(end) {
                    Some((escaped @ ('"' | '\\'), end)) => {
                        text.push(escaped);
                        self.at = end;
                    }
                    _ => {
                        text.push('\\');
                        self.at = end;
                    }
                },
                Some((character, end)) => {
                    text.push(character);
                    self.at = end;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<(Kind, String)> {
        let mut lexer = Lexer::new(SourceId(0), text.into());
        std::iter::from_fn(|| lexer.next()).map(|token| (token.kind, token.text.to_string())).collect()
    }

    fn texts(text: &str) -> Vec<String> {
        tokens(text).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn names_numbers_and_signs_are_told_apart() {
        assert_eq!(texts("push lv,0x1F//c\nx<<2"), ["push", "lv", ",", "0x1F", "x", "<<", "2"]);
        assert_eq!(texts("malloc@GLIBC_2.2.5 f.part.0"), ["malloc@GLIBC_2.2.5", "f.part.0"]);
        assert_eq!(tokens("3c59x")[0].0, Kind::Number);
        assert_eq!(tokens("§")[0].0, Kind::Unknown);
    }

    #[test]
    fn a_backslash_at_the_end_of_a_line_is_not_there() {
        assert_eq!(texts("pu\\\nsh 1 // still\\\r\ncomment\npop"), ["push", "1", "pop"]);
        assert_eq!(texts("a /\\\n/ b\nc"), ["a", "c"]);
    }

    #[test]
    fn strings_keep_comments_and_know_two_escapes() {
        assert_eq!(tokens(r#""a//b\"\\\n""#), [(Kind::Text, r#"a//b"\\n"#.to_string())]);
        assert_eq!(tokens("\"open\nx")[0], (Kind::OpenText, "open".to_string()));
    }

    #[test]
    fn a_comment_is_a_space_and_may_be_left_open() {
        assert_eq!(texts("a/* x\n */b"), ["a", "b"]);
        assert_eq!(tokens("a /* b")[1].0, Kind::OpenComment);
        assert_eq!(tokens("a /* b").len(), 2);
    }

    #[test]
    fn the_first_token_of_a_line_is_known() {
        let mut lexer = Lexer::new(SourceId(0), "a b\n c".into());
        let starts: Vec<bool> = std::iter::from_fn(|| lexer.next()).map(|token| token.starts_line).collect();
        assert_eq!(starts, [true, false, true]);
    }
}
