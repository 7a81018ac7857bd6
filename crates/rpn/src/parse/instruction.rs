//! Parses instructions, by the rows of the instruction table ([`vm::TABLE`]) and the list of other
//! spellings.
//!
//! The longest matching name wins: `push lv` rather than `push`. If a row exists with and without
//! an operand, a comma or a number after the name decides.

use source::{Diagnostic, nearest, quote};
use vm::{Operand as Takes, Row, TABLE};

use super::Parser;
use crate::arch::Arch;
use crate::ast::{Instruction, Line, Operand};
use crate::expression::{self, Grammar, Name};
use crate::lex::{Kind, Token};
use crate::registers::{Register, is_register};
use crate::spellings::{ARGUMENT, FIRST_ARGUMENT, ObsoleteName, RESULT, forms, is_reserved, pieces};

impl Parser<'_> {
    pub(super) fn instruction(&mut self) -> Result<(), Diagnostic> {
        let first = self.cursor.peek();
        if self.is_argument_or_retval() {
            return self.sugar();
        }
        let matching = forms(&first.text).iter().filter(|form| self.matches(&form.pieces));
        let Some(form) = matching.max_by_key(|form| form.pieces.len()) else {
            return Err(unknown(first, self.cursor.peek_at(1), self.arch));
        };
        let (mut name, mut prefixed) = match form.meaning {
            Ok(name) => {
                self.cursor.skip(form.pieces.len());
                (name, false)
            }
            Err(known) => match self.known(form.pieces.len(), known)? {
                // `push b, 1`: the comma is already taken.
                Some(name) => (name, true),
                None => return Ok(()),
            },
        };
        self.check_second_word(first, name)?;
        if name == "push" && !prefixed && self.is_register_alone() {
            let register = self.cursor.peek();
            let new = format!("write `push r, {}`", register.text);
            self.note_old(register.place, "push REGISTER", "is the old spelling of `push r, REGISTER`", &new);
            (name, prefixed) = ("push r", true);
        }
        let last = self.cursor.last_place();
        let row = self.row(name, prefixed);
        let operand = self.operand(row, prefixed)?;
        let end = if operand.is_some() { self.cursor.last_place() } else { last };
        let place = first.place.to(end);
        self.add_line(Line::Instruction(Instruction { op: row.op, operand, place }), place);
        Ok(())
    }

    /// Whether the next tokens are these words and signs.
    fn matches(&self, pieces: &[&str]) -> bool {
        pieces.iter().enumerate().all(|(at, piece)| {
            let token = self.cursor.peek_at(at);
            let after = self.cursor.peek_at(at + 1);
            // A later word that is a label or a key begins the next line or statement, and one that
            // begins a line and an instruction of several words begins that: `log`, `text fr`.
            let follows = at > 0 && (after.is(":") || after.is("=") || self.begins_several(at));
            if *piece == "," { token.is(",") } else { token.is_word(piece) && !follows }
        })
    }

    /// Whether a token begins a line and an instruction of several words.
    fn begins_several(&self, at: usize) -> bool {
        let token = self.cursor.peek_at(at);
        let is_there = |(place, piece): (usize, &&str)| {
            let token = self.cursor.peek_at(at + place);
            if *piece == "," { token.is(",") } else { token.is_word(piece) }
        };
        token.starts_line
            && forms(&token.text)
                .iter()
                .any(|form| form.pieces.len() > 1 && form.pieces.iter().enumerate().all(is_there))
    }

    /// Handles a spelling that is not in the table. Returns its new name if an operand is still to
    /// be parsed.
    fn known(&mut self, length: usize, known: ObsoleteName) -> Result<Option<&'static str>, Diagnostic> {
        let start = self.cursor.position();
        self.cursor.skip(length);
        let tokens = self.cursor.since(start);
        let last = tokens.iter().rfind(|token| !token.is(",")).unwrap_or(&tokens[0]);
        let place = tokens[0].place.to(last.place);
        let old = crate::preprocess::spell(tokens).to_ascii_lowercase();
        match known {
            ObsoleteName::Renamed(new) => {
                let (shown, label) = match new {
                    "push" => (format!("{old} n"), "write `push n`".into()),
                    _ => (old, format!("write `{new}`")),
                };
                self.note_old(place, &shown, "is an old spelling (before 3.4.0)", &label);
                Ok(Some(new))
            }
            ObsoleteName::Removed(instead) => {
                Err(Diagnostic::error(place, format!("{} was removed in 3.4.0", quote(&old)))
                    .label("there are no segmented addresses any more")
                    .help(format!("use {instead}")))
            }
            ObsoleteName::Absent(part) => {
                self.messages.add(
                    Diagnostic::error(
                        place,
                        format!("{} ({part}) was never part of the language", quote(&old)),
                    )
                    .label("cannot be used"),
                );
                self.skip_operand();
                self.add_line(Line::Missing, place);
                Ok(None)
            }
        }
    }

    /// Skips the possible operand of an instruction that cannot be used.
    fn skip_operand(&mut self) {
        let next = self.cursor.peek();
        if next.is(",") || (!next.starts_line && next.kind != Kind::End) {
            self.cursor.skip_line();
        }
    }

    /// Reports `push xx, 1` and `log xx`: the first word alone is an instruction, but the second
    /// shows that another was meant.
    fn check_second_word(&self, first: &Token, name: &'static str) -> Result<(), Diagnostic> {
        let second = self.cursor.peek();
        let after = self.cursor.peek_at(1);
        let siblings = forms(name).len() > 1;
        if second.kind != Kind::Name || second.starts_line || !siblings || after.is(":") || after.is("=") {
            return Ok(());
        }
        let half =
            forms(name).iter().any(|form| form.pieces.get(1).is_some_and(|piece| second.is_word(piece)));
        let takes_value = TABLE.iter().any(|row| row.name == name && row.operand == Takes::Word);
        let value_follows = after.is(",") || (after.kind == Kind::Number && !after.starts_line);
        if half || (takes_value && value_follows) || (!takes_value && !begins_instruction(second)) {
            return Err(unknown(first, second, self.arch));
        }
        Ok(())
    }

    /// Whether the next token is a register where `push` takes a value.
    fn is_register_alone(&self) -> bool {
        let token = self.cursor.peek();
        let after = self.cursor.peek_at(1);
        token.kind == Kind::Name
            && !after.is(":")
            && !after.is("=")
            && self.arch.register(&token.text).is_some()
    }

    /// The row with this name; the next token decides between the forms with and without an
    /// operand.
    fn row(&self, name: &'static str, prefixed: bool) -> &'static Row {
        let follows = prefixed
            || if pieces(name).nth(1).is_some() {
                self.cursor.peek().is(",")
            } else {
                expression::starts_number(&self.cursor)
            };
        let mut rows = TABLE.iter().filter(|row| row.name == name);
        let first = rows.next().expect("the name comes from the table");
        match rows.next() {
            Some(second) if follows == (second.operand != Takes::None) => second,
            _ => first,
        }
    }

    /// Parses the operand of a row. With `prefixed`, no comma is expected before it.
    fn operand(&mut self, row: &'static Row, prefixed: bool) -> Result<Option<Operand>, Diagnostic> {
        let what = match row.operand {
            Takes::None => {
                // `push lv 0`
                let with = TABLE.iter().find(|other| other.name == row.name && other.operand != Takes::None);
                let next = self.cursor.peek();
                let number = next.kind == Kind::Number;
                return match with {
                    Some(_) if number => Err(self.comma(row)),
                    None if (number || next.is(",")) && !next.starts_line => {
                        let wrong = Diagnostic::error(next.place, format!("`{}` takes no operand", row.name));
                        Err(wrong.label("expected the next instruction"))
                    }
                    _ => Ok(None),
                };
            }
            Takes::U8 | Takes::U16 => "a count",
            Takes::Local | Takes::Global => "a variable's index",
            Takes::Register => "a register",
            Takes::S16 => "a number of elements",
            Takes::Bit => "a bit position",
            Takes::Word => "a value",
            Takes::Label => "a label",
            Takes::Proc => "a procedure",
            Takes::Field => "a field's name",
        };
        if pieces(row.name).nth(1).is_some() && !prefixed && !self.cursor.eat(",") {
            return Err(self.comma(row));
        }
        let token = self.cursor.peek();
        let after = self.cursor.peek_at(1);
        let starts_next = after.is(":") || after.is("=") || (token.starts_line && begins_instruction(token));
        let missing = token.kind == Kind::Name && starts_next;
        if missing {
            return Err(self.cursor.expected(what));
        }
        let operand = match row.operand {
            Takes::Register => {
                if token.kind != Kind::Name {
                    return Err(self.cursor.expected(what));
                }
                self.cursor.skip(1);
                Operand::Register(register(token, self.arch)?, token.place)
            }
            Takes::Label | Takes::Proc => {
                if token.kind != Kind::Name {
                    return Err(self.cursor.expected(what));
                }
                self.cursor.skip(1);
                Operand::Target(Name { text: token.text.to_string(), place: token.place })
            }
            Takes::Field => {
                if !matches!(token.kind, Kind::Name | Kind::Text) || token.text.is_empty() {
                    return Err(self.cursor.expected(what));
                }
                self.cursor.skip(1);
                Operand::Field(Name { text: token.text.to_string(), place: token.place })
            }
            // `push` followed by a name on the next line: the value is missing.
            Takes::Word if token.kind == Kind::Name && token.starts_line => {
                return Err(self.cursor.expected(what));
            }
            _ => {
                let number = expression::parse(&mut self.cursor, Grammar::Constant, what, self.messages)?;
                Operand::Number(number)
            }
        };
        Ok(Some(operand))
    }

    fn comma(&self, row: &Row) -> Diagnostic {
        self.cursor.expected("`,`").help(format!("write `{}, ...`", row.name))
    }
}

