//! Parses `keyword=value` statements, of which template files and index files consist.

use std::ops::Range;

use super::lex::{StringLiteral, Token, Word, words};
use super::problem::Mistake;

/// A keyword, and the type of its value.
pub(super) type Keyword = (&'static str, ValueType);

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueType {
    Number,
    Text,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// None if it is malformed, which was reported.
    Number(Option<u32>),
    Text(StringLiteral),
}

/// A complete statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) keyword: &'static str,
    /// The position of the keyword.
    pub(super) at: Range<usize>,
    pub(super) value: Value,
    /// The position of the value.
    pub(super) value_at: Range<usize>,
}

/// The statements of a text. Anything else is reported and skipped, up to the next `keyword=`.
pub(super) fn statements(text: &str, keywords: &[Keyword], mistakes: &mut Vec<Mistake>) -> Vec<Statement> {
    let words = words(text, mistakes);
    let mut reader = Reader { end: text.trim_end().len(), words: &words, keywords, mistakes };
    let mut statements = Vec::new();
    while !reader.words.is_empty() {
        let before = reader.words.len();
        match reader.statement() {
            Some(statement) => statements.push(statement),
            None => reader.recover(before),
        }
    }
    statements
}

struct Reader<'a> {
    end: usize,
    words: &'a [Word],
    keywords: &'a [Keyword],
    mistakes: &'a mut Vec<Mistake>,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<&Word> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    /// The position of the next token, or the end of the text.
    fn here(&self) -> Range<usize> {
        self.words.first().map_or(self.end..self.end, |word| word.range.clone())
    }

    fn wrong(&mut self, at: Range<usize>, message: String, expected: impl Into<String>) {
        self.mistakes.push(Mistake::new(at, message, expected));
    }

    /// The expected keywords, for a message.
    fn known(&self) -> String {
        let names: Vec<String> = self.keywords.iter().map(|(name, _)| format!("`{name}=`")).collect();
        format!("{} expected", names.join(" or "))
    }

    /// Parses a statement. None: there is none here, which was reported.
    fn statement(&mut self) -> Option<Statement> {
        let at = self.here();
        let Some(Word { token: Token::Name(name), .. }) = self.words.first() else {
            let known = self.known();
            self.wrong(at, "a statement cannot begin like this".to_owned(), known);
            return None;
        };
        let Some(&(keyword, kind)) = self.keywords.iter().find(|(keyword, _)| keyword == name) else {
            let (message, known) = (format!("`{name}` is not a keyword"), self.known());
            self.wrong(at, message, known);
            return None;
        };
        self.next();
        if !matches!(self.words.first(), Some(Word { token: Token::Equals, .. })) {
            self.wrong(self.here(), format!("`{keyword}` has no value"), "`=` expected");
            return None;
        }
        self.next();
        let value_at = self.here();
        let value = match (kind, self.words.first().map(|word| &word.token)) {
            (ValueType::Number, Some(&Token::Number(number))) => {
                self.next();
                Value::Number(number)
            }
            (ValueType::Text, Some(Token::Text(_))) => Value::Text(self.texts()),
            (ValueType::Number, _) => {
                self.wrong(
                    value_at,
                    format!("`{keyword}` has no value"),
                    "a number expected, as in 12 or 0x0c",
                );
                return None;
            }
            (ValueType::Text, _) => {
                self.wrong(value_at, format!("`{keyword}` has no value"), "a string in quotes expected");
                return None;
            }
        };
        if matches!(self.words.first(), Some(Word { token: Token::Comma, .. })) {
            self.next();
        }
        Some(Statement { keyword, at, value, value_at })
    }

    /// Joins adjacent strings, as in C.
    fn texts(&mut self) -> StringLiteral {
        let mut whole = StringLiteral::default();
        while let Some(Word { token: Token::Text(text), .. }) = self.words.first() {
            whole.append(text.clone());
            self.next();
        }
        whole
    }

    /// Skips to the next name with a `=`. `before` is the number of tokens left where the wrong
    /// statement began; that place is skipped.
    fn recover(&mut self, before: usize) {
        if self.words.len() == before {
            self.next();
        }
        let begins = |words: &[Word]| {
            matches!(words, [Word { token: Token::Name(_), .. }, Word { token: Token::Equals, .. }, ..])
        };
        let next = (0..self.words.len()).find(|&at| begins(&self.words[at..]));
        self.words = &self.words[next.unwrap_or(self.words.len())..];
    }
}
