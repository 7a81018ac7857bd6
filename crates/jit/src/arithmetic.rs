//! Instructions that only compute: their elements come from the path, and their results go there.

use crate::operands::{Alu, Condition, RAX, RCX, Shift};
use crate::output::Operand;
use crate::path::Path;
use crate::shape::Location;
use vm::Op;

/// The most copies that `dup` makes in compiled code.
const COPIES: u64 = 32;

impl Path<'_> {
    /// Pops two elements and pushes `op` of the first popped and the second.
    pub(crate) fn binary(&mut self, op: Alu, known: fn(u64, u64) -> u64) {
        if let (Operand::Number(first), Operand::Number(second)) = (self.operand(0), self.operand(1)) {
            self.pop();
            self.pop();
            self.push(Location::Number(known(first, second)));
            return;
        }
        let swaps = op != Alu::Sub && matches!(self.operand(0), Operand::Number(_));
        let (to, other) = if swaps { (1, 0) } else { (0, 1) };
        if let Operand::Register(register) = self.operand(other) {
            self.locked |= 1 << register.0;
        }
        let register = self.exclusive_register(to);
        let operand = self.operand(other);
        self.out.apply(op, register, operand);
        self.pop();
        self.pop();
        self.push(Location::Register(register.0));
    }

    /// Pops two elements and pushes 1 if the condition holds of the first popped and the second,
    /// else 0.
    pub(crate) fn compare(&mut self, condition: Condition, known: fn(u64, u64) -> bool) {
        if let (Operand::Number(first), Operand::Number(second)) = (self.operand(0), self.operand(1)) {
            self.pop();
            self.pop();
            self.push(Location::Number(known(first, second).into()));
            return;
        }
        if let Operand::Register(register) = self.operand(1) {
            self.locked |= 1 << register.0;
        }
        let first = self.in_register(0);
        let to = self.take();
        let second = self.operand(1);
        let holds = self.out.emitter.label();
        self.out.emitter.number(to, 1);
        self.out.apply(Alu::Cmp, first, second);
        self.out.emitter.jump_if(condition, holds);
        self.out.emitter.number(to, 0);
        self.out.emitter.bind(holds);
        self.pop();
        self.pop();
        self.push(Location::Register(to.0));
    }

    pub(crate) fn multiply(&mut self) {
        if let Operand::Register(register) = self.operand(1) {
            self.locked |= 1 << register.0;
        }
        let register = self.exclusive_register(0);
        let operand = self.operand(1);
        match operand.rm() {
            Some(rm) => self.out.emitter.multiply(register, rm),
            None => {
                self.out.set(RAX, operand);
                self.out.with_rax().multiply(register, RAX);
            }
        }
        self.pop();
        self.pop();
        self.push(Location::Register(register.0));
    }

    /// Shifts the top by a number, modulo 64.
    pub(crate) fn shift(&mut self, op: Shift, count: u64) {
        if let Operand::Number(value) = self.operand(0) {
            self.pop();
            self.push(Location::Number(op.of(value, count)));
            return;
        }
        let register = self.exclusive_register(0);
        self.out.emitter.shift(op, register, (count & 63) as u8);
    }

    /// Pops a value, then a count, and pushes the value shifted.
    pub(crate) fn shift_popped(&mut self, op: Shift) {
        if let Operand::Number(count) = self.operand(1) {
            self.shift(op, count);
            let shifted = self.location(0);
            self.pop();
            self.pop();
            self.push(shifted);
            return;
        }
        // The processor also takes counts modulo 64.
        self.take_register(RCX);
        let register = self.exclusive_register(0);
        let count = self.operand(1);
        self.out.set(RCX, count);
        self.out.emitter.shift_by_cl(op, register);
        self.pop();
        self.pop();
        self.push(Location::Register(register.0));
    }

    /// Applies an instruction at a bit position, 1 to 64, to the top.
    pub(crate) fn at_position(&mut self, op: Op, position: u64) -> bool {
        if !(1..=64).contains(&position) {
            return false;
        }
        let bit = 1_u64 << (position - 1);
        let (above, below) = (!(bit | (bit - 1)), bit - 1);
        let register = self.exclusive_register(0);
        // The bits in the instruction's direction.
        let mask = if matches!(op, Op::Pbl | Op::PblImm | Op::Pzl | Op::PzlImm) { above } else { below };
        let copies = matches!(op, Op::Pbl | Op::PblImm | Op::Pbr | Op::PbrImm);
        if copies {
            // Clear the mask, then set it if the bit is set; the bit itself is not in the mask.
            let unset = self.out.emitter.label();
            self.out.apply(Alu::And, register, Operand::Number(!mask));
            self.out.emitter.bit_test(register, (position - 1) as u8);
            self.out.emitter.jump_if(Condition::AboveOrEqual, unset);
            self.out.apply(Alu::Or, register, Operand::Number(mask));
            self.out.emitter.bind(unset);
        } else {
            self.out.apply(Alu::And, register, Operand::Number(!mask));
        }
        true
    }

    /// Pops a known position and applies the instruction to the new top.
    pub(crate) fn at_popped(&mut self, op: Op) -> bool {
        let Operand::Number(position) = self.operand(0) else { return false };
        if !(1..=64).contains(&position) {
            return false;
        }
        self.pop();
        self.at_position(op, position)
    }

    pub(crate) fn exchange(&mut self) {
        // A cell belongs to its position, so load it.
        for below in [0, 1] {
            if self.location(below) == Location::Cell {
                self.in_register(below);
            }
        }
        let (top, next) = (self.location(0), self.location(1));
        self.pop();
        self.pop();
        self.push(top);
        self.push(next);
    }

    pub(crate) fn duplicate(&mut self, copies: u64) -> bool {
        if copies > COPIES {
            return false;
        }
        if self.location(0) == Location::Cell {
            self.in_register(0);
        }
        let top = self.location(0);
        (0..copies).for_each(|_| self.push(top));
        true
    }
}
