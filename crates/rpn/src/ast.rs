//! The syntax tree of a program. The parser makes it; the printer turns it back into text.

use source::{SourceLocation, Span};
use vm::Op;

use crate::expression::{Expression, Name};
use crate::keys::Key;
use crate::object::FunctionPoint;
use crate::registers::Register;

/// A program.
#[derive(Debug, Default)]
pub(crate) struct Program {
    /// The statements of the file header.
    pub(crate) header: Vec<Statement>,
    /// Probes and procedures, in source order.
    pub(crate) items: Vec<Item>,
}

#[derive(Debug)]
pub(crate) enum Item {
    Probe(ProbePoint),
    Procedure(Procedure),
}

/// A probe: the statements of its header, the first of which gives its location, and its handler.
#[derive(Debug)]
pub(crate) struct ProbePoint {
    pub(crate) header: Vec<Statement>,
    pub(crate) body: Body,
}

#[derive(Debug)]
pub(crate) struct Procedure {
    pub(crate) name: Name,
    pub(crate) body: Body,
}

/// The instructions of a handler or a procedure.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) lines: Vec<Line>,
}

#[derive(Debug)]
pub(crate) enum Line {
    Label(Name),
    Instruction(Instruction),
    /// An instruction that could not be parsed; an error has been reported.
    Missing,
    /// A comment that the disassembler writes in place of bytes that are no instruction.
    Comment(String),
}

#[derive(Debug)]
pub(crate) struct Instruction {
    pub(crate) op: Op,
    pub(crate) operand: Option<Operand>,
    pub(crate) place: SourceLocation,
}

#[derive(Debug)]
pub(crate) enum Operand {
    Number(Expression),
    Register(Register, SourceLocation),
    /// A label or a procedure.
    Target(Name),
    /// A field of a tracepoint's record.
    Field(Name),
}

/// `key = value`.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) key: Key,
    /// The place of the key.
    pub(crate) place: SourceLocation,
    /// `None` if it could not be parsed; an error has been reported.
    pub(crate) value: Option<Value>,
    /// The value as written, without spaces.
    pub(crate) written: String,
}

impl Statement {
    /// From the key to the end of the value.
    pub(crate) fn span(&self) -> Span {
        self.value.as_ref().map_or(self.place.span, |value| self.place.span.to(value.location().span))
    }
}

#[derive(Debug)]
pub(crate) enum Value {
    /// A name, or a word such as `yes`.
    Name(Name),
    Names(Vec<Name>),
    Number(Expression),
    /// `first:last`
    Range(Expression, Expression),
    /// `function:point`; the last field is the place of the point.
    Point(Name, FunctionPoint, SourceLocation),
    /// `system:name`
    Tracepoint(Name, Name),
}

impl Value {
    pub(crate) fn location(&self) -> SourceLocation {
        match self {
            Value::Name(name) => name.place,
            Value::Names(names) => {
                let first = names.first().map_or(SourceLocation::default(), |name| name.place);
                names.last().map_or(first, |last| first.to(last.place))
            }
            Value::Number(number) => number.place,
            Value::Range(first, last) => first.place.to(last.place),
            Value::Tracepoint(system, name) => system.place.to(name.place),
            Value::Point(function, _, point) => function.place.to(*point),
        }
    }
}
