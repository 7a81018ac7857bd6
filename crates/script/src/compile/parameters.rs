//! What a script gets from outside, put into its tree.
//!
//! `$1`, `$#` and `getopt()` become literals, and the tree is checked again: so a parameter has the
//! type and the meaning of the number or the string that it is.

use std::collections::BTreeMap;

use source::{Diagnostic, quote};

use crate::ast::{At, Expr, ExprKind, Item, Script};
use crate::attach_point::{AttachTarget, Number};
use crate::constant;
use crate::number;
use crate::operator::{Binary, Unary};
use crate::static_sites::StaticSites;
use crate::types::Type;

use crate::walk;

/// What the runtime knows when a script is compiled.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// `$1` and those that follow.
    pub positional: Vec<String>,
    /// The parameters that have names, for `getopt`. One without a value is `true`.
    pub named: BTreeMap<String, Option<String>>,
    /// Settings from outside, which are stronger than those in the script.
    pub settings: Vec<(String, String)>,
    /// The process that dprobes has started: `cpid`.
    pub child: Option<u32>,
    /// Whether it is to start one: its number is read from a map, [`crate::Compiled::child`].
    pub starts: bool,
    /// The number of processors: `ncpus`.
    pub processors: u32,
    /// The bytes of a word of the probed programs. Only 8 is possible.
    pub word: u8,
    /// Whether functions are allowed that change the process or start commands.
    pub allow_unsafe: bool,
    /// Where static probes are. A `usdt` point without an entry is compiled, but has no arguments.
    pub sites: StaticSites,
    /// The addresses of the kernel's symbols that the script names, or why they are not known.
    pub kernel_symbols: BTreeMap<String, Result<u64, String>>,
    /// The NUMA node of each processor; none: all are in node 0.
    pub nodes: Vec<u32>,
    /// The numbers of the cgroups that the script names ([`crate::Checked::literals`]), or why
    /// there is none.
    pub cgroups: BTreeMap<String, Result<u64, String>>,
    /// Nanoseconds by which atomic time is ahead of the time of day.
    pub atomic_time: u64,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            positional: Vec::new(),
            named: BTreeMap::new(),
            settings: Vec::new(),
            child: None,
            starts: false,
            processors: 1,
            word: 8,
            allow_unsafe: false,
            sites: StaticSites::new(),
            kernel_symbols: BTreeMap::new(),
            nodes: Vec::new(),
            cgroups: BTreeMap::new(),
            atomic_time: 37_000_000_000,
        }
    }
}

/// Replaces parameters in a script by their values; gives the messages for attach points whose
/// parameters are no numbers.
pub(super) fn put(script: &mut Script, parameters: &Parameters) -> Vec<Diagnostic> {
    let mut messages = Vec::new();
    for item in &mut script.items {
        let Item::Probe(probe) = item else { continue };
        for point in &mut probe.points {
            if let AttachTarget::Period(_, number) | AttachTarget::Event(_, Some(number)) = &mut point.place
                && let Number::Positional(index) = number
            {
                let text = parameters.positional(*index);
                let value = text.and_then(|text| number::value(text).ok()).filter(|value| *value > 0);
                if value.is_none() {
                    let found =
                        text.map_or("it is missing".to_string(), |text| format!("it is {}", quote(text)));
                    messages.push(
                        Diagnostic::error(point.at.0, format!("`${index}` is no number of an attach point"))
                            .label(found)
                            .help("give a number above 0 behind the script"),
                    );
                }
                *number = Number::Literal(value.unwrap_or(1));
            }
        }
        let mut see = |expr: &mut Expr| parameters.replace(expr);
        probe.predicate.iter_mut().for_each(|predicate| walk::change_expr(predicate, &mut see));
        walk::change(&mut probe.action, &mut see);
    }
    messages
}

impl Parameters {
    fn positional(&self, index: u32) -> Option<&str> {
        let index = usize::try_from(index).ok()?.checked_sub(1)?;
        self.positional.get(index).map(String::as_str)
    }

