//! Checks one argument of a call.

use source::{Diagnostic, Span, nearest, quote};

use super::checker::Checker;

use super::unify::{is_address, is_byte, is_text};
use crate::ast::{Expr, ExprKind};
use crate::constant::{self, stated};
use crate::library::{Accepts, Entry, Parameter};
use crate::signals::SIGNALS;
use crate::types::{Opaque, Type};

impl Checker<'_> {
    /// Checks an argument. `first` is the first argument, if this is a later one.
    pub(super) fn argument(
        &mut self,
        entry: &Entry,
        parameter: &Parameter,
        argument: &mut Expr,
        first: Option<&Expr>,
    ) {
        let span = argument.span();
        match parameter.accepts {
            Accepts::Word(words) => return self.word(entry, argument, words),
            Accepts::Map | Accepts::KeyedMap => return self.whole_map(entry, parameter, argument),
            Accepts::AnyOrMap | Accepts::Countable if matches!(argument.kind, ExprKind::Map(_, None)) => {
                return self.whole_map(entry, parameter, argument);
            }
            Accepts::Variable => return self.out_variable(entry, argument, first),
            // What is printed may be a histogram.
            Accepts::AnyOrMap => {
                let ty = self.expr(argument);
                if ty == Type::Void {
                    self.error(span, "this gives no value", "expected a value");
                }
                return;
            }
            _ => {}
        }
        let ty = self.value(argument);
        let (fits, expected) = match parameter.accepts {
            Accepts::Any | Accepts::AnyOrMap => (true, ""),
            Accepts::Integer => (ty == Type::Unknown || ty.as_integer().is_some(), "an integer"),
            Accepts::Number => {
                let stated = constant::integer(argument).is_some();
                (
                    stated || matches!(argument.kind, ExprKind::Positional(_)),
                    "a number that the script states",
                )
            }
            Accepts::Address => (is_address(&ty) || matches!(ty, Type::Array(..)), "an address"),
            Accepts::Pointer => (is_address(&ty), "a pointer"),
            Accepts::Memory => (
                is_address(&ty) || is_text(&ty) || matches!(ty, Type::Array(..) | Type::Bytes),
                "an address, an array or a string",
            ),
            Accepts::Text => (is_text(&ty), "a string"),
            Accepts::Literal => {
                (matches!(argument.kind, ExprKind::Text(_) | ExprKind::Positional(_)), "a string in quotes")
            }
            Accepts::Format => (matches!(argument.kind, ExprKind::Text(_)), "a format in quotes"),
            Accepts::Condition => return self.must_be_condition(&ty, span),
            Accepts::Signal => return self.signal(argument, &ty),
            Accepts::NetworkAddress => (is_network_address(&ty), "an integer, or an array of 4 or 16 bytes"),
            Accepts::Default => {
                let literal = constant::integer(argument).is_some()
                    || matches!(argument.kind, ExprKind::Text(_) | ExprKind::Bool(_));
                (literal, "a number, a string, `true` or `false`")
            }
            Accepts::Countable => (
                matches!(ty, Type::Unknown | Type::Opaque(Opaque::KernelStack | Opaque::UserStack)),
                "a map or a stack",
            ),
            Accepts::Key => {
                if let Some(Expr { kind: ExprKind::Map(name, None), .. }) = first
                    // That a map has no keys is said of the map.
                    && (entry.name == "delete" || !self.maps.is_scalar(name))
                {
                    let result = self.maps.element(name, Some((&ty, stated(argument))), span);
                    self.keep(result);
                }
                return;
            }
            Accepts::Word(_) | Accepts::Map | Accepts::KeyedMap | Accepts::Variable => return,
        };
        if !fits {
            self.unfit(entry, parameter, &ty, span, expected);
        }
    }

    fn unfit(&mut self, entry: &Entry, parameter: &Parameter, ty: &Type, span: Span, expected: &str) {
        let message = format!("`{}` cannot have a value of type `{ty}` as {}", entry.name, parameter.name);
        let message = Diagnostic::error(span, message).label(format!("expected {expected}"));
        self.report(match (parameter.accepts, ty) {
            (Accepts::Text, Type::Pointer(_) | Type::Integer(_)) => {
                message.help("read the string with `str()`")
            }
            _ => message,
        });
    }

    fn word(&mut self, entry: &Entry, argument: &mut Expr, words: &[&'static str]) {
        let ExprKind::Name(word) = &argument.kind else {
            let message = format!("`{}` cannot have this value", entry.name);
            return self.error(argument.span(), message, format!("expected {}", words.join(", ")));
        };
        if !words.contains(&word.as_str()) {
            let near = nearest(word, words.iter().copied());
            self.report(
                Diagnostic::error(argument.span(), format!("`{}` does not know {}", entry.name, quote(word)))
                    .label(format!("expected {}", words.join(", ")))
                    .suggest(near),
            );
        }
    }

    /// A map as such, not its value.
    fn whole_map(&mut self, entry: &Entry, parameter: &Parameter, argument: &mut Expr) {
        let span = argument.span();
        match &argument.kind {
            ExprKind::Map(name, None) => {
                let value = self.maps.value(name, span);
                argument.ty = match value {
                    Ok(ty) => ty,
                    Err(message) => {
                        self.report(message);
                        Type::Unknown
                    }
                };
                let ExprKind::Map(name, _) = &argument.kind else { return };
                if parameter.accepts == Accepts::KeyedMap && self.maps.is_scalar(name) {
                    let message = format!("map `@{name}` has no keys");
                    self.error(span, message, "expected a map with keys");
                }
            }
            ExprKind::Map(_, Some(_)) if entry.name == "delete" => {
                self.expr(argument);
            }
            _ => {
                self.expr(argument);
                let message = format!("`{}` needs a map", entry.name);
                self.error(span, message, "expected a map without a key, such as `@x`");
            }
        }
    }

    /// The variable that `find` sets.
    fn out_variable(&mut self, entry: &Entry, argument: &mut Expr, first: Option<&Expr>) {
        let span = argument.span();
        if !matches!(argument.kind, ExprKind::Local(_)) {
            let message = format!("`{}` sets a variable", entry.name);
            return self.error(span, message, "expected a scratch variable, such as `$x`");
        }
        if let Some(Expr { kind: ExprKind::Map(name, None), .. }) = first {
            let ty = self.maps.value(name, span).unwrap_or_default();
            argument.ty = self.assign(argument, &ty, None, span);
        }
    }

    fn signal(&mut self, argument: &Expr, ty: &Type) {
        let span = argument.span();
        match &argument.kind {
            ExprKind::Text(text) => {
                let text = String::from_utf8_lossy(text).to_ascii_uppercase();
                let name = text.strip_prefix("SIG").unwrap_or(&text);
                if !SIGNALS.contains(&name) {
                    self.report(
                        Diagnostic::error(span, format!("no signal is called {}", quote(&text)))
                            .label("expected a signal")
                            .suggest(nearest(name, SIGNALS.iter().copied()).map(|name| format!("SIG{name}"))),
                    );
                }
            }
            _ if constant::integer(argument).is_some_and(|number| !(1..=64).contains(&number)) => {
                self.error(span, "there is no signal of this number", "expected 1 to 64");
            }
            _ if *ty == Type::Unknown || ty.as_integer().is_some() => {}
            _ => self.error(span, "this is no signal", "expected a name in quotes, or a number"),
        }
    }
}

fn is_network_address(ty: &Type) -> bool {
    match ty {
        Type::Array(inner, length) => is_byte(inner) && matches!(length, None | Some(4 | 16)),
        _ => *ty == Type::Unknown || ty.as_integer().is_some(),
    }
}
