//! Goes through all expressions of a tree.

use source::Span;

use crate::ast::{Block, Expr, ExprKind, Probe, Statement, StatementKind};
use crate::library::{self, Needs};
use crate::types::Type;

/// Calls a function with the expressions that an expression consists of.
pub(crate) fn visit_parts<'e>(expr: &'e Expr, see: &mut dyn FnMut(&'e Expr)) {
    match &expr.kind {
        ExprKind::Integer(_)
        | ExprKind::Text(_)
        | ExprKind::Bool(_)
        | ExprKind::Name(_)
        | ExprKind::Local(_)
        | ExprKind::Positional(_)
        | ExprKind::PositionalCount
        | ExprKind::SizeOfType(_)
        | ExprKind::OffsetOfType(..) => {}
        ExprKind::Map(_, key) => key.iter().for_each(|key| see(key)),
        ExprKind::Call(_, all) | ExprKind::Tuple(all) => all.iter().for_each(see),
        ExprKind::Unary(_, value)
        | ExprKind::Step { target: value, .. }
        | ExprKind::Field(value, _)
        | ExprKind::Member(value, _)
        | ExprKind::Cast(_, value)
        | ExprKind::SizeOf(value)
        | ExprKind::OffsetOf(value, _) => see(value),
        ExprKind::Binary(_, left, right) | ExprKind::Index(left, right) => {
            see(left);
            see(right);
        }
        ExprKind::Ternary(test, yes, no) => [test, yes, no].into_iter().for_each(|each| see(each)),
        ExprKind::Block(block) => of_block(block, see),
    }
}

/// Calls a function with the outermost expressions of a block.
pub(crate) fn of_block<'e>(block: &'e Block, see: &mut dyn FnMut(&'e Expr)) {
    block.statements.iter().for_each(|statement| of_statement(statement, see));
    block.value.iter().for_each(|value| see(value));
}

/// Calls a function with the outermost expressions of a statement.
pub(crate) fn of_statement<'e>(statement: &'e Statement, see: &mut dyn FnMut(&'e Expr)) {
    match &statement.kind {
        StatementKind::Expr(value) | StatementKind::Discard(value) => see(value),
        StatementKind::Let { value, .. } | StatementKind::Return(value) => value.iter().for_each(see),
        StatementKind::Assign { target, value, .. } => {
            see(target);
            see(value);
        }
        StatementKind::If { arms, otherwise } => {
            for (test, block) in arms {
                see(test);
                of_block(block, see);
            }
            otherwise.iter().for_each(|block| of_block(block, see));
        }
        StatementKind::While(test, body) | StatementKind::Unroll(test, body) => {
            see(test);
            of_block(body, see);
        }
        StatementKind::ForMap { body, .. } | StatementKind::Block(body) => of_block(body, see),
        StatementKind::ForRange { from, to, body, .. } => {
            see(from);
            see(to);
            of_block(body, see);
        }
        StatementKind::Break | StatementKind::Continue => {}
    }
}

/// Whether a block, or one in it, declares a variable of a type with a property.
pub(crate) fn declares(block: &Block, is: &dyn Fn(&Type) -> bool) -> bool {
    block.statements.iter().any(|statement| match &statement.kind {
        StatementKind::Let { declared: Some(ty), .. } => is(ty),
        StatementKind::If { arms, otherwise } => {
            arms.iter().any(|(_, block)| declares(block, is))
                || otherwise.iter().any(|block| declares(block, is))
        }
        StatementKind::While(_, body)
        | StatementKind::Unroll(_, body)
        | StatementKind::ForMap { body, .. }
        | StatementKind::ForRange { body, .. }
        | StatementKind::Block(body) => declares(body, is),
        _ => false,
    })
}

/// Whether an expression or one in it has a property.
pub(crate) fn any(expr: &Expr, is: &dyn Fn(&Expr) -> bool) -> bool {
    let mut found = is(expr);
    if !found {
        visit_parts(expr, &mut |part| found = found || any(part, is));
    }
    found
}

