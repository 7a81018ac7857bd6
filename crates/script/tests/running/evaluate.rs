//! Evaluates a checked script as a tree: what the bytecode must do.
//!
//! A value is the number that it is; a type says which numbers there are. So nothing here is an
//! instruction, and nothing is shared with the compiler.

use std::collections::BTreeMap;

use dprobes_script::{
    Aggregate, Binary, Block, Expr, ExprKind, Item, Script, Statement, StatementKind, Type, Unary,
};

use crate::machine::Thread;

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    On,
    Break,
    Continue,
    Return,
}

/// A run of a script's only probe.
pub(crate) struct Evaluator<'t> {
    thread: &'t Thread,
    scopes: Vec<BTreeMap<String, i128>>,
    /// What is printed, as a number of 64 bits.
    pub(crate) printed: Vec<u64>,
    /// Maps by name and key.
    pub(crate) maps: BTreeMap<(String, Option<i128>), i128>,
    /// The steps that it may still make.
    left: usize,
}

/// What an expression gives, or `None` if the run takes too long.
type Value = Option<i128>;

/// Runs the first probe; `None` if that takes too long.
pub(crate) fn run<'t>(script: &Script, thread: &'t Thread) -> Option<Evaluator<'t>> {
    let mut evaluator = Evaluator {
        thread,
        scopes: vec![BTreeMap::new()],
        printed: Vec::new(),
        maps: BTreeMap::new(),
        left: 20_000,
    };
    let Some(Item::Probe(probe)) = script.items.first() else { return None };
    if let Some(predicate) = &probe.predicate
        && evaluator.expr(predicate)? == 0
    {
        return Some(evaluator);
    }
    evaluator.statements(&probe.action)?;
    Some(evaluator)
}

/// The number that a type has for a number, as C converts it.
fn wrap(value: i128, ty: &Type) -> i128 {
    let (bits, signed) = match ty {
        Type::Bool => return i128::from(value != 0),
        Type::Integer(integer) => (u32::from(integer.bytes) * 8, integer.signed),
        Type::Aggregate(Aggregate::Count) => (64, false),
        Type::Aggregate(_) => (64, true),
        other => panic!("no integer: {other}"),
    };
    let low = value.rem_euclid(1 << bits);
    if signed && low >> (bits - 1) == 1 { low - (1 << bits) } else { low }
}

/// Whether an expression is a number that the script states: exact at each step, and of 64 bits.
fn is_literal(expr: &Expr) -> bool {
    exact(expr).is_some()
}

fn exact(expr: &Expr) -> Option<i128> {
    let value = match &expr.kind {
        ExprKind::Integer(value) => i128::from(*value),
        ExprKind::Bool(value) => i128::from(*value),
        ExprKind::Unary(Unary::Minus, value) => -exact(value)?,
        ExprKind::Unary(Unary::Not, value) => i128::from(exact(value)? == 0),
        ExprKind::Binary(operator, left, right) => {
            let (a, b) = (exact(left)?, exact(right)?);
            match operator {
                Binary::Add => a + b,
                Binary::Subtract => a - b,
                Binary::Multiply => a.checked_mul(b)?,
                Binary::Divide => a.checked_div(b)?,
                Binary::Modulo => a.checked_rem(b)?,
                Binary::BitAnd => a & b,
                Binary::BitOr => a | b,
                Binary::BitXor => a ^ b,
                Binary::Left | Binary::Right if !(0..64).contains(&b) => return None,
                Binary::Left => a.checked_mul(1 << b)?,
                Binary::Right => a >> b,
                Binary::Equal => i128::from(a == b),
                Binary::Unequal => i128::from(a != b),
                Binary::Less => i128::from(a < b),
                Binary::LessEqual => i128::from(a <= b),
                Binary::Greater => i128::from(a > b),
                Binary::GreaterEqual => i128::from(a >= b),
                Binary::And => i128::from(a != 0 && b != 0),
                Binary::Or => i128::from(a != 0 || b != 0),
            }
        }
        _ => return None,
    };
    (-(1 << 63)..1 << 64).contains(&value).then_some(value)
}

fn unsigned(value: i128) -> i128 {
    value.rem_euclid(1 << 64)
}

fn signed(value: i128) -> i128 {
    let low = unsigned(value);
    if low >> 63 == 1 { low - (1 << 64) } else { low }
}

