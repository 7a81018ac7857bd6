//! Parses statements: `key = value`.

use source::{Diagnostic, Keep, SourceLocation, nearest, quote};

use super::instruction::begins_instruction;
use super::{Parser, Within};
use crate::ast::{Item, Statement, Value};
use crate::expression::{self, Grammar, Name, Node};
use crate::keys::{Key, ValueKind};
use crate::lex::{Kind, Token};
use crate::object::FunctionPoint;

impl Parser<'_> {
    pub(super) fn statement(&mut self) -> Result<(), Diagnostic> {
        let word = self.cursor.peek();
        let found = self.key(word);
        let key = match found {
            Ok(Some(key)) => key,
            Ok(None) => return Ok(()),
            Err(message) => {
                self.messages.add(message);
                self.skip_statement();
                return Ok(());
            }
        };
        self.cursor.skip(2);
        if key.begins_probe() && !self.says_place_again(key) {
            self.begin_probe();
        }
        let start = self.cursor.position();
        let value = self.value(key);
        let failed = value.is_err();
        let value = value.or_report(self.messages);
        let written = self.cursor.since(start).iter().map(|token| &*token.text).collect();
        let statement = Statement { key, place: word.place, value, written };
        if failed {
            self.cursor.skip_line();
        }
        self.place_statement(statement, word);
        Ok(())
    }

    /// Whether a probe without instructions has `offset =` and now gets `address =`, or another two
    /// that begin a probe. That is one probe with both, which is refused later.
    fn says_place_again(&self, key: Key) -> bool {
        match (self.within, self.program.items.last()) {
            (Within::Probe, Some(Item::Probe(probe))) => {
                probe.body.lines.is_empty() && probe.header.first().is_some_and(|first| first.key != key)
            }
            _ => false,
        }
    }

    /// The key for a word; `None` if the statement was skipped. Takes no tokens if it returns a
    /// key.
    fn key(&mut self, word: &Token) -> Result<Option<Key>, Diagnostic> {
        let old = word.text.to_ascii_lowercase();
        let renamed = match old.as_str() {
            "pass_count" => Some((Key::Ignore, "is the old spelling of `ignore` (before 3.4.0)")),
            "max_hits" => Some((Key::Maxhits, "is the old spelling of `maxhits` (before 3.4.0)")),
            "var" => Some((Key::Vars, "is another spelling of `vars`")),
            "type" if self.within == Within::Header => {
                Some((Key::Typedef, "in the file header means `typedef`, which defines types"))
            }
            "dfltexit" => {
                self.note_old(word.place, &old, "is no longer part of the language", "ignored");
                self.cursor.skip(2);
                self.number_or_word().or_report(self.messages);
                return Ok(None);
            }
            _ => None,
        };
        if let Some((key, note)) = renamed {
            self.note_old(word.place, &old, note, &format!("write `{} =`", key.name()));
            return Ok(Some(key));
        }
        let Some(key) = Key::from_name(&old) else {
            let near = nearest(&old, Key::ALL.iter().map(|key| key.name()));
            return Err(Diagnostic::error(
                word.place,
                format!("no statement is called {}", quote(&word.text)),
            )
            .label("expected a statement of the header")
            .suggest(near.map(|near| format!("{near} ="))));
        };
        Ok(Some(key))
    }

    /// Skips `key = value` with an unknown key.
    fn skip_statement(&mut self) {
        self.cursor.skip(2);
        if self.number_or_word().is_err() {
            self.cursor.skip_line();
        }
    }

    fn number_or_word(&mut self) -> Result<(), Diagnostic> {
        expression::parse(&mut self.cursor, Grammar::Constant, "a value", self.messages).map(|_| ())
    }

    fn value(&mut self, key: Key) -> Result<Value, Diagnostic> {
        match key.takes() {
            ValueKind::Name => self.name(key).map(Value::Name),
            ValueKind::Names => self.names(key).map(Value::Names),
            ValueKind::Number => self.number(key).map(Value::Number),
            ValueKind::Point => {
                let place = self.number(key)?;
                // A name before the colon is a label: `offset = main label: ...`.
                if !self.cursor.eat(":") {
                    return Ok(Value::Number(place));
                }
                let Node::Symbol(function) = place.node else {
                    return Err(Diagnostic::error(place.place, "a point needs a function's name")
                        .label("expected a function's name before the `:`")
                        .help("a point is `FUNCTION:entry`; for an instruction at an address write `offset = ...` alone"));
                };
                let (point, at) = self.parse_point()?;
                Ok(Value::Point(function, point, at))
            }
            ValueKind::Range => {
                let first = self.number(key)?;
                // A name before the colon is a label: `address = 1 label: ...`.
                if !self.cursor.eat(":") {
                    return Ok(Value::Number(first));
                }
                Ok(Value::Range(first, self.number(key)?))
            }
            ValueKind::Tracepoint => self.tracepoint(),
            ValueKind::Word(words) => self.word(key, words).map(Value::Name),
        }
    }

    fn number(&mut self, key: Key) -> Result<expression::Expression, Diagnostic> {
        self.check_there(key)?;
        expression::parse(&mut self.cursor, Grammar::Constant, key.what(), self.messages)
    }

    /// Parses a point, after the function's name and `:`.
    fn parse_point(&mut self) -> Result<(FunctionPoint, SourceLocation), Diagnostic> {
        const WHAT: &str = "`entry`, `return`, `*`, or an offset in hexadecimal";
        let first = self.cursor.peek();
        let plus = self.cursor.eat("+");
        let token = self.cursor.peek();
        let is_point = matches!(token.kind, Kind::Name | Kind::Number) || (!plus && token.is("*"));
        if !is_point || token.starts_line {
            return Err(self.cursor.expected(WHAT));
        }
        let text = if plus { format!("+{}", token.text) } else { token.text.to_string() };
        let point =
            FunctionPoint::parse(&text).filter(|point| !plus || matches!(point, FunctionPoint::Offset(_)));
        let place = first.place.to(token.place);
        self.cursor.skip(1);
        let point = point.ok_or_else(|| {
            Diagnostic::error(place, format!("{} is no point of a function", quote(&text)))
                .label(format!("expected {WHAT}"))
                .suggest(nearest(&text, ["entry", "return"]))
        })?;
        Ok((point, place))
    }

    /// Reports a missing value if the next token begins a statement or a label.
    pub(super) fn check_there(&self, key: Key) -> Result<(), Diagnostic> {
        let token = self.cursor.peek();
        let follows = self.cursor.peek_at(1);
        let ends = follows.is("=") || follows.is(":") || begins_instruction(token);
        let missing = token.kind == Kind::Name && (follows.is("=") || (token.starts_line && ends));
        if missing { Err(self.cursor.expected(key.what())) } else { Ok(()) }
    }

    /// Parses a name or a string in quotes. `3c59x` is also a name here.
    fn name(&mut self, key: Key) -> Result<Name, Diagnostic> {
        self.check_there(key)?;
        let token = self.cursor.peek();
        let name = Name { text: token.text.to_string(), place: token.place };
        let help = "a name with characters other than letters, digits and `_` needs quotes";
        match token.kind {
            Kind::Text if token.text.is_empty() => {
                return Err(Diagnostic::error(token.place, format!("`{} =` is empty", key.name()))
                    .label(format!("expected {}", key.what())));
            }
            Kind::Text => {}
            Kind::Name | Kind::Number => {
                let next = self.cursor.peek_at(1);
                let odd = |character: char| !character.is_ascii_alphanumeric() && character != '_';
                if key == Key::Name && token.text.contains(odd) {
                    return Err(Diagnostic::error(token.place, "this name needs quotes")
                        .label(format!("write \"{}\"", token.text))
                        .help(help));
                }
                if key == Key::Name && next.kind == Kind::Sign && !next.spaced {
                    return Err(Diagnostic::error(token.place.to(next.place), "this name needs quotes")
                        .label("only letters, digits and `_` need none")
                        .help(help));
                }
            }
            Kind::Sign if key == Key::Name && !token.is("=") => {
                return Err(Diagnostic::error(token.place, "this name needs quotes")
                    .label("only letters, digits and `_` need none")
                    .help(help));
            }
            _ => return Err(self.cursor.expected(key.what())),
        }
        self.cursor.skip(1);
        Ok(name)
    }

    /// Parses names up to the start of the next statement, procedure or probe.
    fn names(&mut self, key: Key) -> Result<Vec<Name>, Diagnostic> {
        let mut names = Vec::new();
        loop {
            let token = self.cursor.peek();
            let follows = self.cursor.peek_at(1);
            if token.kind != Kind::Name || follows.is("=") || token.is_word("proc") {
                break;
            }
            names.push(Name { text: token.text.to_string(), place: token.place });
            self.cursor.skip(1);
        }
        if names.is_empty() { Err(self.cursor.expected(key.what())) } else { Ok(names) }
    }

    fn word(&mut self, key: Key, words: &[&str]) -> Result<Name, Diagnostic> {
        self.check_there(key)?;
        let token = self.cursor.peek();
        if !matches!(token.kind, Kind::Name | Kind::Number | Kind::Text) {
            return Err(self.cursor.expected(key.what()));
        }
        self.cursor.skip(1);
        if !words.iter().any(|word| token.is_word(word)) {
            return Err(Diagnostic::error(
                token.place,
                format!("{} is not a value of `{} =`", token.describe(), key.name()),
            )
            .label(format!("expected {}", key.what()))
            .suggest(nearest(&token.text, words.iter().copied())));
        }
        Ok(Name { text: token.text.to_ascii_lowercase(), place: token.place })
    }

    /// Adds a statement to its header, or reports that it is in the wrong place.
    fn place_statement(&mut self, statement: Statement, word: &Token) {
        let key = statement.key;
        let name = key.name();
        let header = if self.in_header(key) {
            &mut self.program.header
        } else {
            match (self.within, self.program.items.last_mut()) {
                (Within::Probe, Some(Item::Probe(probe))) if key.in_probe() => {
                    if !probe.body.lines.is_empty() {
                        self.messages.add(
                            Diagnostic::error(word.place, format!("`{name} =` after an instruction"))
                                .label("expected an instruction, or the next probe")
                                .help("the statements of a probe's header come before its first instruction"),
                        );
                        return;
                    }
                    &mut probe.header
                }
                _ if key.in_probe() => {
                    let wrong = Diagnostic::error(word.place, format!("`{name} =` outside of a probe"))
                        .label("expected `offset =`, `address =` or `tracepoint =` before it");
                    let wrong = match key {
                        Key::Group => wrong.help("the file header lists groups with `groupdef =`"),
                        _ => wrong.help("`offset = ...` must be the first statement of a probe"),
                    };
                    self.messages.add(wrong);
                    return;
                }
                _ => {
                    self.messages.add(
                        Diagnostic::error(word.place, format!("`{name} =` belongs to the file header"))
                            .label("expected before the first probe"),
                    );
                    return;
                }
            }
        };
        if let Some(first) = header.iter().find(|other| other.key == key) {
            let first = first.place.span;
            self.messages.add(
                Diagnostic::error(word.place, format!("`{name} =` is given twice"))
                    .label("expected it once")
                    .related(first, "first given here"),
            );
            return;
        }
        header.push(statement);
    }
}
