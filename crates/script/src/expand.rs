//! Replaces the uses of macros by their bodies.
//!
//! A macro sees the variables and maps that it is given, and no others: scratch variables that a
//! body creates have the number of the use, so they are different from all others.

use std::collections::BTreeMap;

use source::{Diagnostic, Messages, Span, quote};

use crate::ast::{
    At, Block, Expr, ExprKind, Item, Local, MAX_HEIGHT, Macro, Parameter, Probe, Script, Statement,
    StatementKind,
};
use crate::library;

/// The maximum number of nodes that a script may become.
const MAX_NODES: usize = 200_000;
/// The maximum depth of macros that use macros.
const MAX_MACROS: usize = 32;

/// The script without macros.
pub(crate) fn expand(script: Script, messages: &mut Messages) -> Script {
    let mut macros: BTreeMap<String, Macro> = BTreeMap::new();
    let mut rest = Vec::new();
    for item in script.items {
        let Item::Macro(found) = item else {
            rest.push(item);
            continue;
        };
        if library::find(&found.name).is_some() {
            let message = format!("{} is a function of the library", quote(&found.name));
            messages.add(
                Diagnostic::error(found.at.0, message).label("this name is taken").help("use another name"),
            );
        } else if let Some(first) = macros.get(&found.name) {
            let message = format!("macro {} is defined again", quote(&found.name));
            messages.add(
                Diagnostic::error(found.at.0, message)
                    .label("second definition")
                    .related(first.at.0, "first defined here"),
            );
        } else {
            macros.insert(found.name.clone(), found);
        }
    }
    let usage = first_usage(&rest);
    let mut expander = Expander { macros: &macros, messages, nodes: 0, depth: 0, usage };
    let items = rest.into_iter().map(|item| match item {
        Item::Probe(probe) => Item::Probe(expander.probe(probe)),
        other => other,
    });
    Script { items: items.collect() }
}

/// The first number whose variables cannot have the name of another one when they are printed.
fn first_usage(items: &[Item]) -> u32 {
    fn names(block: &Block, largest: &mut u32) {
        for statement in &block.statements {
            let mut all = Vec::new();
            match &statement.kind {
                StatementKind::Let { name, .. } => all.push(name),
                StatementKind::Assign { target: Expr { kind: ExprKind::Local(name), .. }, .. } => {
                    all.push(name)
                }
                StatementKind::If { arms, otherwise } => {
                    arms.iter()
                        .map(|(_, block)| block)
                        .chain(otherwise)
                        .for_each(|block| names(block, largest));
                }
                StatementKind::While(_, body)
                | StatementKind::Unroll(_, body)
                | StatementKind::Block(body) => {
                    names(body, largest);
                }
                StatementKind::ForMap { entry: name, body, .. }
                | StatementKind::ForRange { index: name, body, .. } => {
                    all.push(name);
                    names(body, largest);
                }
                _ => {}
            }
            let numbers = all.iter().filter_map(|local| local.name.rsplit_once("__")?.1.parse::<u32>().ok());
            *largest = numbers.fold(*largest, u32::max);
        }
    }
    let mut largest = 0;
    for item in items {
        if let Item::Probe(probe) = item {
            names(&probe.action, &mut largest);
        }
    }
    largest.saturating_add(1)
}

/// What the names in a body mean.
#[derive(Clone, Copy)]
struct Scope<'s> {
    /// The number of the use; 0 outside of macros.
    usage: u32,
    given: Option<&'s Given<'s>>,
}

/// What a macro was given.
struct Given<'s> {
    name: &'s str,
    locals: BTreeMap<&'s str, Local>,
    maps: BTreeMap<&'s str, String>,
    /// Expressions as they are written where the macro is used, in the scope there.
    values: BTreeMap<&'s str, &'s Expr>,
    outer: Scope<'s>,
    depth: usize,
}

struct Expander<'a> {
    macros: &'a BTreeMap<String, Macro>,
    messages: &'a mut Messages,
    nodes: usize,
    depth: u16,
    usage: u32,
}

/// A value about which nothing is known, in place of one that is wrong.
fn unknown(at: At) -> Expr {
    Expr::new(at, ExprKind::Positional(1))
}