impl Evaluator<'_> {
    fn step(&mut self) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        Some(())
    }

    fn block(&mut self, block: &Block) -> Option<Flow> {
        self.scopes.push(BTreeMap::new());
        let flow = self.statements(block);
        self.scopes.pop();
        flow
    }

    fn statements(&mut self, block: &Block) -> Option<Flow> {
        for statement in &block.statements {
            let flow = self.statement(statement)?;
            if flow != Flow::On {
                return Some(flow);
            }
        }
        Some(Flow::On)
    }

    fn statement(&mut self, statement: &Statement) -> Option<Flow> {
        self.step()?;
        match &statement.kind {
            StatementKind::Expr(expr) => match &expr.kind {
                ExprKind::Call(name, arguments) if name == "print" => {
                    let value = self.expr(&arguments[0])?;
                    self.printed.push(unsigned(value) as u64);
                }
                _ => {
                    self.expr(expr)?;
                }
            },
            StatementKind::Assign { target, operator, value } => self.assign(target, *operator, value)?,
            StatementKind::If { arms, otherwise } => {
                for (test, block) in arms {
                    if self.expr(test)? != 0 {
                        return self.block(block);
                    }
                }
                if let Some(block) = otherwise {
                    return self.block(block);
                }
            }
            StatementKind::While(test, body) => {
                while self.expr(test)? != 0 {
                    self.step()?;
                    match self.block(body)? {
                        Flow::Break => break,
                        Flow::Return => return Some(Flow::Return),
                        Flow::On | Flow::Continue => {}
                    }
                }
            }
            StatementKind::Unroll(count, body) => {
                for _ in 0..self.expr(count)? {
                    self.step()?;
                    let flow = self.block(body)?;
                    if flow != Flow::On {
                        return Some(flow);
                    }
                }
            }
            StatementKind::ForRange { index, from, to, body } => {
                let (from, to) = (self.expr(from)?, self.expr(to)?);
                for number in from..to {
                    self.step()?;
                    self.scopes.push(BTreeMap::from([(index.name.clone(), number)]));
                    let flow = self.block(body);
                    self.scopes.pop();
                    match flow? {
                        Flow::Break => break,
                        Flow::Return => return Some(Flow::Return),
                        Flow::On | Flow::Continue => {}
                    }
                }
            }
            StatementKind::Break => return Some(Flow::Break),
            StatementKind::Continue => return Some(Flow::Continue),
            StatementKind::Return(_) => return Some(Flow::Return),
            StatementKind::Block(block) => return self.block(block),
            other => panic!("the generator makes no {other:?}"),
        }
        Some(Flow::On)
    }

    fn local(&mut self, name: &str) -> &mut i128 {
        self.scopes.iter_mut().rev().find_map(|scope| scope.get_mut(name)).expect("it is declared")
    }

    fn entry(&mut self, name: &str, key: Option<i128>) -> &mut i128 {
        self.maps.entry((name.to_string(), key)).or_insert(0)
    }

    fn assign(&mut self, target: &Expr, operator: Option<Binary>, value: &Expr) -> Option<()> {
        // A value is evaluated before the key of what it is assigned to.
        if let ExprKind::Map(name, key) = &target.kind {
            let added = match &value.kind {
                ExprKind::Call(function, arguments) if function == "sum" => Some(self.expr(&arguments[0])?),
                ExprKind::Call(function, _) if function == "count" => Some(1),
                _ => None,
            };
            let value_number = match added {
                Some(added) => added,
                None => self.expr(value)?,
            };
            let key = match key {
                Some(key) => Some(self.expr(key)?),
                None => None,
            };
            let before = self.maps.get(&(name.clone(), key)).copied().unwrap_or(0);
            let after = match (added, operator) {
                (Some(added), _) => before + added,
                (None, None) => value_number,
                (None, Some(operator)) => self.calculate(
                    operator,
                    (before, &target.ty, false),
                    (value_number, &value.ty, is_literal(value)),
                ),
            };
            let ty = target.ty.clone();
            *self.entry(name, key) = wrap(after, &ty);
            return Some(());
        }
        let ExprKind::Local(local) = &target.kind else { panic!("no target") };
        // `$x op= ...` reads the variable first.
        let before = operator.map(|_| *self.local(&local.name));
        let right = self.expr(value)?;
        let after = match (operator, before) {
            (Some(operator), Some(before)) => {
                self.calculate(operator, (before, &target.ty, false), (right, &value.ty, is_literal(value)))
            }
            _ => right,
        };
        let after = wrap(after, &target.ty);
        match self.scopes.iter_mut().rev().find_map(|scope| scope.get_mut(&local.name)) {
            Some(place) => *place = after,
            None => {
                self.scopes.last_mut()?.insert(local.name.clone(), after);
            }
        }
        Some(())
    }

    /// An operator on two values with their types, and whether a number of the script is meant.
    fn calculate(&self, operator: Binary, left: (i128, &Type, bool), right: (i128, &Type, bool)) -> i128 {
        let is_wide = |(value, ty, literal): (i128, &Type, bool)| match literal && value >= 0 {
            // A number of the script takes the other side's sign, if it can have one.
            true => value >= 1 << 63,
            false => matches!(ty, Type::Integer(integer) if integer.bytes == 8 && !integer.signed),
        };
        let shifts = matches!(operator, Binary::Left | Binary::Right);
        let is_unsigned = if shifts { is_unsigned(left.1) } else { is_wide(left) || is_wide(right) };
        let convert = |value| if is_unsigned { unsigned(value) } else { signed(value) };
        let (a, b) = (convert(left.0), convert(right.0));
        let count = unsigned(right.0) % 64;
        let result = match operator {
            Binary::Add => a + b,
            Binary::Subtract => a - b,
            Binary::Multiply => (a as u128).wrapping_mul(b as u128) as i128,
            Binary::Divide => a.checked_div(b).unwrap_or(0),
            Binary::Modulo => a.checked_rem(b).unwrap_or(a),
            Binary::BitAnd => a & b,
            Binary::BitOr => a | b,
            Binary::BitXor => a ^ b,
            Binary::Left => a << count,
            Binary::Right => a >> count,
            Binary::Equal => i128::from(signed(a) == signed(b)),
            Binary::Unequal => i128::from(signed(a) != signed(b)),
            Binary::Less => i128::from(a < b),
            Binary::LessEqual => i128::from(a <= b),
            Binary::Greater => i128::from(a > b),
            Binary::GreaterEqual => i128::from(a >= b),
            Binary::And | Binary::Or => panic!("they are evaluated elsewhere"),
        };
        signed(result)
    }

    fn expr(&mut self, expr: &Expr) -> Value {
        self.step()?;
        let value = match &expr.kind {
            ExprKind::Integer(value) => i128::from(*value),
            ExprKind::Bool(value) => i128::from(*value),
            ExprKind::Name(name) => match name.as_str() {
                "pid" => self.thread.pid.into(),
                "tid" => self.thread.tid.into(),
                "uid" => self.thread.ids.0.into(),
                name => {
                    let register = ["rdi", "rsi", "rdx", "rcx"][name[3..].parse::<usize>().expect("argN")];
                    i128::from(self.thread.registers[register] as i64)
                }
            },
            ExprKind::Local(name) => *self.local(&name.name),
            ExprKind::Map(name, key) => {
                let key = match key {
                    Some(key) => Some(self.expr(key)?),
                    None => None,
                };
                self.maps.get(&(name.clone(), key)).copied().unwrap_or(0)
            }
            ExprKind::Unary(operator, value) => {
                let value = self.expr(value)?;
                match operator {
                    Unary::Minus => -value,
                    Unary::Not => i128::from(value == 0),
                    Unary::Complement => !value,
                    other => panic!("the generator makes no {other:?}"),
                }
            }
            ExprKind::Step { before, up, target } => self.change(target, *before, *up)?,
            ExprKind::Binary(Binary::And, left, right) => {
                i128::from(self.expr(left)? != 0 && self.expr(right)? != 0)
            }
            ExprKind::Binary(Binary::Or, left, right) => {
                i128::from(self.expr(left)? != 0 || self.expr(right)? != 0)
            }
            ExprKind::Binary(operator, left, right) => {
                let (a, b) = (self.expr(left)?, self.expr(right)?);
                self.calculate(*operator, (a, &left.ty, is_literal(left)), (b, &right.ty, is_literal(right)))
            }
            ExprKind::Ternary(test, yes, no) => {
                if self.expr(test)? != 0 {
                    self.expr(yes)?
                } else {
                    self.expr(no)?
                }
            }
            ExprKind::Cast(to, value) => {
                let value = self.expr(value)?;
                return Some(wrap(value, to));
            }
            other => panic!("the generator makes no {other:?}"),
        };
        Some(wrap(value, &expr.ty))
    }

    fn change(&mut self, target: &Expr, before: bool, up: bool) -> Value {
        let by = if up { 1 } else { -1 };
        let old = match &target.kind {
            ExprKind::Local(name) => *self.local(&name.name),
            ExprKind::Map(name, Some(key)) => {
                let key = self.expr(key)?;
                let old = self.maps.get(&(name.clone(), Some(key))).copied().unwrap_or(0);
                *self.entry(name, Some(key)) = wrap(old + by, &target.ty);
                return Some(if before { old + by } else { old });
            }
            other => panic!("the generator makes no {other:?}"),
        };
        let ExprKind::Local(name) = &target.kind else { return None };
        *self.local(&name.name) = wrap(old + by, &target.ty);
        Some(if before { old + by } else { old })
    }
}

fn is_unsigned(ty: &Type) -> bool {
    match ty {
        Type::Integer(integer) => !integer.signed,
        Type::Bool => true,
        _ => false,
    }
}