    /// Inner expressions come first, so `str($1)` has a literal in it already.
    fn replace(&self, expr: &mut Expr) {
        let at = expr.at;
        match &expr.kind {
            &ExprKind::Positional(index) => {
                expr.kind = literal(self.positional(index).unwrap_or("0"), at);
                // What `str` asks for is the text.
                expr.ty = Type::Named(crate::types::Tag::Enum, format!("${index}").into());
            }
            ExprKind::PositionalCount => expr.kind = ExprKind::Integer(self.positional.len() as u64),
            ExprKind::Call(name, arguments) if name == "str" => {
                let part = arguments.first().and_then(part_of);
                if let (Some((index, skipped)), ExprKind::Call(_, arguments)) = (part, &mut expr.kind)
                    && let Some(first) = arguments.first_mut()
                {
                    let text = self.positional(index).unwrap_or("").as_bytes();
                    *first = Expr::new(first.at, ExprKind::Text(text.get(skipped..).unwrap_or(&[]).to_vec()));
                }
            }
            ExprKind::Call(name, arguments) if name == "getopt" => {
                if let Some(value) = self.option(arguments) {
                    expr.kind = value;
                }
            }
            _ => {}
        }
    }

    /// The value of `getopt(name, default, description)`.
    fn option(&self, arguments: &[Expr]) -> Option<ExprKind> {
        let ExprKind::Text(name) = &arguments.first()?.kind else { return None };
        let given = self.named.get(&*String::from_utf8_lossy(name));
        let default = arguments.get(1).filter(|default| !matches!(default.kind, ExprKind::Bool(_)));
        Some(match (given, default) {
            (None, None) => arguments.get(1).map_or(ExprKind::Bool(false), |default| default.kind.clone()),
            (None, Some(default)) => default.kind.clone(),
            (Some(None), None) => ExprKind::Bool(true),
            (Some(Some(text)), None) => ExprKind::Bool(!matches!(text.as_str(), "false" | "0")),
            // An integer stays one: what is no number is 0, as in C.
            (Some(text), Some(default)) if constant::integer(default).is_some() => {
                match literal(text.as_deref().unwrap_or("1"), default.at) {
                    ExprKind::Text(_) => ExprKind::Integer(0),
                    number => number,
                }
            }
            (Some(text), Some(_)) => ExprKind::Text(text.clone().unwrap_or_default().into_bytes()),
        })
    }
}

/// The number of the parameter that a literal was.
fn positional_of(expr: &Expr) -> Option<u32> {
    let Type::Named(_, name) = &expr.ty else { return None };
    name.strip_prefix('$')?.parse().ok()
}

/// The number of the parameter that `str` is called with, and the bytes that are skipped: those of
/// `str($1 + 2)` are behind the first two.
fn part_of(expr: &Expr) -> Option<(u32, usize)> {
    if let ExprKind::Binary(Binary::Add, left, right) = &expr.kind {
        let skipped = constant::integer(right).and_then(|count| usize::try_from(count).ok());
        return positional_of(left).zip(skipped);
    }
    Some((positional_of(expr)?, 0))
}

/// A text as a number, if it is one.
fn literal(text: &str, at: At) -> ExprKind {
    let (minus, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    match number::value(digits) {
        Ok(value) if minus && value <= 1 << 63 => {
            ExprKind::Unary(Unary::Minus, Box::new(Expr::new(at, ExprKind::Integer(value))))
        }
        Ok(value) if !minus => ExprKind::Integer(value),
        _ => ExprKind::Text(text.as_bytes().to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_a_number_if_it_reads_as_one() {
        assert_eq!(literal("0x10", At::default()), ExprKind::Integer(16));
        assert!(matches!(literal("-3", At::default()), ExprKind::Unary(Unary::Minus, _)));
        assert_eq!(literal("-x", At::default()), ExprKind::Text(b"-x".to_vec()));
        assert_eq!(literal("", At::default()), ExprKind::Text(Vec::new()));
    }
}
