//! Arithmetic and logic on words.

use bpf::{Alu, Cond, Insn, Reg};
use vm::{Exception, Op, Word};

use crate::compiler::Compiler;

/// `parm1` of INVALID_OPERAND: a bit position.
const POSITION: i32 = 3;

/// Pops two values and pushes `first OP second`, the first popped first.
pub(crate) fn binary(c: &mut Compiler<'_>, op: Alu) {
    c.e.pop(Reg::R1);
    c.e.peek(Reg::R2, 0);
    c.e.word_alu(op, Reg::R1, Reg::R2);
    c.e.poke(0, Reg::R1);
}

/// Inverts the top.
pub(crate) fn complement(c: &mut Compiler<'_>) {
    c.e.peek(Reg::R1, 0);
    c.e.word_alu(Alu::Xor, Reg::R1, -1);
    c.e.poke(0, Reg::R1);
}

/// Shifts or rotates by a constant.
pub(crate) fn shift_by(c: &mut Compiler<'_>, op: Op, count: u64) {
    let bits = c.handler.word.bits();
    let count = (count as u32 & (bits - 1)) as i32;
    c.e.peek(Reg::R1, 0);
    match op {
        Op::ShlImm => c.e.word_alu(Alu::Lsh, Reg::R1, count),
        Op::ShrImm => c.e.word_alu(Alu::Rsh, Reg::R1, count),
        _ => {
            let left = if op == Op::RolImm { count } else { (bits as i32 - count) & (bits as i32 - 1) };
            let right = (bits as i32 - left) & (bits as i32 - 1);
            c.e.mov(Reg::R2, Reg::R1);
            c.e.word_alu(Alu::Lsh, Reg::R1, left);
            c.e.word_alu(Alu::Rsh, Reg::R2, right);
            c.e.word_alu(Alu::Or, Reg::R1, Reg::R2);
        }
    }
    c.e.poke(0, Reg::R1);
}

/// Pops a value, then a count, and pushes the value shifted or rotated.
pub(crate) fn shift(c: &mut Compiler<'_>, op: Op) {
    let mask = c.handler.word.bits() as i32 - 1;
    c.e.pop(Reg::R1);
    c.e.peek(Reg::R2, 0);
    c.e.word_alu(Alu::And, Reg::R2, mask);
    match op {
        Op::Shl => c.e.word_alu(Alu::Lsh, Reg::R1, Reg::R2),
        Op::Shr => c.e.word_alu(Alu::Rsh, Reg::R1, Reg::R2),
        _ => {
            let (there, back) = if op == Op::Rol { (Alu::Lsh, Alu::Rsh) } else { (Alu::Rsh, Alu::Lsh) };
            c.e.mov(Reg::R3, Reg::R1);
            c.e.word_alu(there, Reg::R1, Reg::R2);
            c.e.asm.push(Insn::neg(c.e.width(), Reg::R2));
            c.e.word_alu(Alu::And, Reg::R2, mask);
            c.e.word_alu(back, Reg::R3, Reg::R2);
            c.e.word_alu(Alu::Or, Reg::R1, Reg::R3);
        }
    }
    c.e.poke(0, Reg::R1);
}

/// Pops a divisor (`R1`), then a dividend (`R2`).
fn operands_of_division(c: &mut Compiler<'_>) {
    c.e.pop(Reg::R1);
    c.e.pop(Reg::R2);
    let zero = c.e.raise(Exception::DIVIDE_BY_ZERO, 0, 0);
    c.e.jump_if(Cond::Eq, Reg::R1, 0, zero);
}

/// `div`
pub(crate) fn divide(c: &mut Compiler<'_>) {
    operands_of_division(c);
    c.e.mov(Reg::R3, Reg::R2);
    c.e.word_alu(Alu::Mod, Reg::R3, Reg::R1);
    c.e.push(Reg::R3);
    c.e.word_alu(Alu::Div, Reg::R2, Reg::R1);
    c.e.push(Reg::R2);
}

