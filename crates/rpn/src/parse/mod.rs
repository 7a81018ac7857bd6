//! The parser: tokens in, a [`Program`] out.
//!
//! The grammar, not a newline, ends a statement (`modtype = user major = 1` is two statements). A
//! name before `=` is a statement's key, a name before `:` a label, any other the start of an
//! instruction. After an error, parsing continues with the next line, so that one run finds all
//! errors.

mod argument;
mod instruction;
mod statement;
mod tracepoint;

use std::collections::HashSet;

use source::{Diagnostic, Keep, Messages, SourceLocation, Span, quote};

use crate::arch::Arch;
use crate::ast::{Body, Item, Line, ProbePoint, Procedure, Program};
use crate::cursor::Cursor;
use crate::expression::Name;
use crate::keys::Key;
use crate::lex::{Kind, Token};

/// Parses a program. `tokens` must end in [`Kind::End`].
pub(crate) fn parse(tokens: &[Token], arch: Arch, messages: &mut Messages) -> Program {
    let mut parser = Parser {
        cursor: Cursor::new(tokens),
        arch,
        messages,
        program: Program::default(),
        within: Within::Header,
        strays: false,
        noted: HashSet::new(),
    };
    parser.program();
    parser.program
}

/// The part of the program that is being parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    /// The file header.
    Header,
    /// The probe that is the last item of the program.
    Probe,
    /// The procedure that is the last item of the program: the place of its `proc`, and the state
    /// to return to after it.
    Procedure(Span, After),
    /// Nothing: a procedure after the first probe has ended, and no other probe has begun yet.
    Nothing,
}

/// The state after a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Header,
    Nothing,
}

struct Parser<'a> {
    cursor: Cursor<'a>,
    /// The machine whose registers the program uses.
    arch: Arch,
    messages: &'a mut Messages,
    program: Program,
    within: Within,
    /// Whether an instruction outside of probes and procedures has been reported.
    strays: bool,
    /// Old spellings for which a note has been given.
    noted: HashSet<String>,
}

impl Parser<'_> {
    fn program(&mut self) {
        loop {
            let token = self.cursor.peek();
            let next = self.cursor.peek_at(1);
            let done = match token.kind {
                Kind::End => break,
                _ if self.messages.full() => break,
                Kind::Name if next.is("=") => self.statement(),
                Kind::Name if next.is(":") => self.label(),
                Kind::Name if token.is_word("proc") => self.begin_procedure(),
                Kind::Name if token.is_word("endproc") => self.end_procedure(),
                Kind::Name => {
                    let read = self.instruction();
                    if let (Err(_), Some(body)) = (&read, self.body()) {
                        body.lines.push(Line::Missing);
                    }
                    read
                }
                _ => Err(Diagnostic::error(token.place, format!("unexpected {}", token.describe()))
                    .label("expected a statement or an instruction")),
            };
            if done.or_report(self.messages).is_none() {
                // The wrong token may be the first of its line, where `skip_line` would stop.
                if std::ptr::eq(self.cursor.peek(), token) {
                    self.cursor.skip(1);
                }
                self.cursor.skip_line();
            }
        }
        if let Within::Procedure(begin, _) = self.within {
            self.messages.add(open_procedure(begin));
        }
    }

    /// The body of the current handler or procedure, if any.
    fn body(&mut self) -> Option<&mut Body> {
        match (self.within, self.program.items.last_mut()) {
            (Within::Probe, Some(Item::Probe(probe))) => Some(&mut probe.body),
            (Within::Procedure(..), Some(Item::Procedure(procedure))) => Some(&mut procedure.body),
            _ => None,
        }
    }

    /// Adds a line to the current handler or procedure; if there is none, reports that once.
    fn add_line(&mut self, line: Line, place: SourceLocation) {
        if let Some(body) = self.body() {
            body.lines.push(line);
        } else if !std::mem::replace(&mut self.strays, true) {
            let what = if self.within == Within::Header {
                "an instruction before the first probe"
            } else {
                "an instruction outside of probes and procedures"
            };
            self.messages.add(
                Diagnostic::error(place, what)
                    .label("expected `offset =`, `address =`, `tracepoint =` or `proc` before it")
                    .help("a probe begins with `offset = ...`; its instructions follow its header"),
            );
        }
    }

    fn label(&mut self) -> Result<(), Diagnostic> {
        let token = self.cursor.take();
        self.cursor.skip(1);
        let name = Name { text: token.text.to_string(), place: token.place };
        self.add_line(Line::Label(name), token.place);
        Ok(())
    }

    fn begin_procedure(&mut self) -> Result<(), Diagnostic> {
        let word = self.cursor.take();
        let token = self.cursor.peek();
        if token.kind != Kind::Name {
            return Err(self.cursor.expected("the procedure's name"));
        }
        self.cursor.skip(1);
        let name = Name { text: token.text.to_string(), place: token.place };
        let after = match self.within {
            Within::Header => After::Header,
            Within::Probe | Within::Nothing => After::Nothing,
            Within::Procedure(begin, after) => {
                self.messages.add(open_procedure(begin));
                after
            }
        };
        self.program.items.push(Item::Procedure(Procedure { name, body: Body::default() }));
        self.within = Within::Procedure(word.place.span.to(token.place.span), after);
        Ok(())
    }

    fn end_procedure(&mut self) -> Result<(), Diagnostic> {
        let word = self.cursor.take();
        match self.within {
            Within::Procedure(_, After::Header) => self.within = Within::Header,
            Within::Procedure(_, After::Nothing) => self.within = Within::Nothing,
            _ => {
                return Err(Diagnostic::error(word.place, "`endproc` without a `proc`")
                    .label("no procedure is open here"));
            }
        }
        Ok(())
    }

    /// Begins a probe; the caller has just read the key of its first statement.
    fn begin_probe(&mut self) {
        if let Within::Procedure(begin, _) = self.within {
            self.messages.add(open_procedure(begin));
        }
        self.program.items.push(Item::Probe(ProbePoint { header: Vec::new(), body: Body::default() }));
        self.within = Within::Probe;
    }

    /// Notes that a spelling is old, once per spelling.
    fn note_old(&mut self, place: SourceLocation, old: &str, note: &str, new: &str) {
        if self.noted.insert(old.to_string()) {
            self.messages.add(Diagnostic::note(place, format!("{} {note}", quote(old))).label(new));
        }
    }

    /// Whether this statement belongs to the file header here.
    fn in_header(&self, key: Key) -> bool {
        self.within == Within::Header && key.in_file()
    }
}

fn open_procedure(begin: Span) -> Diagnostic {
    Diagnostic::error(begin, "this procedure has no end").label("expected an `endproc` for it")
}
