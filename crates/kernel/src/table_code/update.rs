//! What an update adds to the words of a value, by the kind of its map.

use bpf::{Alu, Atomic, Cond, Insn, Label, Reg, Size};
use maps::Kind;

use super::shape::{AGAIN, DONE, NONE, Shape};
use crate::compiler::Compiler;
use crate::layout::{Field, Map};
use crate::table_function::Function;

/// How often the least or greatest number is tried that others change.
const TRIES: usize = 4;

/// Where the place of the copy is kept on the stack of the program.
const KEPT: i16 = -80;

/// The bit that is flipped so that signed numbers sort as unsigned ones.
const SIGN: u64 = 1 << 63;

/// Adds `C` to the entry: `R9` is the address of its value, `R8` the number.
pub(super) fn update(c: &mut Compiler<'_>, shape: &Shape) {
    let (lost, out) = (c.e.asm.label(), c.e.asm.label());
    if shape.is_keyed() {
        c.call_table(Function::Entry, shape.number);
        c.e.jump_if(Cond::Eq, Reg::R0, AGAIN, out);
        c.e.jump_if(Cond::Eq, Reg::R0, NONE, lost);
        c.found(Reg::R9, Field::Entry, shape.last_entry(), lost);
        c.e.alu(Alu::Add, Reg::R9, shape.value_in_entry);
    } else {
        c.own_copy(Reg::R1, shape.copies(), shape.copy);
        c.e.map_value(Reg::R9, Map::Tables, shape.value as u32);
        c.e.alu(Alu::Add, Reg::R9, Reg::R1);
    }
    c.e.get(Reg::R8, Field::C);
    add(c, shape, lost);
    c.give(DONE);
    c.e.asm.bind(lost);
    c.call_table(Function::Lose, shape.number);
    c.e.asm.bind(out);
    c.e.asm.exit();
}

/// Adds `R8` to the value of a map without keys, in the copy of a processor.
pub(super) fn single(c: &mut Compiler<'_>, shape: &Shape, processor: Reg) {
    let (lost, done) = (c.e.asm.label(), c.e.asm.label());
    c.copy_of(processor, shape.copies(), shape.copy);
    c.e.store(Size::Double, Reg::R10, KEPT, processor);
    c.e.map_value(Reg::R9, Map::Tables, shape.value as u32);
    c.e.alu(Alu::Add, Reg::R9, processor);
    add(c, shape, lost);
    c.e.asm.jump(done);
    c.e.asm.bind(lost);
    c.e.load(Size::Double, Reg::R1, Reg::R10, KEPT);
    c.e.map_value(Reg::R2, Map::Tables, shape.lost as u32);
    c.e.alu(Alu::Add, Reg::R2, Reg::R1);
    c.e.mov(Reg::R1, 1);
    c.e.asm.push(Insn::atomic(Atomic::Add, Size::Double, Reg::R2, 0, Reg::R1));
    c.e.asm.bind(done);
}

/// Adds `R8` to the value at `R9`.
fn add(c: &mut Compiler<'_>, shape: &Shape, lost: Label) {
    let atomic_add = |c: &mut Compiler<'_>, place: i16, by: Reg| {
        c.e.asm.push(Insn::atomic(Atomic::Add, Size::Double, Reg::R9, place, by));
    };
    match shape.kind() {
        Kind::Count | Kind::Sum => atomic_add(c, 0, Reg::R8),
        Kind::Avg | Kind::Stats => {
            atomic_add(c, 0, Reg::R8);
            c.e.mov(Reg::R1, 1);
            atomic_add(c, 8, Reg::R1);
        }
        Kind::Min | Kind::Max => raise(c, shape, lost),
        Kind::Hist => {
            power(c, shape.info.a.clamp(0, 5) as i32);
            count_bucket(c, shape, lost);
        }
        Kind::Lhist => {
            linear(c, shape);
            count_bucket(c, shape, lost);
        }
        // Plain maps are changed by `bump`; series are refused.
        Kind::Plain | Kind::Tseries | Kind::Stacks => c.e.asm.jump(lost),
    }
}

/// Counts the bucket with the number `R1`.
fn count_bucket(c: &mut Compiler<'_>, shape: &Shape, lost: Label) {
    c.e.jump_if(Cond::Ge, Reg::R1, shape.places.value_words as i32, lost);
    c.e.alu(Alu::Lsh, Reg::R1, 3);
    c.e.alu(Alu::Add, Reg::R9, Reg::R1);
    c.e.mov(Reg::R1, 1);
    c.e.asm.push(Insn::atomic(Atomic::Add, Size::Double, Reg::R9, 0, Reg::R1));
}

