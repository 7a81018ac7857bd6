//! Checks calls against the library.

use source::{Diagnostic, Span, nearest, quote};

use super::checker::Checker;
use super::comptime::Settled;
use super::format;
use crate::ast::{Expr, ExprKind};
use crate::constant::known;
use crate::library::{self, Accepts, Entry, Gives, Parameter};
use crate::types::{Integer, Opaque, Type};

impl Checker<'_> {
    /// The type of a call.
    pub(crate) fn call(&mut self, expr: &mut Expr) -> Type {
        let span = expr.span();
        let ExprKind::Call(name, arguments) = &mut expr.kind else { return Type::Unknown };
        let name = name.clone();
        let Some(entry) = library::find(&name) else {
            for argument in arguments {
                self.expr(argument);
            }
            let near = nearest(&name, library::all().map(|entry| entry.name));
            self.report(
                Diagnostic::error(span, format!("no function or macro is called {}", quote(&name)))
                    .label("not known")
                    .suggest(near),
            );
            return Type::Unknown;
        };
        self.available(entry, &name, span);
        let (least, most) = entry.counts();
        let found = arguments.len();
        if found < least || most.is_some_and(|most| found > most) {
            for argument in arguments {
                self.expr(argument);
            }
            self.wrong_count(entry, found, span);
            return entry.gives.fixed().unwrap_or_default();
        }
        for (parameter, index) in matched(entry, arguments) {
            let (before, rest) = arguments.split_at_mut(index);
            let (Some(argument), after) = (rest.first_mut(), before.first()) else { continue };
            self.argument(entry, parameter, argument, after);
        }
        if entry.parameters.iter().any(|parameter| parameter.accepts == Accepts::Format) {
            self.formatted(arguments);
        }
        self.particular(entry, arguments, span);
        self.given(entry, arguments)
    }

    fn wrong_count(&mut self, entry: &Entry, found: usize, span: Span) {
        let (least, most) = entry.counts();
        let takes = match most {
            Some(most) if most == least => library::arguments(least),
            Some(most) => format!("{least} to {}", library::arguments(most)),
            None => format!("at least {}", library::arguments(least)),
        };
        let message = format!("`{}` takes {takes}, not {found}", entry.name);
        self.report(
            Diagnostic::error(span, message)
                .label("wrong number of arguments")
                .help(format!("write `{}`", entry.form())),
        );
    }

    /// A format and its values.
    fn formatted(&mut self, arguments: &mut [Expr]) {
        let Some((first, values)) = arguments.split_first_mut() else { return };
        for value in &mut *values {
            self.value(value);
        }
        if let ExprKind::Text(text) = &first.kind {
            let result = format::check(text, first.span(), values);
            self.keep(result);
        }
    }

    /// What single functions ask for beyond the types of their arguments.
    fn particular(&mut self, entry: &Entry, arguments: &[Expr], span: Span) {
        match (entry.name, arguments) {
            ("delete", [map]) => match &map.kind {
                // The form of bpftrace 0.21: `delete(@x[key])`.
                ExprKind::Map(_, Some(_)) => {}
                ExprKind::Map(name, None) if self.maps.key(name).is_some() => {
                    let message = format!("map `@{name}` has keys");
                    self.report(
                        Diagnostic::error(map.span(), message).label("which entry is not said").help(
                            format!("write `delete(@{name}, key)`, or `clear(@{name})` for all entries"),
                        ),
                    );
                }
                _ => {}
            },
            ("print", [value, extra, ..]) => {
                let whole = matches!(&value.kind, ExprKind::Map(name, None) if !self.maps.is_scalar(name));
                if !whole {
                    self.error(
                        extra.span(),
                        "only a whole map is printed in part",
                        "expected a map as first argument",
                    );
                }
            }
            ("lhist", [_, least, most, step]) => {
                let numbers = [least, most, step].map(crate::constant::integer);
                if let [Some(least), Some(most), Some(step)] = numbers {
                    if step <= 0 || most <= least {
                        self.error(
                            span,
                            "the histogram has no buckets",
                            "expected least < most and a step above 0",
                        );
                    } else if (most - least) / step > 1000 {
                        self.error(
                            span,
                            "the histogram has more than 1000 buckets",
                            "expected a larger step",
                        );
                    }
                }
            }
            ("hist", [_, bits])
                if crate::constant::integer(bits).is_some_and(|bits| !(0..=5).contains(&bits)) =>
            {
                let message = "a histogram has 2 to the power of 0 to 5 buckets";
                self.error(bits.span(), message, "expected 0 to 5");
            }
            ("tseries", [_, _, _, aggregation]) => {
                let known = |text: &[u8]| [&b"avg"[..], b"max", b"min", b"sum"].contains(&text);
                if matches!(&aggregation.kind, ExprKind::Text(text) if !known(text)) {
                    self.error(
                        aggregation.span(),
                        "a series cannot be made of this",
                        "expected avg, max, min or sum",
                    );
                }
            }
            ("pton", [address]) => {
                if let ExprKind::Text(text) = &address.kind
                    && String::from_utf8_lossy(text).parse::<std::net::IpAddr>().is_err()
                {
                    self.error(
                        address.span(),
                        "this is no address of a network",
                        "expected `1.2.3.4` or `::1`",
                    );
                }
            }
            ("reg", [register]) => {
                if let ExprKind::Text(text) = &register.kind {
                    let text = String::from_utf8_lossy(text);
                    if !REGISTERS.contains(&&*text) {
                        self.report(
                            Diagnostic::error(
                                register.span(),
                                format!("x86-64 has no register {}", quote(&text)),
                            )
                            .label("expected a register")
                            .suggest(nearest(&text, REGISTERS.iter().copied())),
                        );
                    }
                }
            }
            ("static_assert", [condition, message]) => match known(condition) {
                Some(true) => {}
                Some(false) => {
                    let text = match &message.kind {
                        ExprKind::Text(text) => String::from_utf8_lossy(text).into_owned(),
                        _ => String::new(),
                    };
                    self.error(
                        span,
                        format!("the script's own condition does not hold: {}", quote(&text)),
                        "asserted here",
                    );
                }
                None => {
                    let message = "the condition is not known when the script is checked";
                    self.error(
                        condition.span(),
                        message,
                        "expected a constant, or `is_integer()` and its like",
                    );
                }
            },
            ("comptime", [value]) if self.known().settled(value) == Settled::Never => {
                self.report(
                    Diagnostic::error(value.span(), "this is not known when the script is checked")
                        .label("known when the probe fires")
                        .help("`comptime` takes constants, sizes, parameters, `probetype`, and `is_integer()` and its like"),
                );
            }
            ("fail", _) if self.conditions == 0 => {
                self.error(span, "the script refuses itself", "reached whenever the probe fires");
            }
            ("assert_str", [value]) if !super::unify::is_text(&value.ty) => {
                let message = format!("a value of type `{}` is not like a string", value.ty);
                self.error(value.span(), message, "expected a string");
            }
            _ => {}
        }
    }

    /// The type of the result.
    fn given(&mut self, entry: &Entry, arguments: &[Expr]) -> Type {
        if entry.name == "retval" && self.is_untyped_exit() {
            return Type::Unknown;
        }
        if entry.name == "comm" && !arguments.is_empty() {
            return Type::Opaque(Opaque::Process);
        }
        if entry.name == "reg" && arguments.first().is_some_and(is_vector) {
            return Type::Float(8);
        }
        if let ("uaddr", Some(ExprKind::Text(name))) = (entry.name, arguments.first().map(|it| &it.kind)) {
            return self.names().symbol(&String::from_utf8_lossy(name)).pointer();
        }
        if let Some(ty) = entry.gives.fixed() {
            return ty;
        }
        let first = arguments.first();
        match entry.gives {
            Gives::Same(index) => arguments.get(index).map_or(Type::Unknown, |argument| argument.ty.clone()),
            Gives::Swapped => match first.and_then(|argument| argument.ty.as_integer()) {
                Some(integer) => Type::Integer(Integer { signed: false, ..integer }),
                None => Type::Unknown,
            },
            Gives::AddressBytes => {
                let six = matches!(first.map(|argument| &argument.kind), Some(ExprKind::Text(text)) if text.contains(&b':'));
                Type::Array(Type::unsigned(1).into(), Some(if six { 16 } else { 4 }))
            }
            Gives::OfDefault => match arguments.get(1) {
                None => Type::Bool,
                // Its value may be any integer.
                Some(argument) if matches!(argument.ty, Type::Integer(_)) => Type::I64,
                Some(argument) => argument.ty.clone(),
            },
            _ => Type::Unknown,
        }
    }
}