/// Where the first expression of a probe is that has a property.
pub(crate) fn find(probe: &Probe, is: &dyn Fn(&Expr) -> bool) -> Option<Span> {
    fn within(expr: &Expr, is: &dyn Fn(&Expr) -> bool, found: &mut Option<Span>) {
        if found.is_none() && is(expr) {
            *found = Some(expr.at.0);
        }
        visit_parts(expr, &mut |part| within(part, is, found));
    }
    let mut found = None;
    probe.predicate.iter().for_each(|predicate| within(predicate, is, &mut found));
    of_block(&probe.action, &mut |expr| within(expr, is, &mut found));
    found
}

/// Whether an expression changes nothing, so that it may be evaluated at another time.
pub(crate) fn is_pure(expr: &Expr) -> bool {
    !any(expr, &|expr| match &expr.kind {
        ExprKind::Step { .. } | ExprKind::Block(_) => true,
        ExprKind::Call(name, _) => {
            let changes = matches!(name.as_str(), "delete" | "find") || expr.ty == Type::Void;
            changes || library::find(name).is_none_or(|entry| entry.needs == Needs::Unsafe)
        }
        _ => false,
    })
}

/// Calls a function with each expression of a block, inner ones first; it may change them.
pub(crate) fn change(block: &mut Block, see: &mut dyn FnMut(&mut Expr)) {
    for statement in &mut block.statements {
        match &mut statement.kind {
            StatementKind::Expr(value) | StatementKind::Discard(value) => change_expr(value, see),
            StatementKind::Let { value, .. } | StatementKind::Return(value) => {
                value.iter_mut().for_each(|value| change_expr(value, see));
            }
            StatementKind::Assign { target, value, .. } => {
                change_expr(target, see);
                change_expr(value, see);
            }
            StatementKind::If { arms, otherwise } => {
                for (test, block) in arms {
                    change_expr(test, see);
                    change(block, see);
                }
                otherwise.iter_mut().for_each(|block| change(block, see));
            }
            StatementKind::While(test, body) | StatementKind::Unroll(test, body) => {
                change_expr(test, see);
                change(body, see);
            }
            StatementKind::ForMap { body, .. } | StatementKind::Block(body) => change(body, see),
            StatementKind::ForRange { from, to, body, .. } => {
                change_expr(from, see);
                change_expr(to, see);
                change(body, see);
            }
            StatementKind::Break | StatementKind::Continue => {}
        }
    }
    block.value.iter_mut().for_each(|value| change_expr(value, see));
}

/// The same for the expressions of an expression and itself.
pub(crate) fn change_expr(expr: &mut Expr, see: &mut dyn FnMut(&mut Expr)) {
    match &mut expr.kind {
        ExprKind::Integer(_)
        | ExprKind::Text(_)
        | ExprKind::Bool(_)
        | ExprKind::Name(_)
        | ExprKind::Local(_)
        | ExprKind::Positional(_)
        | ExprKind::PositionalCount
        | ExprKind::SizeOfType(_)
        | ExprKind::OffsetOfType(..) => {}
        ExprKind::Map(_, key) => key.iter_mut().for_each(|key| change_expr(key, see)),
        ExprKind::Call(_, all) | ExprKind::Tuple(all) => {
            all.iter_mut().for_each(|each| change_expr(each, see));
        }
        ExprKind::Unary(_, value)
        | ExprKind::Step { target: value, .. }
        | ExprKind::Field(value, _)
        | ExprKind::Member(value, _)
        | ExprKind::Cast(_, value)
        | ExprKind::SizeOf(value)
        | ExprKind::OffsetOf(value, _) => change_expr(value, see),
        ExprKind::Binary(_, left, right) | ExprKind::Index(left, right) => {
            change_expr(left, see);
            change_expr(right, see);
        }
        ExprKind::Ternary(test, yes, no) => {
            [test, yes, no].into_iter().for_each(|each| change_expr(each, see));
        }
        ExprKind::Block(block) => change(block, see),
    }
    see(expr);
}
