//! The tokens that are still to be read, and how to go on behind a mistake.

use std::collections::HashMap;

use source::{Diagnostic, Span, quote};

use super::meaning::Meaning;
use crate::tokens::{Kind, Token};

/// What is parsed, and what is known of it.
pub(super) struct Parser<'t, 'a> {
    pub(super) tokens: &'t [Token<'a>],
    pub(super) at: usize,
    pub(super) end: Span,
    pub(super) named: HashMap<&'a str, Meaning>,
    /// Names of macros, and where their probes are.
    pub(super) macros: HashMap<String, Span>,
}

impl<'a> Parser<'_, 'a> {
    pub(super) fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).copied()
    }

    pub(super) fn next(&mut self) -> Option<Token<'a>> {
        let token = self.peek()?;
        self.at += 1;
        Some(token)
    }

    /// Where the next token is, or the end of the text.
    pub(super) fn here(&self) -> Span {
        self.peek().map_or(self.end, |token| token.span)
    }

    pub(super) fn is(&self, text: &str) -> bool {
        self.peek().is_some_and(|token| token.text == text)
    }

    pub(super) fn take(&mut self, text: &str) -> bool {
        let is = self.is(text);
        self.at += usize::from(is);
        is
    }

    pub(super) fn expected(&self, what: &str) -> Diagnostic {
        let found = self.peek().map_or("the file ends".to_owned(), |token| {
            format!("{} is not expected here", quote(token.text))
        });
        Diagnostic::error(self.here(), found).label(format!("expected {what}"))
    }

    pub(super) fn expect(&mut self, sign: &str, help: &str) -> Result<(), Diagnostic> {
        if self.take(sign) { Ok(()) } else { Err(self.expected(&format!("`{sign}`")).help(help)) }
    }

    pub(super) fn word(&mut self, what: &str, help: &str) -> Result<Token<'a>, Diagnostic> {
        match self.peek() {
            Some(token) if token.kind == Kind::Word => {
                self.at += 1;
                Ok(token)
            }
            _ => Err(self.expected(what).help(help)),
        }
    }

    /// Goes behind the end of a declaration that is not understood.
    pub(super) fn recover(&mut self) {
        while let Some(token) = self.next() {
            match token.text {
                ";" => return,
                "{" => self.skip_to_close(),
                "provider" => {
                    self.at -= 1;
                    return;
                }
                _ => {}
            }
        }
    }

    /// Goes behind the bracket that closes the one before.
    pub(super) fn skip_to_close(&mut self) {
        let mut depth = 1_u32;
        while let Some(token) = self.next() {
            match token.text {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }
}
