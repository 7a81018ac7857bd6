//! Names that the probed programs know: types, constants, arguments.

use std::collections::BTreeSet;

use source::{Diagnostic, Span, quote};

use super::records::Records;
use crate::ast::{At, Expr, ExprKind, Item, Probe, Script};
use crate::attach_point::AttachPoint;
use crate::operator::Unary;
use crate::parse::unknown_type;
use crate::program_types::{Probed, Signature};
use crate::provider::Provider;
use crate::specialize::binary;
use crate::types::{Integer, Tag, Type};

/// An attach point for each program of a script.
pub(super) fn binaries(script: &Script) -> Vec<AttachPoint> {
    let mut known = BTreeSet::new();
    let points = script.items.iter().filter_map(|item| match item {
        Item::Probe(probe) => Some(&probe.points),
        _ => None,
    });
    points.flatten().filter(|point| binary(point).is_some_and(|it| known.insert(it))).cloned().collect()
}

/// Where the names of a probe may be from: its own program; for a probe without one, any.
pub(super) fn homes(probe: &Probe, binaries: &[AttachPoint]) -> Vec<AttachPoint> {
    match probe.points.iter().find(|point| binary(point).is_some()) {
        Some(point) => vec![point.clone()],
        None => binaries.to_vec(),
    }
}

/// The names of programs that a probe can use.
pub(crate) struct Names<'c> {
    pub(super) records: &'c Records,
    /// An attach point of each program that they may be from.
    pub(super) homes: &'c [AttachPoint],
    /// The probe's points.
    pub(super) points: &'c [AttachPoint],
    /// What is wrong with what was asked for.
    pub(super) messages: Vec<Diagnostic>,
}

impl Names<'_> {
    /// Puts the types of programs in the place of names that the script does not define.
    pub(super) fn resolve(&mut self, ty: &mut Type, span: Span) {
        match ty {
            Type::Pointer(inner) | Type::Array(inner, _) => {
                let mut known = Type::clone(inner);
                self.resolve(&mut known, span);
                if known != **inner {
                    *inner = known.into();
                }
            }
            Type::Tuple(members) => {
                let mut known = members.to_vec();
                known.iter_mut().for_each(|member| self.resolve(member, span));
                *ty = Type::Tuple(known.into());
            }
            Type::Named(tag, name) if !self.records.knows(*tag, name) => {
                let (tag, name) = (*tag, name.clone());
                match self.named(tag, &name) {
                    Ok(Some(known)) => *ty = known,
                    Ok(None) => self.unknown_name(tag, &name, span),
                    // A pointer to a struct may be used as such.
                    Err(_) if matches!(tag, Tag::Struct | Tag::Union) => {}
                    Err(reason) => {
                        let message = format!("{} is not known: {reason}", quote(&ty.to_string()));
                        self.messages
                            .push(Diagnostic::error(span, message).label("not defined in the script"));
                    }
                }
            }
            _ => {}
        }
    }

    /// The message for a name of a type that nobody knows. It stays, to be told in each pass.
    fn unknown_name(&mut self, tag: Tag, name: &str, span: Span) {
        match tag {
            Tag::Alias => self.messages.push(unknown_type(name, span)),
            Tag::Enum => {
                let message = Diagnostic::error(span, format!("enum {} is not defined", quote(name)));
                self.messages.push(message.label("expected an enum of the script"));
            }
            Tag::Struct | Tag::Union => {
                if let Some(near) = self.records.near(name) {
                    let message = format!("{} {} is not defined", tag.word(), quote(name));
                    let message = Diagnostic::error(span, message).label("not known");
                    self.messages.push(message.suggest(Some(near)));
                }
            }
        }
    }

    /// The type of a name in the programs.
    fn named(&self, tag: Tag, name: &str) -> Result<Option<Type>, String> {
        for home in self.homes {
            if let Some(known) = self.records.programs().named(home, tag, name)? {
                return Ok(Some(known));
            }
        }
        Ok(None)
    }

    /// A name that is a type of a program, as in `sizeof(name)`.
    pub(super) fn type_of(&self, value: &Expr) -> Option<Type> {
        let ExprKind::Name(name) = &value.kind else { return None };
        if self.records.constant(name).is_some() || crate::library::find(name).is_some() {
            return None;
        }
        self.named(Tag::Alias, name).ok().flatten()
    }

    /// Puts a constant of a program in the place of its name; its type.
    pub(super) fn constant(&self, expr: &mut Expr) -> Option<Type> {
        let ExprKind::Name(name) = &expr.kind else { return None };
        for home in self.homes {
            if let Ok(Some((ty, value))) = self.records.programs().constant(home, name) {
                expr.kind = constant(&ty, value, expr.at);
                return Some(ty);
            }
        }
        None
    }

    /// The type of `args`, or of `retval`, if debug information tells it.
    pub(super) fn of_signature(&self, name: &str) -> Option<Type> {
        if !matches!(name, "args" | "retval") {
            return None;
        }
        let signature = Probed::of(self.records.programs(), self.points).signature?;
        let Signature { key, result, .. } = &*signature;
        let has =
            |providers: &[Provider]| self.points.iter().any(|point| providers.contains(&point.provider));
        const NAMED: &[Provider] = &[
            Provider::Uprobe,
            Provider::Fentry,
            Provider::Fexit,
            Provider::Rawtracepoint,
            Provider::Tracepoint,
        ];
        match name {
            "args" if has(NAMED) => Some(Type::Named(Tag::Struct, key.clone())),
            "retval" if has(&[Provider::Uretprobe, Provider::Fexit]) => match &result.as_ref()?.ty {
                // An address of nothing known is a number, as without debug information.
                Type::Pointer(inner) if **inner == Type::Void => None,
                ty => Some(ty.clone()),
            },
            _ => None,
        }
    }

    /// What `uaddr` points to: an integer as large as the symbol.
    pub(super) fn symbol(&self, name: &str) -> Type {
        let symbols = self.points.iter().filter_map(|home| self.records.programs().symbol(home, name).ok());
        match symbols.flatten().next() {
            Some((_, bytes @ (1 | 2 | 4 | 8))) => {
                Type::Integer(Integer { bytes: bytes as u8, signed: false })
            }
            _ => Type::U64,
        }
    }

    /// Whether what the probe's functions take and return is known.
    pub(super) fn knows_function(&self) -> bool {
        Probed::of(self.records.programs(), self.points).signature.is_some()
    }

    /// Whether a record is `args`.
    pub(super) fn is_args(&self, name: &str) -> bool {
        self.of_signature("args") == Some(Type::Named(Tag::Struct, name.into()))
    }
}

/// Whether a type is, or leads to, a name without a keyword that nobody knows.
pub(super) fn is_unknown_name(ty: &Type) -> bool {
    match ty {
        Type::Named(Tag::Alias, _) => true,
        Type::Pointer(inner) | Type::Array(inner, _) => is_unknown_name(inner),
        Type::Tuple(members) => members.iter().any(is_unknown_name),
        _ => false,
    }
}

/// A constant as an expression.
fn constant(ty: &Type, value: i64, at: At) -> ExprKind {
    let number = Expr::new(at, ExprKind::Integer(value.unsigned_abs()));
    let number = match value {
        0.. => number,
        _ => Expr::new(at, ExprKind::Unary(Unary::Minus, Box::new(number))),
    };
    ExprKind::Cast(ty.clone(), Box::new(number))
}