/// The error for an unknown instruction, as specific as possible.
fn unknown(first: &Token, second: &Token, arch: Arch) -> Diagnostic {
    let rows = || TABLE.iter().map(|row| row.name);
    let same_start: Vec<&'static str> =
        rows().filter(|name| pieces(name).next().is_some_and(|piece| first.is_word(piece))).collect();
    if same_start.is_empty() {
        let near = nearest(&first.text, rows().filter_map(|name| pieces(name).next()));
        return Diagnostic::error(first.place, format!("no instruction is called {}", quote(&first.text)))
            .label("expected an instruction")
            .suggest(near);
    }
    // `pop xx`: the first word is valid.
    let mut words: Vec<&str> = Vec::new();
    let fetched = if first.is_word("push") { &[ARGUMENT, RESULT][..] } else { &[] };
    let second_words = same_start.iter().filter_map(|name| pieces(name).nth(1));
    for word in fetched.iter().copied().chain(second_words) {
        if !words.contains(&word) {
            words.push(word);
        }
    }
    if second.is_word("mem") && words.contains(&"mem") {
        return Diagnostic::error(second.place, "`mem` without a width")
            .label("expected `mem, u8`, `mem, u16`, `mem, u32` or `mem, u64`");
    }
    let here = second.kind == Kind::Name && !second.starts_line;
    if here && first.is_word("push") && second.is_word(ARGUMENT) {
        return Diagnostic::error(second.place, "`push arg` without the number of the argument")
            .label(format!("expected `{FIRST_ARGUMENT}` for the first one"));
    }
    let list = words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    let wrong = if here {
        let both = format!("{} {}", first.text, second.text);
        Diagnostic::error(second.place, format!("no instruction is called {}", quote(&both)))
            .suggest(nearest(&second.text, words.iter().copied()))
    } else {
        Diagnostic::error(first.place.after(), format!("{} is not complete", quote(&first.text)))
    };
    let one_of = if words.len() > 1 { "one of " } else { "" };
    let wrong = wrong.label(format!("expected {one_of}{list}"));
    match arch.register(&second.text).filter(|_| here && words.contains(&"r")) {
        Some(register) => {
            wrong.help(format!("write `{} r, {}`", first.text.to_ascii_lowercase(), register.name))
        }
        None if here && first.is_word("log") && wrong.help.is_none() => {
            wrong.help(format!("`log 1` logs the top of the stack: `{FIRST_ARGUMENT}`, then `log 1`"))
        }
        None => wrong,
    }
}

