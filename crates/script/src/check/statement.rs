//! Checks statements.

use source::Diagnostic;

use super::checker::Checker;
use super::comptime::{Known, Settled};
use super::programs::is_unknown_name;
use super::unify::{calculated, is_only_printed};
use crate::ast::{Block, Expr, ExprKind, Local, Statement, StatementKind};
use crate::constant::{self, stated};
use crate::library::{self, Usage};
use crate::operator::Binary;
use crate::parse::{is_of_memory, is_of_thread};
use crate::types::Type;

/// The maximum number of times that a block is unrolled.
const MAX_UNROLL: i128 = 1000;

impl Checker<'_> {
    /// The statements of a block, in the scope that is open; gives the type of its value.
    pub(crate) fn statements(&mut self, block: &mut Block) -> Type {
        for statement in &mut block.statements {
            self.statement(statement);
        }
        match &mut block.value {
            Some(value) => self.expr(value),
            None => Type::Void,
        }
    }

    /// A block with a scope of its own.
    pub(crate) fn block(&mut self, block: &mut Block) -> Type {
        self.locals.open();
        let ty = self.statements(block);
        self.locals.close();
        ty
    }

    fn conditional(&mut self, block: &mut Block) {
        self.conditions += 1;
        self.block(block);
        self.conditions -= 1;
    }

    fn body(&mut self, block: &mut Block) {
        self.loops += 1;
        self.conditional(block);
        self.loops -= 1;
    }

    fn statement(&mut self, statement: &mut Statement) {
        let span = statement.at.0;
        match &mut statement.kind {
            StatementKind::Expr(value) => {
                let ty = self.expr(value);
                if is_discarded(value, &ty) {
                    self.report(
                        Diagnostic::warning(value.span(), "the value is not used")
                            .label("computed and dropped")
                            .help("if that is meant, write `_ = ...`"),
                    );
                }
            }
            StatementKind::Discard(value) => {
                self.expr(value);
            }
            StatementKind::Let { name, declared, value } => {
                let ty = value.as_mut().map(|value| self.value(value));
                if let Some(message) = self.locals.declared_again(name, span) {
                    self.report(message);
                }
                if let Some(declared) = declared {
                    self.resolve(declared, span);
                }
                // What a name that is refused would have meant is not known.
                let known = declared.as_ref().filter(|declared| !is_unknown_name(declared));
                let index = self.locals.declare(name, known, span);
                if let (Some(ty), Some(value)) = (ty, value) {
                    let result = self.locals.assign(index, &ty, stated(value), value.span());
                    if let Some(ty) = self.keep(result) {
                        value.ty = ty;
                    }
                }
            }
            StatementKind::Assign { target, operator, value } => self.assignment(target, *operator, value),
            StatementKind::If { arms, otherwise } => {
                let blocks = arms.iter_mut().map(|(test, block)| (Some(test), block));
                for (test, block) in blocks.chain(otherwise.iter_mut().map(|block| (None, block))) {
                    match test.and_then(|test| self.branch(test)) {
                        None | Some(Settled::Later) => self.conditional(block),
                        Some(Settled::Known(true)) => {
                            self.block(block);
                            break;
                        }
                        Some(Settled::Known(false) | Settled::Untyped | Settled::Never) => {}
                    }
                }
            }
            StatementKind::While(test, body) => {
                self.condition(test);
                self.body(body);
            }
            StatementKind::Unroll(count, body) => {
                let ty = self.value(count);
                match constant::integer(count) {
                    Some(times) if (1..=MAX_UNROLL).contains(&times) => {}
                    None if matches!(count.kind, ExprKind::Positional(_)) => {}
                    found => {
                        let label = match found {
                            Some(_) => format!("expected a number from 1 to {MAX_UNROLL}"),
                            None if ty == Type::Unknown => "expected a number".into(),
                            None => "expected a number that is known when the script is checked".into(),
                        };
                        self.error(count.span(), "a block cannot be unrolled this often", label);
                    }
                }
                self.conditional(body);
            }
            StatementKind::ForMap { entry, map, body } => {
                let value = self.maps.value(map, span);
                let value = self.keep(value).unwrap_or_default();
                if self.maps.is_scalar(map) {
                    let message = format!("map `@{map}` has no keys to go over");
                    self.error(span, message, "expected a map with keys");
                }
                let key = self.maps.key(map).cloned().unwrap_or_default();
                self.looped(entry, &Type::Tuple([key, value].into()), span, body);
            }
            StatementKind::ForRange { index, from, to, body } => {
                self.integer(from, "a range goes from one integer to another");
                self.integer(to, "a range goes from one integer to another");
                self.looped(index, &Type::I64, span, body);
            }
            StatementKind::Break | StatementKind::Continue => {
                if self.loops == 0 {
                    let word =
                        if matches!(statement.kind, StatementKind::Break) { "break" } else { "continue" };
                    let message = format!("`{word}` is not in a loop");
                    self.report(
                        Diagnostic::error(span, message)
                            .label("expected `for` or `while` around it")
                            .help("`return` ends the action"),
                    );
                }
            }
            StatementKind::Return(value) => {
                if let Some(value) = value {
                    self.value(value);
                    self.report(
                        Diagnostic::warning(value.span(), "the value of a probe is not used")
                            .label("dropped"),
                    );
                }
            }
            StatementKind::Block(block) => {
                self.block(block);
            }
        }
    }

    /// Checks a condition; what it amounts to, if it is one of `if comptime`.
    fn branch(&mut self, test: &mut Expr) -> Option<Settled> {
        self.condition(test);
        self.known().condition(test)
    }

    /// What is known here when the script is checked.
    pub(super) fn known(&self) -> Known<'_> {
        Known { records: self.records, providers: &self.providers }
    }

    /// The body of a `for` loop with its variable.
    fn looped(&mut self, name: &Local, ty: &Type, span: source::Span, body: &mut Block) {
        if let Some(message) = self.locals.declared_again(name, span) {
            self.report(message);
        }
        self.locals.open();
        let index = self.locals.declare(name, None, span);
        let result = self.locals.assign(index, ty, None, span);
        self.keep(result);
        self.body(body);
        self.locals.close();
    }

    fn assignment(&mut self, target: &mut Expr, operator: Option<Binary>, value: &mut Expr) {
        let span = target.span();
        // A function such as `count()` is what the map is set to.
        if let Some(entry) = map_function(value) {
            value.ty = self.call(value);
            match (&mut target.kind, operator) {
                (ExprKind::Map(name, key), None) => {
                    let name = name.clone();
                    self.key_of(&name, key.as_deref_mut(), span);
                    let result = self.maps.assign(&name, &value.ty, None, value.span());
                    target.ty = self.keep(result).unwrap_or_default();
                }
                _ => {
                    let message = format!("`{entry}()` can only be assigned to a map");
                    self.report(
                        Diagnostic::error(value.span(), message)
                            .label("not a value of its own")
                            .help(format!("write `@x = {entry}(...);` or `@x[key] = {entry}(...);`")),
                    );
                }
            }
            return;
        }
        if is_of_thread(target) {
            return self.thread_assignment(target, operator, value);
        }
        if is_of_memory(target) {
            return self.memory_assignment(target, operator, value);
        }
        let mut ty = self.value(value);
        if ty == Type::Unknown
            && operator.is_none()
            && let Some(counted) = counted(target, value)
        {
            ty = counted;
        }
        if let Some(operator) = operator {
            let have = match self.target(target) {
                // A map that is not set yet is 0.
                Type::Unknown if matches!(target.kind, ExprKind::Map(..)) && ty.as_integer().is_some() => {
                    ty.clone()
                }
                have => have,
            };
            ty = self.operation(operator, (&have, target), (&ty, value), span);
        }
        if is_only_printed(&ty) {
            return;
        }
        let stated = if operator.is_none() { stated(value) } else { None };
        target.ty = self.assign(target, &ty, stated, value.span());
    }

    /// Sets a register, an argument or a result.
    fn thread_assignment(&mut self, target: &mut Expr, operator: Option<Binary>, value: &mut Expr) {
        let span = target.span();
        let have = self.value(target);
        let mut ty = self.value(value);
        self.facts.unsafe_functions.insert("assignments to registers");
        if let Some(operator) = operator {
            ty = self.operation(operator, (&have, target), (&ty, value), span);
        }
        if !matches!(ty, Type::Unknown | Type::Pointer(_)) && ty.as_integer().is_none() {
            let message = format!("a value of type `{ty}` does not fit into a register");
            self.error(value.span(), message, "expected an integer or a pointer");
        }
    }

    /// Sets memory of the program.
    fn memory_assignment(&mut self, target: &mut Expr, operator: Option<Binary>, value: &mut Expr) {
        let span = target.span();
        let have = self.value(target);
        let mut ty = self.value(value);
        self.facts.unsafe_functions.insert("assignments to memory");
        if !is_in_program(target) {
            self.report(
                Diagnostic::error(span, "this is a part of a value, and no memory of the program")
                    .label("cannot be set")
                    .help("set the whole variable, or go through a pointer: `*(uint32 *)x = 1`"),
            );
            return;
        }
        if let Some(operator) = operator {
            ty = self.operation(operator, (&have, target), (&ty, value), span);
        }
        let is_word = |ty: &Type| matches!(ty, Type::Unknown | Type::Pointer(_)) || ty.as_integer().is_some();
        if !is_word(&have) {
            let message = format!("memory of type `{have}` cannot be set");
            let message = Diagnostic::error(span, message).label("expected an integer or a pointer");
            self.report(message.help("set its parts: a field, or an element"));
        } else if !is_word(&ty) {
            let message = format!("memory of type `{have}` cannot be set to a value of type `{ty}`");
            self.error(value.span(), message, "expected an integer or a pointer");
        }
    }

    /// Assigns to a variable or a map; gives its type.
    pub(crate) fn assign(
        &mut self,
        target: &mut Expr,
        ty: &Type,
        stated: Option<u64>,
        value: source::Span,
    ) -> Type {
        let span = target.span();
        let result = match &mut target.kind {
            ExprKind::Local(name) => {
                let index = match self.locals.find(name) {
                    Some(index) => index,
                    None => self.locals.declare(name, None, span),
                };
                self.locals.assign(index, ty, stated, value)
            }
            ExprKind::Map(name, key) => {
                let name = name.clone();
                self.key_of(&name, key.as_deref_mut(), span);
                self.maps.assign(&name, &super::unify::stored(ty), stated, value)
            }
            _ => Ok(ty.clone()),
        };
        self.keep(result).unwrap_or_default()
    }

    /// The type of what an operator changes. A map that is not set yet is 0.
    pub(crate) fn target(&mut self, target: &mut Expr) -> Type {
        if let ExprKind::Map(name, key) = &mut target.kind {
            let name = name.clone();
            self.key_of(&name, key.as_deref_mut(), target.at.0);
            return self.maps.value(&name, target.at.0).unwrap_or_default();
        }
        self.value(target)
    }
}