/// `idiv`: there is no signed division before Linux 6.6, so that of the absolute values. With
/// `s` = x >> 63, -1 for a negative x, `(x ^ s) - s` is the absolute value, and gives it its
/// sign again.
pub(crate) fn divide_signed(c: &mut Compiler<'_>) {
    operands_of_division(c);
    if c.handler.word == Word::W4 {
        for reg in [Reg::R1, Reg::R2] {
            c.e.alu(Alu::Lsh, reg, 32);
            c.e.alu(Alu::Arsh, reg, 32);
        }
    }
    let give_sign = |this: &mut Compiler<'_>, value: Reg, sign: Reg| {
        this.e.alu(Alu::Xor, value, sign);
        this.e.alu(Alu::Sub, value, sign);
    };
    for (value, sign) in [(Reg::R1, Reg::R3), (Reg::R2, Reg::R4)] {
        c.e.mov(sign, value);
        c.e.alu(Alu::Arsh, sign, 63);
        give_sign(c, value, sign);
    }
    c.e.mov(Reg::R0, Reg::R2);
    c.e.alu(Alu::Mod, Reg::R0, Reg::R1);
    give_sign(c, Reg::R0, Reg::R4);
    c.e.truncate(Reg::R0);
    c.e.push(Reg::R0);
    c.e.alu(Alu::Div, Reg::R2, Reg::R1);
    c.e.alu(Alu::Xor, Reg::R3, Reg::R4);
    give_sign(c, Reg::R2, Reg::R3);
    c.e.truncate(Reg::R2);
    c.e.push(Reg::R2);
}

/// Changes the top at a bit position, which is an operand, or popped.
pub(crate) fn at_position(c: &mut Compiler<'_>, op: Op, operand: Option<u64>) {
    let bits = c.handler.word.bits();
    // R2: the bit's number from 0 on.
    match operand {
        Some(position) if !(1..=u64::from(bits)).contains(&position) => {
            return c.raise_always(Exception::INVALID_OPERAND, POSITION, position as i32);
        }
        Some(position) => c.e.mov(Reg::R2, position as i32 - 1),
        None => {
            c.e.pop(Reg::R1);
            let bad = c.e.raise(Exception::INVALID_OPERAND, POSITION, Reg::R1);
            c.e.mov(Reg::R2, Reg::R1);
            c.e.alu(Alu::Add, Reg::R2, -1);
            c.e.jump_if(Cond::Ge, Reg::R2, bits as i32, bad);
        }
    }
    // R3: the bit. R4: the bits below it, or those above it.
    c.e.mov(Reg::R3, 1);
    c.e.alu(Alu::Lsh, Reg::R3, Reg::R2);
    c.e.mov(Reg::R4, Reg::R3);
    c.e.alu(Alu::Add, Reg::R4, -1);
    if matches!(op, Op::Pbl | Op::PblImm | Op::Pzl | Op::PzlImm) {
        c.e.alu(Alu::Or, Reg::R4, Reg::R3);
        c.e.alu(Alu::Xor, Reg::R4, -1);
    }
    c.e.peek(Reg::R1, 0);
    let copies = matches!(op, Op::Pbl | Op::PblImm | Op::Pbr | Op::PbrImm);
    let (clear, done) = (c.e.asm.label(), c.e.asm.label());
    if copies {
        c.e.alu(Alu::And, Reg::R3, Reg::R1);
        c.e.jump_if(Cond::Eq, Reg::R3, 0, clear);
        c.e.word_alu(Alu::Or, Reg::R1, Reg::R4);
        c.e.asm.jump(done);
        c.e.asm.bind(clear);
    }
    c.e.alu(Alu::Xor, Reg::R4, -1);
    c.e.word_alu(Alu::And, Reg::R1, Reg::R4);
    if copies {
        c.e.asm.bind(done);
    }
    c.e.poke(0, Reg::R1);
}
