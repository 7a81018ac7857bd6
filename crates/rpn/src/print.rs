//! The printer: a [`Program`] as source text, in one fixed style. The parser reads the output as
//! the same program.

use std::fmt::{self, Display, Formatter, Write};

use crate::ast::{Body, Instruction, Item, Line, Operand, Program, Statement, Value};
use crate::expression::{Expression, Node, Unary};
use crate::keys::Key;
use crate::registers::is_register;
use crate::spellings::{ARGUMENT, RESULT, forms, pieces};
use crate::tracepoint::is_unquoted;

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for statement in &self.header {
            writeln!(f, "{statement}")?;
        }
        for item in &self.items {
            f.write_char('\n')?;
            match item {
                Item::Probe(probe) => {
                    for statement in &probe.header {
                        writeln!(f, "{statement}")?;
                    }
                    write!(f, "{}", probe.body)?;
                }
                Item::Procedure(procedure) => {
                    write!(f, "proc {}\n{}endproc\n", procedure.name, procedure.body)?;
                }
            }
        }
        Ok(())
    }
}

impl Display for Statement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} =", self.key.name())?;
        match &self.value {
            None => Ok(()),
            // A module's name is always quoted: most are paths.
            Some(Value::Name(name)) if self.key == Key::Name => {
                write!(f, " \"{}\"", name.text.replace('\\', "\\\\").replace('"', "\\\""))
            }
            Some(Value::Name(name)) => write!(f, " {name}"),
            Some(Value::Names(names)) => names.iter().try_for_each(|name| write!(f, " {name}")),
            Some(Value::Number(number))
                if matches!(self.key, Key::Offset | Key::Address | Key::Opcode | Key::ExcptMask) =>
            {
                write!(f, " {number}")
            }
            Some(Value::Number(number)) => write!(f, " {}", Count(number)),
            Some(Value::Range(first, last)) => write!(f, " {first}:{last}"),
            Some(Value::Tracepoint(system, name)) if is_unquoted(&system.text, &name.text) => {
                write!(f, " {}:{}", system.text, name.text)
            }
            Some(Value::Tracepoint(system, name)) => write!(f, " \"{}:{}\"", system.text, name.text),
            Some(Value::Point(function, point, _)) => write!(f, " {function}:{point}"),
        }
    }
}

impl Display for Body {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            match line {
                Line::Label(name) => writeln!(f, "{name}:")?,
                Line::Instruction(instruction) => writeln!(f, "    {instruction}")?,
                Line::Comment(text) => writeln!(f, "    // {text}")?,
                Line::Missing => {}
            }
        }
        Ok(())
    }
}

/// Shows a count: a number in decimal.
struct Count<'a>(&'a Expression);

impl Display for Count<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.0.node {
            Node::Number(number) => write!(f, "{number}"),
            Node::Unary(Unary::Minus, inner) if matches!(inner.node, Node::Number(_)) => {
                write!(f, "-{}", Count(inner))
            }
            _ => self.0.fmt(f),
        }
    }
}

/// Shows the operand of `push`. Quotes a symbol that is also a word after `push`, or a register.
struct Pushed<'a>(&'a Expression);

impl Display for Pushed<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        let first = text.split(' ').next().unwrap_or_default();
        let is_word = |piece: &&str| piece.eq_ignore_ascii_case(first);
        let taken = forms("push").iter().any(|form| form.pieces.get(1).is_some_and(is_word));
        let sugar = [ARGUMENT, RESULT].iter().any(is_word);
        if taken || sugar || is_register(first) {
            write!(f, "\"{first}\"{}", &text[first.len()..])
        } else {
            f.write_str(&text)
        }
    }
}

impl Display for Instruction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = self.op.row().name;
        let comma = if pieces(name).nth(1).is_some() { "," } else { "" };
        match &self.operand {
            None => f.write_str(name),
            Some(Operand::Number(number)) if self.op.row().operand == vm::Operand::Word => {
                write!(f, "{name}{comma} {}", Pushed(number))
            }
            Some(Operand::Number(number)) => write!(f, "{name}{comma} {}", Count(number)),
            Some(Operand::Register(register, _)) => write!(f, "{name}{comma} {}", register.name),
            Some(Operand::Target(name_of) | Operand::Field(name_of)) => write!(f, "{name}{comma} {name_of}"),
        }
    }
}