/// The type of `x = x + 1`, of which nothing else tells the type of `x`.
fn counted(target: &Expr, value: &Expr) -> Option<Type> {
    let ExprKind::Binary(operator, left, right) = &value.kind else { return None };
    let other = match (left.kind == target.kind, right.kind == target.kind) {
        (true, false) => right,
        (false, true) => left,
        _ => return None,
    };
    let integer = other.ty.as_integer().filter(|_| !operator.is_test())?;
    Some(calculated(stated(other).is_none().then_some(integer), None))
}

/// Whether an expression is an argument of a function, or in memory: behind a pointer.
fn is_in_program(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Unary(..) => true,
        ExprKind::Field(value, _) | ExprKind::Index(value, _) => {
            matches!(value.ty, Type::Pointer(_) | Type::Unknown) || is_in_program(value)
        }
        ExprKind::Name(_) => true,
        _ => false,
    }
}

/// The name of the function, if an expression is a call of one that a map is set to.
pub(crate) fn map_function(value: &Expr) -> Option<&'static str> {
    let ExprKind::Call(name, _) = &value.kind else { return None };
    library::find(name).filter(|entry| entry.usage == Usage::MapFunction).map(|entry| entry.name)
}

/// Whether an expression as a statement does nothing.
fn is_discarded(value: &Expr, ty: &Type) -> bool {
    match &value.kind {
        _ if *ty == Type::Void => false,
        ExprKind::Step { .. } | ExprKind::Block(_) => false,
        ExprKind::Call(name, _) => {
            library::find(name).is_some() && !matches!(name.as_str(), "delete" | "find")
        }
        ExprKind::Ternary(..) => true,
        // What is wrong has a message of its own.
        ExprKind::Positional(_) => false,
        _ => true,
    }
}
