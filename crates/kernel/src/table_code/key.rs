//! Keys: copied from the frame, and hashed as crate `maps` does it.

use bpf::{Alu, Cond, Helper, Insn, Reg, Size};

use super::shape::Shape;
use crate::compiler::Compiler;
use crate::layout::Field;

const MASK: i32 = vm::FRAME_LIMIT as i32 - 1;

/// The most words of a key that are copied one by one.
const FEW: i32 = 4;

/// Copies `B` bytes of the frame at `A`, and zeros behind them; then [`hash`].
pub(super) fn key(c: &mut Compiler<'_>, shape: &Shape) {
    let words = shape.places.key_words as i32;
    let (out, general, copied) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    c.e.get(Reg::R8, Field::B);
    c.e.jump_if(Cond::Gt, Reg::R8, 8 * words, out);
    c.e.set(Field::KeyLength, Reg::R8);
    c.e.get(Reg::R9, Field::A);
    // The whole frame is in the range; what is behind it is memory of the context.
    let over = c.e.asm.label();
    c.e.jump_if(Cond::Gt, Reg::R9, MASK, over);
    if words <= FEW {
        c.e.jump_if(Cond::Ne, Reg::R8, 8 * words, general);
        c.e.part(Reg::R1, c.layout.frame);
        c.e.alu(Alu::Add, Reg::R1, Reg::R9);
        c.e.part(Reg::R2, c.layout.key);
        for word in 0..words as i16 {
            c.e.load(Size::Double, Reg::R3, Reg::R1, 8 * word);
            c.e.store(Size::Double, Reg::R2, 8 * word, Reg::R3);
        }
        c.e.asm.jump(copied);
        c.e.asm.bind(general);
    }
    c.e.part(Reg::R1, c.layout.key);
    c.e.mov(Reg::R2, 8 * words);
    c.zeros(Reg::R3);
    c.e.call(Helper::PROBE_READ_KERNEL);
    c.e.part(Reg::R1, c.layout.key);
    c.e.mov(Reg::R2, Reg::R8);
    c.e.part(Reg::R3, c.layout.frame);
    c.e.alu(Alu::Add, Reg::R3, Reg::R9);
    c.e.call(Helper::PROBE_READ_KERNEL);
    c.e.asm.bind(copied);
    hash(c, shape);
    c.e.asm.bind(out);
    c.give(super::shape::DONE);
    // A key without bytes may be at the frame's end.
    c.e.asm.bind(over);
    c.e.mov(Reg::R9, 0);
    c.e.mov(Reg::R8, 0);
    c.e.set(Field::KeyLength, 0);
    c.e.asm.jump(if words <= FEW { general } else { copied });
}

/// `R0` = both halves of the product of `R1` and `R2`, joined. Uses all registers up to `R5`.
fn fold(c: &mut Compiler<'_>) {
    let low = |c: &mut Compiler<'_>, to: Reg, from: Reg| c.e.asm.push(Insn::mov32(to, from));
    c.e.mov(Reg::R0, Reg::R1);
    c.e.alu(Alu::Mul, Reg::R0, Reg::R2);
    c.e.mov(Reg::R3, Reg::R1);
    c.e.alu(Alu::Rsh, Reg::R3, 32);
    c.e.mov(Reg::R4, Reg::R2);
    c.e.alu(Alu::Rsh, Reg::R4, 32);
    low(c, Reg::R1, Reg::R1);
    low(c, Reg::R2, Reg::R2);
    c.e.mov(Reg::R5, Reg::R1);
    c.e.alu(Alu::Mul, Reg::R5, Reg::R2);
    c.e.alu(Alu::Rsh, Reg::R5, 32);
    // R1, R2: the mixed products. R3: that of the upper halves.
    c.e.alu(Alu::Mul, Reg::R1, Reg::R4);
    c.e.alu(Alu::Mul, Reg::R2, Reg::R3);
    c.e.alu(Alu::Mul, Reg::R3, Reg::R4);
    for mixed in [Reg::R1, Reg::R2] {
        low(c, Reg::R4, mixed);
        c.e.alu(Alu::Add, Reg::R5, Reg::R4);
        c.e.alu(Alu::Rsh, mixed, 32);
        c.e.alu(Alu::Add, Reg::R3, mixed);
    }
    c.e.alu(Alu::Rsh, Reg::R5, 32);
    c.e.alu(Alu::Add, Reg::R3, Reg::R5);
    c.e.alu(Alu::Xor, Reg::R0, Reg::R3);
}