/// The registers of x86-64 that `reg` reads.
const REGISTERS: &[&str] = &[
    "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "bp", "bx", "ax", "cx", "dx", "si", "di",
    "orig_ax", "ip", "cs", "flags", "sp", "ss", "rbp", "rbx", "rax", "rcx", "rdx", "rsi", "rdi", "rip",
    "rsp", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
    "xmm12", "xmm13", "xmm14", "xmm15",
];

/// Whether a register is one for floats.
fn is_vector(name: &Expr) -> bool {
    matches!(&name.kind, ExprKind::Text(name) if name.starts_with(b"xmm"))
}

/// Pairs arguments with parameters. A leading parameter may be left out: `kstack(3)`.
fn matched<'e>(entry: &'e Entry, arguments: &[Expr]) -> Vec<(&'e Parameter, usize)> {
    let mut spare = entry.parameters.len().saturating_sub(arguments.len());
    let mut parameters = entry.parameters.iter().enumerate();
    let mut pairs = Vec::new();
    for (index, argument) in arguments.iter().enumerate() {
        for (position, parameter) in parameters.by_ref() {
            let later = entry.parameters.len() - position - 1;
            let word = matches!(parameter.accepts, Accepts::Word(_));
            let leading = parameter.optional
                && later > 0
                && (word || entry.parameters[position + 1..].iter().any(|each| !each.optional));
            if leading && spare > 0 && !(word && matches!(argument.kind, ExprKind::Name(_))) {
                spare -= 1;
                continue;
            }
            pairs.push((parameter, index));
            break;
        }
    }
    pairs
}
