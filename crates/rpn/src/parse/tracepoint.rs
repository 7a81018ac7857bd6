//! Parses the value of `tracepoint =`: `SYSTEM:NAME`, or both in one pair of quotes.

use super::Parser;
use crate::ast::Value;
use crate::expression::Name;
use crate::keys::Key;
use crate::lex::{Kind, Token};
use crate::tracepoint::split;
use source::{Diagnostic, quote};

impl Parser<'_> {
    pub(super) fn tracepoint(&mut self) -> Result<Value, Diagnostic> {
        let key = Key::Tracepoint;
        self.check_there(key)?;
        let start = self.cursor.position();
        if self.cursor.peek().kind == Kind::Text {
            self.cursor.skip(1);
        } else {
            self.part(key.what())?;
            if !self.cursor.eat(":") {
                return Err(self.cursor.expected("`:` and the tracepoint's name"));
            }
            const WHAT: &str = "the tracepoint's name";
            if self.cursor.peek().starts_line {
                return Err(self.cursor.expected(WHAT));
            }
            self.part(WHAT)?;
        }
        let tokens = self.cursor.since(start);
        let place = tokens[0].place.to(self.cursor.last_place());
        let text: String = tokens.iter().map(|token| &*token.text).collect();
        let (system, name) = split(&text).ok_or_else(|| {
            Diagnostic::error(place, format!("{} names no tracepoint", quote(&text)))
                .label("expected `SYSTEM:NAME`")
                .help("the name may be a pattern: `\"syscalls:sys_enter_open*\"`; the system may not")
        })?;
        let part = |text: &str| Name { text: text.to_owned(), place };
        Ok(Value::Tracepoint(part(system), part(name)))
    }

    /// Skips one part, written without quotes.
    fn part(&mut self, what: &str) -> Result<(), Diagnostic> {
        let token = self.cursor.peek();
        let is_odd = |token: &Token| token.kind == Kind::Sign && !token.is(":");
        if is_odd(token) && !token.spaced {
            return Err(needs_quotes(token));
        }
        if !matches!(token.kind, Kind::Name | Kind::Number) {
            return Err(self.cursor.expected(what));
        }
        self.cursor.skip(1);
        let next = self.cursor.peek();
        if is_odd(next) && !next.spaced { Err(needs_quotes(next)) } else { Ok(()) }
    }
}

fn needs_quotes(token: &Token) -> Diagnostic {
    Diagnostic::error(token.place, "this tracepoint needs quotes")
        .label("only letters, digits and `_` need none")
        .help("write `tracepoint = \"syscalls:sys_enter_open*\"`")
}