/// The hash of the key, and what follows from it: the lane's tag, and two buckets.
///
/// ```text
///     R8 = length; R7 = address of the next words; R9 = bytes that are left; R0 = hash so far
/// ```
pub(super) fn hash(c: &mut Compiler<'_>, shape: &Shape) {
    let [first, second, third] = maps::HASH_FACTORS;
    let words = shape.places.key_words as i32;
    let (mixed, long) = (c.e.asm.label(), c.e.asm.label());
    c.e.part(Reg::R7, c.layout.key);
    c.e.get(Reg::R8, Field::KeyLength);
    c.e.jump_if(Cond::Ne, Reg::R8, 8, long);
    c.e.load(Size::Double, Reg::R1, Reg::R7, 0);
    c.e.number(Reg::R2, first);
    c.e.alu(Alu::Xor, Reg::R1, Reg::R2);
    c.e.number(Reg::R2, second);
    fold(c);
    c.e.asm.jump(mixed);
    c.e.asm.bind(long);
    c.e.number(Reg::R0, second);
    c.e.alu(Alu::Xor, Reg::R0, Reg::R8);
    pairs(c, words);
    c.e.asm.bind(mixed);
    c.e.mov(Reg::R1, Reg::R0);
    c.e.number(Reg::R2, third);
    c.e.alu(Alu::Xor, Reg::R1, Reg::R2);
    c.e.number(Reg::R2, first);
    fold(c);
    c.e.set(Field::Hash, Reg::R0);

    let tagged = c.e.asm.label();
    c.e.mov(Reg::R1, Reg::R0);
    c.e.alu(Alu::Rsh, Reg::R1, 57);
    c.e.jump_if(Cond::Ne, Reg::R1, 0, tagged);
    c.e.mov(Reg::R1, 1);
    c.e.asm.bind(tagged);
    c.e.set(Field::Tag, Reg::R1);

    let buckets = shape.places.buckets as i32;
    c.e.asm.push(Insn::mov32(Reg::R1, Reg::R0));
    c.e.alu(Alu::Mul, Reg::R1, buckets);
    c.e.alu(Alu::Rsh, Reg::R1, 32);
    c.e.set(Field::First, Reg::R1);
    c.e.alu(Alu::Rsh, Reg::R0, 25);
    c.e.asm.push(Insn::mov32(Reg::R0, Reg::R0));
    c.e.alu(Alu::Mul, Reg::R0, buckets - 1);
    c.e.alu(Alu::Rsh, Reg::R0, 32);
    c.e.alu(Alu::Add, Reg::R0, 1);
    c.e.alu(Alu::Add, Reg::R0, Reg::R1);
    let second = c.e.asm.label();
    c.e.jump_if(Cond::Lt, Reg::R0, buckets, second);
    c.e.alu(Alu::Add, Reg::R0, -buckets);
    c.e.asm.bind(second);
    c.e.set(Field::Second, Reg::R0);
}

/// Folds the words of the key into `R0`: two at a time, then those that are left one by one.
fn pairs(c: &mut Compiler<'_>, words: i32) {
    let second = maps::HASH_FACTORS[1];
    let (next, rest, one, end) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    // R9 counts up, so that the verifier sees where the loop ends.
    c.e.mov(Reg::R9, 0);
    if words >= 2 {
        c.e.asm.bind(next);
        c.e.jump_if(Cond::Gt, Reg::R9, 8 * words - 16, rest);
        c.e.mov(Reg::R3, Reg::R9);
        c.e.alu(Alu::Add, Reg::R3, 16);
        c.e.jump_if(Cond::Gt, Reg::R3, Reg::R8, rest);
        c.e.mov(Reg::R4, Reg::R7);
        c.e.alu(Alu::Add, Reg::R4, Reg::R9);
        c.e.mov(Reg::R9, Reg::R3);
        c.e.load(Size::Double, Reg::R1, Reg::R4, 0);
        c.e.load(Size::Double, Reg::R3, Reg::R4, 8);
        c.e.alu(Alu::Xor, Reg::R1, Reg::R0);
        c.e.number(Reg::R2, second);
        c.e.alu(Alu::Xor, Reg::R2, Reg::R3);
        fold(c);
        c.e.asm.jump(next);
    }
    c.e.asm.bind(rest);
    for label in [one, end] {
        c.e.jump_if(Cond::Ge, Reg::R9, Reg::R8, end);
        c.e.jump_if(Cond::Gt, Reg::R9, 8 * words - 8, end);
        c.e.mov(Reg::R4, Reg::R7);
        c.e.alu(Alu::Add, Reg::R4, Reg::R9);
        c.e.load(Size::Double, Reg::R1, Reg::R4, 0);
        c.e.alu(Alu::Xor, Reg::R1, Reg::R0);
        c.e.number(Reg::R2, second);
        fold(c);
        c.e.alu(Alu::Add, Reg::R9, 8);
        c.e.asm.bind(label);
    }
}
