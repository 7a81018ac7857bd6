//! `push arg, N` and `push retval`: arguments and return values of functions, by the System V ABI.
//!
//! They exist only in source text: the parser replaces each by the instructions that fetch the
//! value, so that no engine needs support for them:
//!
//! ```text
//!               x86-64                          i386
//! push arg, 1   push r, rsi                     push r, esp; push 8; add; push mem, u32
//! push arg, 6   push r, rsp; push 8; add;       push r, esp; push 28; add; push mem, u32
//!               push mem, u64
//! push retval   push r, rax                     push r, eax
//! ```

use source::{Diagnostic, SourceLocation};
use vm::{Operand as Takes, Row, TABLE};

use super::{Parser, Within};
use crate::arch::Arch;
use crate::ast::{Instruction, Item, Line, Operand, Value};
use crate::check::within;
use crate::expression::{self, Expression, Grammar, Node};
use crate::object::FunctionPoint;
use crate::spellings::{ARGUMENT, RESULT};

/// The registers of the first arguments on x86-64 (System V ABI, AMD64 supplement, 3.2.3).
const REGISTERS: [&str; 6] = ["rdi", "rsi", "rdx", "rcx", "r8", "r9"];
/// The largest argument number.
const MAX_ARGUMENT: i128 = 255;

impl Parser<'_> {
    /// Whether the next instruction is one of these.
    pub(super) fn is_argument_or_retval(&self) -> bool {
        let (word, after) = (self.cursor.peek_at(1), self.cursor.peek_at(2));
        let argument = word.is_word(ARGUMENT) && after.is(",");
        let result = word.is_word(RESULT) && !word.starts_line && !after.is(":") && !after.is("=");
        self.cursor.peek().is_word("push") && (argument || result)
    }

    /// Parses it and adds the instructions.
    pub(super) fn sugar(&mut self) -> Result<(), Diagnostic> {
        let first = self.cursor.take();
        let word = self.cursor.take();
        if word.is_word(RESULT) {
            let place = first.place.to(word.place);
            self.for_intel(place, RESULT)?;
            self.note_place(place, RESULT);
            let register = if self.arch == Arch::I386 { "eax" } else { "rax" };
            self.push_register(register, place);
            return Ok(());
        }
        self.cursor.skip(1);
        let what = "an argument's number";
        let number = expression::parse(&mut self.cursor, Grammar::Constant, what, self.messages)?;
        let place = first.place.to(self.cursor.last_place());
        self.for_intel(place, ARGUMENT)?;
        let number = within(&number, what, 0..=MAX_ARGUMENT)?;
        self.note_place(place, ARGUMENT);
        // The number is within 0 to LAST.
        let number = usize::try_from(number).unwrap_or(0);
        if self.arch == Arch::I386 {
            self.push_memory("esp", 4 + 4 * number, "push mem, u32", place);
        } else if let Some(register) = REGISTERS.get(number) {
            self.push_register(register, place);
        } else {
            self.push_memory("rsp", 8 + 8 * (number - REGISTERS.len()), "push mem, u64", place);
        }
        Ok(())
    }

    /// Reports an error on other machines, whose calling conventions are different.
    fn for_intel(&self, place: SourceLocation, word: &str) -> Result<(), Diagnostic> {
        if self.arch.is_intel() {
            return Ok(());
        }
        let wrong = Diagnostic::error(place, format!("`push {word}` is for i386 and x86-64 programs"));
        Err(wrong
            .label(format!("the program is compiled for {}", self.arch))
            .help("push the register itself"))
    }

    /// Adds a note if the probe is not where arguments (or the return value) are in their places.
    fn note_place(&mut self, place: SourceLocation, word: &str) {
        let (Within::Probe, Some(Item::Probe(probe))) = (self.within, self.program.items.last()) else {
            return;
        };
        let value = probe.header.first().and_then(|statement| statement.value.as_ref());
        let right = match (value, word) {
            (Some(Value::Point(_, FunctionPoint::Entry, _)), ARGUMENT) => true,
            (Some(Value::Point(_, FunctionPoint::Return, _)), RESULT) => true,
            (Some(Value::Number(point)), ARGUMENT) => {
                point.value().is_ok_and(|point| point.symbol.is_some() && point.number == 0)
            }
            // The location could not be parsed, which has been reported.
            (None, _) => true,
            _ => false,
        };
        let told = format!("push {word}");
        if right || !self.noted.insert(told.clone()) {
            return;
        }
        let (what, at) = match word {
            RESULT => ("the result is there", "`FUNCTION:return`"),
            _ => ("arguments are there", "a function's entry"),
        };
        let note = Diagnostic::note(place, format!("`{told}` not at {at}"));
        self.messages
            .add(note.label(format!("{what} at {at}; here this pushes the plain register or stack value")));
    }

    fn push_register(&mut self, name: &str, place: SourceLocation) {
        if let Some(register) = self.arch.register(name) {
            self.expand("push r", Some(Operand::Register(register, place)), place);
        }
    }

    fn push_memory(&mut self, stack: &str, distance: usize, load: &str, place: SourceLocation) {
        self.push_register(stack, place);
        let distance = Expression { node: Node::Number(distance as u64), place };
        self.expand("push", Some(Operand::Number(distance)), place);
        self.expand("add", None, place);
        self.expand(load, None, place);
    }

    /// Adds the instruction with this name, in its form with or without an operand.
    fn expand(&mut self, name: &str, operand: Option<Operand>, place: SourceLocation) {
        let fits = |row: &&Row| row.name == name && (row.operand == Takes::None) == operand.is_none();
        if let Some(row) = TABLE.iter().find(fits) {
            self.add_line(Line::Instruction(Instruction { op: row.op, operand, place }), place);
        }
    }
}
