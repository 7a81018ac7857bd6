//! Compiles statements.

use source::Span;

use crate::ast::{Block, Expr, ExprKind, Local, Statement, StatementKind};
use crate::operator::Binary;
use crate::types::Type;
use vm::Op;

use super::acts::Assignment;
use super::call::Call;
use super::compiler::{Compiler, Loop, Result, Variable};
use super::forms::Form;
use super::refuse;
use crate::walk;

impl Compiler<'_> {
    /// A block with a scope of its own.
    pub(super) fn block(&mut self, block: &Block) {
        let mark = self.open();
        self.statements(block);
        self.close(Some(mark));
    }

    /// The statements of a block in the scope that is open, and its value for its effect.
    pub(super) fn statements(&mut self, block: &Block) {
        self.statements_only(block);
        if let Some(value) = &block.value {
            let mark = self.frame.mark();
            self.asm.note(crate::print::expression(value));
            self.asm.line(value.at.0);
            let done = self.effect(value);
            self.keep(done);
            self.frame.release(mark);
        }
    }

    /// The statements of a block; its value is still to come.
    pub(super) fn statements_only(&mut self, block: &Block) {
        for (index, statement) in block.statements.iter().enumerate() {
            if self.asm.is_full() {
                return;
            }
            self.asm.note(crate::print::head(statement));
            self.asm.line(statement.at.0);
            let rest = &block.statements[index + 1..];
            let done = self.statement(statement, rest, block.value.as_deref());
            self.keep(done);
        }
    }

    fn statement(&mut self, statement: &Statement, rest: &[Statement], last: Option<&Expr>) -> Result<()> {
        let span = statement.at.0;
        match &statement.kind {
            StatementKind::Let { name, declared, value } => {
                let ty = match (declared, value) {
                    (Some(declared), _) => declared.clone(),
                    (None, Some(value)) => value.ty.clone(),
                    (None, None) => used_as(name, rest, last),
                };
                return self.first_value(name, &ty, value.as_ref(), span);
            }
            StatementKind::Assign { target, operator: None, value } => {
                if let ExprKind::Local(name) = &target.kind
                    && self.find(name).is_none()
                {
                    return self.first_value(name, &target.ty, Some(value), span);
                }
            }
            _ => {}
        }
        let mark = self.frame.mark();
        let done = self.other(statement, span);
        self.frame.release(mark);
        done
    }

    /// A variable gets its first value.
    fn first_value(&mut self, name: &Local, ty: &Type, value: Option<&Expr>, span: Span) -> Result<()> {
        // An array's length may follow from the value.
        let ty = match (ty, value) {
            (Type::Array(_, None), Some(value)) => &value.ty,
            _ => ty,
        };
        let variable = self.declare(name, ty, span)?;
        let mark = self.frame.mark();
        let done = match value {
            Some(value) => self.store_value(value, &variable.ty, variable.at),
            None => {
                let count = self.forms.stored(ty).unwrap_or(0) as u64;
                if count == 8 {
                    self.asm.push(0);
                    self.asm.set(variable.at);
                } else {
                    self.asm.clear(variable.at, count);
                }
                Ok(())
            }
        };
        self.frame.release(mark);
        done
    }

    fn other(&mut self, statement: &Statement, span: Span) -> Result<()> {
        match &statement.kind {
            StatementKind::Expr(value) | StatementKind::Discard(value) => self.effect(value),
            StatementKind::Let { .. } => Ok(()),
            StatementKind::Assign { target, operator, value } => self.assign(target, *operator, value),
            StatementKind::If { arms, otherwise } => self.branches(arms, otherwise.as_ref()),
            StatementKind::While(test, body) => self.while_loop(test, body),
            StatementKind::Unroll(count, body) => {
                let times = crate::constant::integer(count).and_then(|count| u64::try_from(count).ok());
                self.repeat(times.unwrap_or(0), body, span)
            }
            StatementKind::ForMap { entry, map, body } => self.for_map(entry, map, body, span),
            StatementKind::ForRange { index, from, to, body } => self.for_range(index, from, to, body, span),
            StatementKind::Break | StatementKind::Continue => {
                if let Some(Loop { next, end }) = self.loops.last().copied() {
                    let is_break = matches!(statement.kind, StatementKind::Break);
                    self.asm.jump(Op::Jmp, if is_break { end } else { next });
                }
                Ok(())
            }
            StatementKind::Return(value) => {
                value.iter().try_for_each(|value| self.effect(value))?;
                self.end_run();
                Ok(())
            }
            StatementKind::Block(block) => {
                self.block(block);
                Ok(())
            }
        }
    }

    /// Evaluates an expression for its effect.
    pub(super) fn effect(&mut self, expr: &Expr) -> Result<()> {
        match &expr.kind {
            ExprKind::Step { before, up, target } => self.step(target, *before, *up, false),
            ExprKind::Block(block) => {
                self.block(block);
                Ok(())
            }
            ExprKind::Ternary(test, yes, no) => self.choose(test, |c| c.effect(yes), |c| c.effect(no)),
            ExprKind::Call(name, arguments) if expr.ty == Type::Void => {
                Call::new(self, name, arguments, expr)?.effect()
            }
            // The value of a map with a function can only be printed.
            ExprKind::Map(_, key) if self.forms.form(&expr.ty).is_none() => {
                key.iter().try_for_each(|key| self.effect(key))
            }
            _ => {
                match self.form(expr)? {
                    Form::Word => {
                        self.word(expr)?;
                        self.asm.drop();
                    }
                    Form::Text => drop(self.text(expr)?),
                    Form::Wide(_) => drop(self.wide(expr)?),
                }
                Ok(())
            }
        }
    }

    /// Two parts of which one is run.
    pub(super) fn choose(
        &mut self,
        test: &Expr,
        yes: impl FnOnce(&mut Self) -> Result<()>,
        no: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        if let Some(known) = self.forms.known(test) {
            return if known { yes(self) } else { no(self) };
        }
        let (other, end) = (self.asm.label(), self.asm.label());
        self.test(test, false, other)?;
        self.asm.drop();
        self.perhaps(yes)?;
        self.asm.jump(Op::Jmp, end);
        self.asm.bind(other);
        self.asm.drop();
        self.perhaps(no)?;
        self.asm.bind(end);
        Ok(())
    }

    fn branches(&mut self, arms: &[(Expr, Block)], otherwise: Option<&Block>) -> Result<()> {
        let end = self.asm.label();
        for (index, (test, block)) in arms.iter().enumerate() {
            match self.forms.known(test) {
                Some(false) => continue,
                Some(true) => {
                    self.perhaps(|c| c.block(block));
                    self.asm.bind(end);
                    return Ok(());
                }
                None => {}
            }
            let other = self.asm.label();
            let mark = self.frame.mark();
            self.test(test, false, other)?;
            self.frame.release(mark);
            self.asm.drop();
            self.perhaps(|c| c.block(block));
            if index + 1 < arms.len() || otherwise.is_some() {
                self.asm.jump(Op::Jmp, end);
                self.asm.bind(other);
                self.asm.drop();
            } else {
                // The last one: what is tested stays on the stack of both ways.
                self.asm.push(0);
                self.asm.bind(other);
                self.asm.drop();
            }
        }
        if let Some(block) = otherwise {
            self.perhaps(|c| c.block(block));
        }
        self.asm.bind(end);
        Ok(())
    }

    /// The body of a loop, with the places of `continue` and `break`.
    pub(super) fn body(&mut self, body: &Block, around: Loop) {
        self.loops.push(around);
        self.perhaps(|c| c.block(body));
        self.loops.pop();
    }

    fn while_loop(&mut self, test: &Expr, body: &Block) -> Result<()> {
        let (next, out, end) = (self.asm.label(), self.asm.label(), self.asm.label());
        let known = self.forms.known(test);
        if known == Some(false) {
            return Ok(());
        }
        self.asm.bind(next);
        if known.is_none() {
            let mark = self.frame.mark();
            self.test(test, false, out)?;
            self.frame.release(mark);
            self.asm.drop();
        }
        self.body(body, Loop { next, end });
        self.asm.jump(Op::Jmp, next);
        self.asm.bind(out);
        self.asm.drop();
        self.asm.bind(end);
        Ok(())
    }

    /// `unroll`: a loop whose count is known. It is not unrolled, as code is not shorter by that.
    fn repeat(&mut self, times: u64, body: &Block, span: Span) -> Result<()> {
        if times <= 1 {
            if times == 1 {
                self.perhaps(|c| c.block(body));
            }
            return Ok(());
        }
        let counter = self.take(8, span)?;
        let again = self.asm.label();
        self.asm.push(times);
        self.asm.set(counter);
        self.asm.bind(again);
        self.perhaps(|c| c.block(body));
        self.asm.get(counter);
        self.asm.plus(u64::MAX);
        self.asm.byte(Op::DupImm, 1);
        self.asm.set(counter);
        // The count that is tested is dropped at both ends.
        let done = self.asm.label();
        self.asm.jump(Op::Jz, done);
        self.asm.drop();
        self.asm.jump(Op::Jmp, again);
        self.asm.bind(done);
        self.asm.drop();
        Ok(())
    }

    fn for_range(&mut self, name: &Local, from: &Expr, to: &Expr, body: &Block, span: Span) -> Result<()> {
        let mark = self.open();
        let (position, limit) = (self.take(8, span)?, self.take(8, span)?);
        self.word(from)?;
        self.asm.set(position);
        self.word(to)?;
        self.asm.set(limit);
        let variable = self.declare(name, &Type::I64, span)?;
        let (again, next, out, end) =
            (self.asm.label(), self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.bind(again);
        self.asm.get(limit);
        self.asm.get(position);
        self.asm.op(Op::Slt);
        self.asm.jump(Op::Jz, out);
        self.asm.drop();
        self.asm.copy(position, variable.at, 8);
        self.body(body, Loop { next, end });
        self.asm.bind(next);
        self.asm.get(position);
        self.asm.plus(1);
        self.asm.set(position);
        self.asm.jump(Op::Jmp, again);
        self.asm.bind(out);
        self.asm.drop();
        self.asm.bind(end);
        self.close(Some(mark));
        Ok(())
    }

    /// Sets a variable, a map or an entry of one.
    fn assign(&mut self, target: &Expr, operator: Option<Binary>, value: &Expr) -> Result<()> {
        match &target.kind {
            ExprKind::Local(name) => {
                let Some(Variable { at, ty }) = self.find(name).cloned() else {
                    return Err(refuse::unknown_type(&target.ty, target.at.0));
                };
                match operator {
                    None => self.store_value(value, &ty, at),
                    Some(operator) => {
                        self.operate(operator, target, value)?;
                        self.asm.set(at);
                        Ok(())
                    }
                }
            }
            ExprKind::Map(name, key) => self.assign_entry(target, name, key.as_deref(), operator, value),
            ExprKind::Name(_)
            | ExprKind::Call(..)
            | ExprKind::Unary(..)
            | ExprKind::Field(..)
            | ExprKind::Index(..) => Assignment { compiler: self }.compile(target, operator, value),
            _ => Err(refuse::unknown(target)),
        }
    }

    /// Stores a value in its place as a variable of a type.
    pub(super) fn store_value(&mut self, value: &Expr, ty: &Type, at: u16) -> Result<()> {
        let Some(form) = self.forms.form(ty) else { return Err(refuse::unknown_type(ty, value.at.0)) };
        match form {
            Form::Word => {
                self.word(value)?;
                self.asm.set(at);
                Ok(())
            }
            Form::Text => {
                let room = self.forms.text_bytes();
                self.text_to(value, at, room)
            }
            Form::Wide(size) => self.wide_to(value, ty, at, size),
        }
    }
}

/// The type of a variable that is declared without one: that of its uses.
fn used_as(name: &Local, rest: &[Statement], last: Option<&Expr>) -> Type {
    let mut found = Type::Unknown;
    fn look(expr: &Expr, name: &Local, found: &mut Type) {
        if *found != Type::Unknown {
            return;
        }
        if let ExprKind::Local(local) = &expr.kind
            && local == name
        {
            *found = expr.ty.clone();
        }
        walk::visit_parts(expr, &mut |part| look(part, name, found));
    }
    for statement in rest {
        walk::of_statement(statement, &mut |expr| look(expr, name, &mut found));
    }
    last.iter().for_each(|expr| look(expr, name, &mut found));
    match found {
        // It is never used: any place will do.
        Type::Unknown => Type::I64,
        found => found,
    }
}