/// Whether a name is the first word of an instruction, or `proc` or `endproc`.
pub(super) fn begins_instruction(token: &Token) -> bool {
    !forms(&token.text).is_empty() || token.is_word("proc") || token.is_word("endproc")
}

fn register(token: &Token, arch: Arch) -> Result<Register, Diagnostic> {
    if let Some(register) = arch.register(&token.text) {
        return Ok(register);
    }
    let name = quote(&token.text.to_ascii_lowercase());
    if arch.is_intel() && is_reserved(&token.text) {
        let wrong = Diagnostic::error(token.place, format!("the register {name} is reserved"));
        return Err(wrong.label("expected a register"));
    }
    let message = match is_register(&token.text) {
        true => format!("{arch} has no register {name}"),
        false => format!("no register is called {}", quote(&token.text)),
    };
    let wrong = Diagnostic::error(token.place, message);
    // A 64-bit name in an i386 program: suggest its 32-bit part.
    let narrow = name.trim_matches('`').strip_prefix('r').map(|rest| format!("e{rest}"));
    let narrow = narrow.and_then(|narrow| arch.register(&narrow));
    let names = arch.registers().iter().map(|register| register.name);
    let near = narrow.map(|register| register.name).or_else(|| nearest(&token.text, names));
    Err(wrong.label(format!("expected a register of {arch}")).suggest(near))
}