/// Makes a number the one of which the greatest is kept. Twice gives it back. Uses `R2`.
pub(super) fn order(c: &mut Compiler<'_>, shape: &Shape, number: Reg) {
    if shape.info.signed != 0 {
        c.e.number(Reg::R2, SIGN);
        c.e.alu(Alu::Xor, number, Reg::R2);
    }
    if shape.kind() == Kind::Min {
        c.e.alu(Alu::Xor, number, -1);
    }
}

/// Makes the first word at least the number, and the second one 1.
fn raise(c: &mut Compiler<'_>, shape: &Shape, lost: Label) {
    let (done, set) = (c.e.asm.label(), c.e.asm.label());
    order(c, shape, Reg::R8);
    c.e.load(Size::Double, Reg::R0, Reg::R9, 0);
    for _ in 0..TRIES {
        c.e.jump_if(Cond::Ge, Reg::R0, Reg::R8, done);
        c.e.mov(Reg::R1, Reg::R0);
        c.e.asm.push(Insn::atomic(Atomic::CompareExchange, Size::Double, Reg::R9, 0, Reg::R8));
        c.e.jump_if(Cond::Eq, Reg::R0, Reg::R1, done);
    }
    c.e.asm.jump(lost);
    c.e.asm.bind(done);
    c.e.load(Size::Double, Reg::R1, Reg::R9, 8);
    c.e.jump_if(Cond::Ne, Reg::R1, 0, set);
    c.e.store_imm(Size::Double, Reg::R9, 8, 1);
    c.e.asm.bind(set);
}

/// `R1` = the bucket of `R8` in a histogram of powers of 2 with so many bits.
fn power(c: &mut Compiler<'_>, bits: i32) {
    let (negative, small, done) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    let mask = (1 << bits) - 1;
    c.e.jump_if(Cond::Slt, Reg::R8, 0, negative);
    c.e.jump_if(Cond::Le, Reg::R8, mask, small);
    // R2 = the place of the highest bit: halves of what is left.
    c.e.mov(Reg::R2, 0);
    c.e.mov(Reg::R1, Reg::R8);
    for half in [32, 16, 8, 4, 2, 1] {
        // R3 = half if anything is above it, else 0: no branch, so that there is one path.
        c.e.mov(Reg::R3, Reg::R1);
        c.e.alu(Alu::Rsh, Reg::R3, half);
        c.e.mov(Reg::R4, 0);
        c.e.alu(Alu::Sub, Reg::R4, Reg::R3);
        c.e.alu(Alu::Rsh, Reg::R4, 63);
        c.e.alu(Alu::Mul, Reg::R4, half);
        c.e.alu(Alu::Rsh, Reg::R1, Reg::R4);
        c.e.alu(Alu::Add, Reg::R2, Reg::R4);
    }
    c.e.alu(Alu::Add, Reg::R2, -bits);
    c.e.mov(Reg::R1, Reg::R8);
    c.e.alu(Alu::And, Reg::R2, 63);
    c.e.alu(Alu::Rsh, Reg::R1, Reg::R2);
    c.e.alu(Alu::And, Reg::R1, mask);
    c.e.alu(Alu::Add, Reg::R2, 1);
    c.e.alu(Alu::Lsh, Reg::R2, bits);
    c.e.alu(Alu::Add, Reg::R1, Reg::R2);
    c.e.alu(Alu::Add, Reg::R1, 1);
    c.e.asm.jump(done);
    c.e.asm.bind(small);
    c.e.mov(Reg::R1, Reg::R8);
    c.e.alu(Alu::Add, Reg::R1, 1);
    c.e.asm.jump(done);
    c.e.asm.bind(negative);
    c.e.mov(Reg::R1, 0);
    c.e.asm.bind(done);
}

/// `R1` = the bucket of `R8` in a histogram of buckets of one size.
fn linear(c: &mut Compiler<'_>, shape: &Shape) {
    let (below, not_above, done) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    let (least, most, step) = (shape.info.a, shape.info.b, shape.info.c.max(1));
    c.e.number(Reg::R2, least as u64);
    c.e.jump_if(Cond::Slt, Reg::R8, Reg::R2, below);
    c.e.mov(Reg::R1, Reg::R8);
    c.e.number(Reg::R3, most.max(least) as u64);
    c.e.jump_if(Cond::Sle, Reg::R1, Reg::R3, not_above);
    c.e.mov(Reg::R1, Reg::R3);
    c.e.asm.bind(not_above);
    c.e.alu(Alu::Sub, Reg::R1, Reg::R2);
    c.e.number(Reg::R3, step as u64);
    c.e.alu(Alu::Div, Reg::R1, Reg::R3);
    c.e.alu(Alu::Add, Reg::R1, 1);
    c.e.asm.jump(done);
    c.e.asm.bind(below);
    c.e.mov(Reg::R1, 0);
    c.e.asm.bind(done);
}
