//! What is known when a script is checked: `comptime` values, and the branches of `if comptime`.
//!
//! A branch that is not taken is not checked, so it may do what has no meaning in this probe. When
//! types are settled, branches are put in the place of their statement.

use super::records::Records;
use crate::ast::{Block, Expr, ExprKind, Probe, Statement, StatementKind};
use crate::constant;
use crate::provider::Provider;
use crate::types::Type;
use crate::walk;

/// The name by which the tree has `comptime`.
const COMPTIME: &str = "comptime";

/// What a `comptime` expression amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// A condition holds or not; of another value, whether it is not 0.
    Known(bool),
    /// A parameter of the script decides it, which is known when it is compiled.
    Later,
    /// The types of its parts are not known, or not yet.
    Untyped,
    /// It depends on what happens when the probe fires.
    Never,
}

/// What is known in a probe.
#[derive(Debug)]
pub(super) struct Known<'a> {
    pub(super) records: &'a Records,
    pub(super) providers: &'a [Provider],
}

/// The expression behind `comptime`, if an expression is one.
pub(super) fn within(expr: &Expr) -> Option<&Expr> {
    match &expr.kind {
        ExprKind::Call(name, arguments) if name == COMPTIME => arguments.first(),
        _ => None,
    }
}

impl Known<'_> {
    /// What the condition of an `if` amounts to; `None` if it is decided when the probe fires.
    pub(super) fn condition(&self, test: &Expr) -> Option<Settled> {
        within(test).map(|value| self.settled(value))
    }

    /// What an expression amounts to.
    pub(super) fn settled(&self, expr: &Expr) -> Settled {
        let is_parameter = |expr: &Expr| match &expr.kind {
            ExprKind::Positional(_) | ExprKind::PositionalCount => true,
            ExprKind::Call(name, _) => name == "getopt",
            _ => false,
        };
        if walk::any(expr, &is_parameter) {
            return Settled::Later;
        }
        let value = self.reduced(expr);
        match (constant::known(&value), &value.kind) {
            (Some(known), _) => Settled::Known(known),
            (None, ExprKind::Text(_)) => Settled::Known(true),
            _ if walk::any(&value, &|part| part.ty == Type::Unknown) => Settled::Untyped,
            _ => Settled::Never,
        }
    }

    /// An expression with literals in the place of what the probe and the types tell.
    fn reduced(&self, expr: &Expr) -> Expr {
        let mut reduced = expr.clone();
        walk::change_expr(&mut reduced, &mut |part| {
            let known = match &part.kind {
                ExprKind::Name(name) if name == "probetype" => self.provider(),
                ExprKind::SizeOf(value) => self.records.size(&value.ty).map(ExprKind::Integer),
                ExprKind::SizeOfType(ty) => self.records.size(ty).map(ExprKind::Integer),
                ExprKind::Call(name, arguments) if name == COMPTIME => {
                    arguments.first().map(|value| value.kind.clone())
                }
                _ => None,
            };
            if let Some(known) = known {
                part.kind = known;
            }
        });
        reduced
    }

    /// The name of the probe's provider, if all of its points have the same one.
    fn provider(&self) -> Option<ExprKind> {
        let name = |provider: &Provider| match provider {
            Provider::Begin | Provider::End | Provider::Own => "special",
            provider => provider.name(),
        };
        let mut names = self.providers.iter().map(name);
        let first = names.next()?;
        names.all(|other| other == first).then(|| ExprKind::Text(first.as_bytes().to_vec()))
    }

    /// Leaves only the branches of a probe that are taken, and the values of `comptime`.
    pub(super) fn reduce(&self, probe: &mut Probe) {
        // A branch is chosen while its condition still says that it is `comptime`.
        let mut choose = |expr: &mut Expr| {
            if let ExprKind::Block(block) = &mut expr.kind {
                self.branches(block);
            }
        };
        probe.predicate.iter_mut().for_each(|predicate| walk::change_expr(predicate, &mut choose));
        self.branches(&mut probe.action);
        walk::change(&mut probe.action, &mut choose);
        let mut settle = |expr: &mut Expr| {
            let value = within(expr).filter(|value| matches!(self.settled(value), Settled::Known(_)));
            if let Some(value) = value.map(|value| self.reduced(value)) {
                expr.kind = value.kind;
            }
        };
        probe.predicate.iter_mut().for_each(|predicate| walk::change_expr(predicate, &mut settle));
        walk::change(&mut probe.action, &mut settle);
    }

    /// Leaves the branches of a block, and of those in it, that are taken.
    fn branches(&self, block: &mut Block) {
        for statement in &mut block.statements {
            if let StatementKind::If { arms, otherwise } = &mut statement.kind
                && arms.iter().any(|(test, _)| within(test).is_some())
            {
                let mut kept = Vec::new();
                for (test, block) in std::mem::take(arms) {
                    match self.condition(&test) {
                        Some(Settled::Known(false)) => {}
                        Some(Settled::Known(true)) => {
                            *otherwise = Some(block);
                            break;
                        }
                        _ => kept.push((test, block)),
                    }
                }
                statement.kind = match kept.is_empty() {
                    true => StatementKind::Block(otherwise.take().unwrap_or_default()),
                    false => StatementKind::If { arms: kept, otherwise: otherwise.take() },
                };
            }
            self.inner(statement);
        }
    }

    fn inner(&self, statement: &mut Statement) {
        match &mut statement.kind {
            StatementKind::If { arms, otherwise } => {
                arms.iter_mut().map(|(_, block)| block).chain(otherwise).for_each(|it| self.branches(it));
            }
            StatementKind::While(_, body)
            | StatementKind::Unroll(_, body)
            | StatementKind::ForMap { body, .. }
            | StatementKind::ForRange { body, .. }
            | StatementKind::Block(body) => self.branches(body),
            _ => {}
        }
    }
}
