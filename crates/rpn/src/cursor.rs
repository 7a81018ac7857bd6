//! A cursor over a list of tokens.

use source::{Diagnostic, SourceLocation};

use crate::lex::{Kind, Token};

/// A position in a list of tokens, whose last one is [`Kind::End`].
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    tokens: &'a [Token],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Reads `tokens`, which must end in [`Kind::End`].
    pub(crate) fn new(tokens: &'a [Token]) -> Cursor<'a> {
        debug_assert!(tokens.last().is_some_and(|last| last.kind == Kind::End));
        Cursor { tokens, at: 0 }
    }

    /// The next token; at the end, always [`Kind::End`].
    pub(crate) fn peek(&self) -> &'a Token {
        self.peek_at(0)
    }

    /// The token `ahead` tokens after the next one.
    pub(crate) fn peek_at(&self, ahead: usize) -> &'a Token {
        &self.tokens[(self.at + ahead).min(self.tokens.len() - 1)]
    }

    pub(crate) fn take(&mut self) -> &'a Token {
        let token = self.peek();
        self.skip(1);
        token
    }

    pub(crate) fn skip(&mut self, count: usize) {
        self.at = (self.at + count).min(self.tokens.len() - 1);
    }

    /// Takes this sign if it is next.
    pub(crate) fn eat(&mut self, sign: &str) -> bool {
        let found = self.peek().is(sign);
        self.skip(usize::from(found));
        found
    }

    /// The place of the token taken last.
    pub(crate) fn last_place(&self) -> SourceLocation {
        self.tokens[self.at.saturating_sub(1)].place
    }

    /// The number of tokens taken.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// The tokens taken since the position `start`.
    pub(crate) fn since(&self, start: usize) -> &'a [Token] {
        &self.tokens[start..self.at]
    }

    /// The place for a "missing" message: the next token or, if that starts a line, right after the
    /// last one.
    pub(crate) fn missing_place(&self) -> SourceLocation {
        let next = self.peek();
        if self.at > 0 && (next.starts_line || next.kind == Kind::End) {
            self.last_place().after()
        } else {
            next.place
        }
    }

    /// The error that `what` is missing here.
    pub(crate) fn expected(&self, what: &str) -> Diagnostic {
        let next = self.peek();
        let found =
            if next.starts_line && self.at > 0 { "the end of the line".to_string() } else { next.describe() };
        Diagnostic::error(self.missing_place(), format!("expected {what}, found {found}"))
            .label(format!("expected {what}"))
    }

    /// Skips the rest of the line.
    pub(crate) fn skip_line(&mut self) {
        while !self.peek().starts_line && self.peek().kind != Kind::End {
            self.skip(1);
        }
    }
}
