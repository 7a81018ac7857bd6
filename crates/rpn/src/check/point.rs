//! Checks the statement that says where a probe is.

use vm::Word;

use super::{Statements, show, within};
use crate::ast::{Statement, Value};
use crate::expression::{self, Expression};
use crate::keys::Key;
use crate::object::{Location, ModuleKind};
use source::{Diagnostic, Keep};

impl<'a> Statements<'a> {
    /// The statement that gives the probe's location: the first one.
    pub(super) fn point_statement(&self) -> Option<&'a Statement> {
        self.all.iter().find(|statement| statement.key.begins_probe())
    }

    /// The name of that statement, for messages.
    pub(super) fn point_name(&self) -> &'static str {
        self.point_statement().map_or(Key::Offset.name(), |point| point.key.name())
    }

    /// Checks that one statement gives the location, and that the other statements suit it.
    pub(super) fn check_point(&mut self, kind: ModuleKind) {
        let points: Vec<&Statement> =
            Key::ALL.iter().filter(|key| key.begins_probe()).filter_map(|key| self.find(*key)).collect();
        for (first, other) in points.iter().zip(points.iter().skip(1)) {
            let message =
                format!("a probe has `{} =` or `{} =`, not both", first.key.name(), other.key.name());
            let wrong = Diagnostic::error(other.place, message);
            let wrong = wrong.label("expected one of them").related(first.place.span, "the other one");
            self.messages.add(wrong.help("for two probes, write `exit` as the handler of the first"));
        }
        let Some(point) = self.point_statement().filter(|point| point.key == Key::Tracepoint) else { return };
        if kind != ModuleKind::Kernel {
            let name = kind.name();
            self.messages.add(
                Diagnostic::error(
                    point.place,
                    format!("`tracepoint =` in a program with `modtype = {name}`"),
                )
                .label("tracepoints are the kernel's")
                .help("write `modtype = kernel` in the file header"),
            );
        }
        if let Some(opcode) = self.find(Key::Opcode) {
            let wrong = Diagnostic::error(opcode.place, "`opcode =` at a tracepoint");
            self.messages.add(wrong.label("there is no instruction to compare it with"));
        }
    }

    /// The probe's location, and the number of bytes if it is a range.
    pub(super) fn location(&mut self, word: Word) -> (Location, Option<i128>) {
        let nowhere = (Location::Offset(0), None);
        let Some(point) = self.point_statement() else { return nowhere };
        let (first, last) = match &point.value {
            Some(Value::Point(function, point, _)) => {
                return (Location::Points { function: function.text.clone(), point: *point }, None);
            }
            Some(Value::Tracepoint(system, name)) => {
                let (system, name) = (system.text.clone(), name.text.clone());
                return (Location::Tracepoint { system, name }, None);
            }
            Some(Value::Number(first)) => (first, None),
            Some(Value::Range(first, last)) => (first, Some(last)),
            _ => return nowhere,
        };
        let absolute = point.key == Key::Address;
        let read = place_of(first, absolute, word).and_then(|location| match last {
            None => Ok((location, None)),
            Some(last) => length(first, last).map(|length| (location, Some(length))),
        });
        read.or_report(self.messages).unwrap_or(nowhere)
    }
}

fn place_of(expression: &Expression, absolute: bool, word: Word) -> Result<Location, Diagnostic> {
    let expression::Value { symbol, number } = expression.value()?;
    match symbol {
        Some(symbol) => {
            let addend = i64::try_from(number).map_err(|_| {
                Diagnostic::error(expression.place, "this offset from its symbol is too large")
                    .label(format!("{} bytes", show(number)))
            })?;
            let name = symbol.text;
            Ok(if absolute {
                Location::AddressSymbol { name, addend }
            } else {
                Location::Symbol { name, addend }
            })
        }
        None => {
            let most = i128::from(word.truncate(u64::MAX));
            let what = if absolute { "an address" } else { "an offset" };
            let number = within(expression, what, 0..=most)?;
            let number = u64::try_from(number).unwrap_or(0);
            Ok(if absolute { Location::Address(number) } else { Location::Offset(number) })
        }
    }
}

/// The number of bytes from `first` to `last`, both included.
fn length(first: &Expression, last: &Expression) -> Result<i128, Diagnostic> {
    let from = first.value()?;
    let to = last.value()?;
    let place = first.place.to(last.place);
    if from.symbol.as_ref().map(|name| &name.text) != to.symbol.as_ref().map(|name| &name.text) {
        return Err(Diagnostic::error(place, "this range starts and ends at different symbols")
            .label("expected the same symbol on both sides"));
    }
    match to.number.checked_sub(from.number) {
        Some(distance @ 0..) => Ok(distance.saturating_add(1)),
        _ => Err(Diagnostic::error(place, "this range ends before it starts")
            .label("expected the lower address first")),
    }
}