impl Expander<'_> {
    fn probe(&mut self, probe: Probe) -> Probe {
        let outside = Scope { usage: 0, given: None };
        let predicate = probe.predicate.as_ref().map(|predicate| self.expr(predicate, outside));
        let action = self.block(&probe.action, outside);
        Probe { predicate, action, ..probe }
    }

    fn fail(&mut self, message: Diagnostic, at: At) -> Expr {
        self.messages.add(message);
        unknown(at)
    }

    /// Whether a node may be added; says once that the script becomes too large.
    fn enter(&mut self, span: Span) -> bool {
        if self.depth >= MAX_HEIGHT {
            if self.nodes < MAX_NODES {
                self.nodes = MAX_NODES;
                self.messages.add(
                    Diagnostic::error(span, "the uses of macros are nested too deep")
                        .label("one level too many"),
                );
            }
            return false;
        }
        if self.nodes < MAX_NODES {
            self.nodes += 1;
            if self.nodes == MAX_NODES {
                self.messages.add(
                    Diagnostic::error(span, "the script becomes too large when its macros are replaced")
                        .label("not replaced from here on"),
                );
            }
        }
        self.nodes < MAX_NODES
    }

    fn boxed(&mut self, expr: &Expr, scope: Scope<'_>) -> Box<Expr> {
        Box::new(self.expr(expr, scope))
    }

    fn all(&mut self, all: &[Expr], scope: Scope<'_>) -> Vec<Expr> {
        all.iter().map(|each| self.expr(each, scope)).collect()
    }

    fn expr(&mut self, expr: &Expr, scope: Scope<'_>) -> Expr {
        if !self.enter(expr.span()) {
            return unknown(expr.at);
        }
        self.depth += 1;
        let result = self.expr_inside(expr, scope);
        self.depth -= 1;
        result
    }

    fn expr_inside(&mut self, expr: &Expr, scope: Scope<'_>) -> Expr {
        let kind = match &expr.kind {
            ExprKind::Name(name) => {
                if let Some(given) = scope.given
                    && let Some(value) = given.values.get(name.as_str())
                {
                    return self.expr(value, given.outer);
                }
                match self.macros.get(name) {
                    Some(found) => return self.usage_of(found, &[], expr.at, scope),
                    None => ExprKind::Name(name.clone()),
                }
            }
            ExprKind::Call(name, arguments) => match self.macros.get(name) {
                Some(found) => return self.usage_of(found, arguments, expr.at, scope),
                None => ExprKind::Call(name.clone(), self.all(arguments, scope)),
            },
            ExprKind::Local(name) => ExprKind::Local(self.local(name, scope)),
            ExprKind::Map(name, key) => match self.map(name, expr.at, scope) {
                Some(name) => ExprKind::Map(name, key.as_ref().map(|key| self.boxed(key, scope))),
                None => return unknown(expr.at),
            },
            ExprKind::Unary(operator, value) => ExprKind::Unary(*operator, self.boxed(value, scope)),
            ExprKind::Step { before, up, target } => {
                ExprKind::Step { before: *before, up: *up, target: self.boxed(target, scope) }
            }
            ExprKind::Binary(operator, left, right) => {
                ExprKind::Binary(*operator, self.boxed(left, scope), self.boxed(right, scope))
            }
            ExprKind::Ternary(test, yes, no) => {
                ExprKind::Ternary(self.boxed(test, scope), self.boxed(yes, scope), self.boxed(no, scope))
            }
            ExprKind::Field(value, name) => ExprKind::Field(self.boxed(value, scope), name.clone()),
            ExprKind::Member(value, index) => ExprKind::Member(self.boxed(value, scope), *index),
            ExprKind::Index(value, index) => {
                ExprKind::Index(self.boxed(value, scope), self.boxed(index, scope))
            }
            ExprKind::Cast(ty, value) => ExprKind::Cast(ty.clone(), self.boxed(value, scope)),
            ExprKind::SizeOf(value) => ExprKind::SizeOf(self.boxed(value, scope)),
            ExprKind::OffsetOf(value, fields) => ExprKind::OffsetOf(self.boxed(value, scope), fields.clone()),
            ExprKind::Tuple(members) => ExprKind::Tuple(self.all(members, scope)),
            ExprKind::Block(block) => ExprKind::Block(self.block(block, scope)),
            other @ (ExprKind::Integer(_)
            | ExprKind::Text(_)
            | ExprKind::Bool(_)
            | ExprKind::Positional(_)
            | ExprKind::PositionalCount
            | ExprKind::SizeOfType(_)
            | ExprKind::OffsetOfType(..)) => other.clone(),
        };
        Expr::new(expr.at, kind)
    }

    fn local(&self, name: &Local, scope: Scope<'_>) -> Local {
        let given = scope.given.and_then(|given| given.locals.get(name.name.as_str()));
        given.cloned().unwrap_or_else(|| Local { name: name.name.clone(), usage: scope.usage })
    }

    /// The map that a name means; `None` after a message.
    fn map(&mut self, name: &str, at: At, scope: Scope<'_>) -> Option<String> {
        let Some(given) = scope.given else { return Some(name.to_string()) };
        if let Some(found) = given.maps.get(name) {
            return Some(found.clone());
        }
        let message = format!(
            "macro {} uses {}, which it was not given",
            quote(given.name),
            quote(&format!("@{name}"))
        );
        self.messages.add(
            Diagnostic::error(at.0, message)
                .label("not a parameter")
                .help(format!("add `@{name}` to the macro's parameters")),
        );
        None
    }

    /// The body of a macro in place of a use.
    fn usage_of(&mut self, found: &Macro, arguments: &[Expr], at: At, outer: Scope<'_>) -> Expr {
        let depth = outer.given.map_or(0, |given| given.depth) + 1;
        let mut around = outer.given;
        while let Some(given) = around {
            if given.name == found.name {
                let message = format!("macro {} uses itself", quote(&found.name));
                return self.fail(Diagnostic::error(at.0, message).label("used here"), at);
            }
            around = given.outer.given;
        }
        if depth > MAX_MACROS {
            return self
                .fail(Diagnostic::error(at.0, "macros use macros too deep").label("one too many"), at);
        }
        if arguments.len() != found.parameters.len() {
            let message = format!(
                "macro {} takes {}, not {}",
                quote(&found.name),
                library::arguments(found.parameters.len()),
                arguments.len()
            );
            return self.fail(
                Diagnostic::error(at.0, message).label("used here").related(found.at.0, "defined here"),
                at,
            );
        }
        self.usage = self.usage.saturating_add(1);
        let mut given = Given {
            name: &found.name,
            locals: BTreeMap::new(),
            maps: BTreeMap::new(),
            values: BTreeMap::new(),
            outer,
            depth,
        };
        for (parameter, argument) in found.parameters.iter().zip(arguments) {
            // An argument may be a parameter of the macro around this one.
            let argument_is = match (&argument.kind, outer.given) {
                (ExprKind::Name(name), Some(around)) => {
                    around.values.get(name.as_str()).map_or(argument, |it| it)
                }
                _ => argument,
            };
            match (parameter, &argument_is.kind) {
                (Parameter::Local(name), ExprKind::Local(local)) => {
                    given.locals.insert(name, self.local(local, outer));
                }
                (Parameter::Map(name), ExprKind::Map(map, None)) => match self.map(map, argument.at, outer) {
                    Some(map) => {
                        given.maps.insert(name, map);
                    }
                    None => return unknown(at),
                },
                (Parameter::Expression(name), _) => {
                    given.values.insert(name, argument);
                }
                (Parameter::Local(_) | Parameter::Map(_), _) => {
                    let expected = match parameter {
                        Parameter::Local(_) => "a scratch variable",
                        _ => "a map without a key",
                    };
                    let message = format!("macro {} needs {expected} here", quote(&found.name));
                    return self.fail(
                        Diagnostic::error(argument.span(), message)
                            .label(format!("expected {expected}"))
                            .related(found.at.0, "defined here"),
                        at,
                    );
                }
            }
        }
        let scope = Scope { usage: self.usage, given: Some(&given) };
        let body = self.block(&found.body, scope);
        match body {
            Block { statements, value: Some(value) } if statements.is_empty() => *value,
            body => Expr::new(at, ExprKind::Block(body)),
        }
    }

    fn block(&mut self, block: &Block, scope: Scope<'_>) -> Block {
        let mut statements = Vec::new();
        for statement in &block.statements {
            if !self.enter(statement.at.0) {
                break;
            }
            self.depth += 1;
            statements.push(Statement {
                at: statement.at,
                kind: self.statement(&statement.kind, statement.at, scope),
            });
            self.depth -= 1;
        }
        Block { statements, value: block.value.as_ref().map(|value| self.boxed(value, scope)) }
    }

    fn statement(&mut self, kind: &StatementKind, at: At, scope: Scope<'_>) -> StatementKind {
        let optional = |expander: &mut Self, value: &Option<Expr>| {
            value.as_ref().map(|value| expander.expr(value, scope))
        };
        match kind {
            StatementKind::Expr(value) => match self.expr(value, scope) {
                Expr { kind: ExprKind::Block(block), .. } if block.value.is_none() => {
                    StatementKind::Block(block)
                }
                value => StatementKind::Expr(value),
            },
            StatementKind::Discard(value) => StatementKind::Discard(self.expr(value, scope)),
            StatementKind::Let { name, declared, value } => StatementKind::Let {
                value: optional(self, value),
                name: self.local(name, scope),
                declared: declared.clone(),
            },
            StatementKind::Assign { target, operator, value } => StatementKind::Assign {
                target: self.expr(target, scope),
                operator: *operator,
                value: self.expr(value, scope),
            },
            StatementKind::If { arms, otherwise } => StatementKind::If {
                arms: arms
                    .iter()
                    .map(|(test, block)| (self.expr(test, scope), self.block(block, scope)))
                    .collect(),
                otherwise: otherwise.as_ref().map(|block| self.block(block, scope)),
            },
            StatementKind::While(test, body) => {
                StatementKind::While(self.expr(test, scope), self.block(body, scope))
            }
            StatementKind::Unroll(count, body) => {
                StatementKind::Unroll(self.expr(count, scope), self.block(body, scope))
            }
            StatementKind::ForMap { entry, map, body } => match self.map(map, at, scope) {
                Some(map) => {
                    let (entry, body) = (self.local(entry, scope), self.block(body, scope));
                    StatementKind::ForMap { entry, map, body }
                }
                None => StatementKind::Discard(unknown(at)),
            },
            StatementKind::ForRange { index, from, to, body } => StatementKind::ForRange {
                index: self.local(index, scope),
                from: self.expr(from, scope),
                to: self.expr(to, scope),
                body: self.block(body, scope),
            },
            StatementKind::Break => StatementKind::Break,
            StatementKind::Continue => StatementKind::Continue,
            StatementKind::Return(value) => StatementKind::Return(optional(self, value)),
            StatementKind::Block(block) => StatementKind::Block(self.block(block, scope)),
        }
    }
}
