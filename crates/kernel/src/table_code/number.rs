//! The number of an entry: a plain value's first word, or what the copies of an aggregate amount
//! to.

use bpf::{Alu, Cond, Reg, Size};
use maps::Kind;

use super::entry::choose_first;
use super::shape::{AGAIN, DONE, NONE, Shape};
use super::update::order;
use crate::compiler::Compiler;
use crate::layout::{Field, Map};
use crate::table_function::Function;

/// The sums, and the number of the copy, on the stack of the function.
const FIRST: i16 = -8;
const SECOND: i16 = -16;

/// `D` = the number; 0 if there is no entry.
pub(super) fn load(c: &mut Compiler<'_>, shape: &Shape) {
    let (none, out) = (c.e.asm.label(), c.e.asm.label());
    c.e.set(Field::D, 0);
    match (shape.kind(), shape.is_keyed()) {
        (Kind::Plain, false) => {
            c.e.map_value(Reg::R1, Map::Tables, shape.value as u32);
            c.e.load(Size::Double, Reg::R1, Reg::R1, 0);
            c.e.set(Field::D, Reg::R1);
        }
        (Kind::Plain, true) => {
            choose_first(c, shape);
            c.call_table(Function::Find, shape.number);
            c.e.jump_if(Cond::Ne, Reg::R0, DONE, out);
            c.found(Reg::R2, Field::Entry, shape.last_entry(), none);
            c.e.alu(Alu::Add, Reg::R2, shape.value_in_entry);
            c.e.load(Size::Double, Reg::R1, Reg::R2, 0);
            c.e.set(Field::D, Reg::R1);
            unchanged(c, shape, none);
            c.e.asm.jump(out);
        }
        _ => merged(c, shape, out),
    }
    c.give(DONE);
    c.e.asm.bind(none);
    c.give(NONE);
    c.e.asm.bind(out);
    c.e.asm.exit();
}

/// `R0` = [`DONE`] if the bucket is as it was seen, else [`AGAIN`].
pub(super) fn unchanged(c: &mut Compiler<'_>, shape: &Shape, bad: bpf::Label) {
    let same = c.e.asm.label();
    c.found(Reg::R2, Field::Control, shape.last_bucket(), bad);
    c.e.load(Size::Double, Reg::R1, Reg::R2, 0);
    c.e.get(Reg::R2, Field::Seen);
    c.e.mov(Reg::R0, DONE);
    c.e.jump_if(Cond::Eq, Reg::R1, Reg::R2, same);
    c.e.mov(Reg::R0, AGAIN);
    c.e.asm.bind(same);
}

/// Merges the copies: `R9` is the copy's place, from that of copy 0 on.
fn merged(c: &mut Compiler<'_>, shape: &Shape, out: bpf::Label) {
    let (next, skip, end) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    for place in [FIRST, SECOND] {
        c.e.store_imm(Size::Double, Reg::R10, place, 0);
    }
    let first = if shape.is_keyed() { shape.table } else { shape.value };
    let all = shape.copies() * shape.copy;
    c.e.mov(Reg::R9, 0);
    c.e.asm.bind(next);
    c.e.jump_if(Cond::Ge, Reg::R9, all, end);
    if shape.is_keyed() {
        c.e.mov(Reg::R1, Reg::R9);
        c.e.alu(Alu::Add, Reg::R1, first);
        c.e.set(Field::CopyAt, Reg::R1);
        c.call_table(Function::Find, shape.number);
        c.e.jump_if(Cond::Eq, Reg::R0, AGAIN, out);
        c.e.jump_if(Cond::Eq, Reg::R0, NONE, skip);
        c.found(Reg::R8, Field::Entry, shape.last_entry(), skip);
        c.e.alu(Alu::Add, Reg::R8, shape.value_in_entry);
    } else {
        c.e.map_value(Reg::R8, Map::Tables, first as u32);
        c.e.alu(Alu::Add, Reg::R8, Reg::R9);
    }
    let words: &[i16] = if shape.places.value_words > 1 { &[0, 8] } else { &[0] };
    for &word in words {
        let place = if word == 0 { FIRST } else { SECOND };
        let kept = c.e.asm.label();
        c.e.load(Size::Double, Reg::R1, Reg::R8, word);
        c.e.load(Size::Double, Reg::R2, Reg::R10, place);
        if matches!(shape.kind(), Kind::Min | Kind::Max) {
            c.e.jump_if(Cond::Ge, Reg::R2, Reg::R1, kept);
            c.e.mov(Reg::R2, Reg::R1);
            c.e.asm.bind(kept);
        } else {
            c.e.alu(Alu::Add, Reg::R2, Reg::R1);
        }
        c.e.store(Size::Double, Reg::R10, place, Reg::R2);
    }
    c.e.asm.bind(skip);
    c.e.alu(Alu::Add, Reg::R9, shape.copy);
    c.e.asm.jump(next);
    c.e.asm.bind(end);
    amount(c, shape);
    c.e.set(Field::D, Reg::R1);
}

/// `R1` = what the two words amount to.
fn amount(c: &mut Compiler<'_>, shape: &Shape) {
    let done = c.e.asm.label();
    c.e.load(Size::Double, Reg::R1, Reg::R10, FIRST);
    c.e.load(Size::Double, Reg::R3, Reg::R10, SECOND);
    match shape.kind() {
        Kind::Min | Kind::Max => {
            let set = c.e.asm.label();
            c.e.jump_if(Cond::Ne, Reg::R1, 0, set);
            c.e.jump_if(Cond::Eq, Reg::R3, 0, done);
            c.e.asm.bind(set);
            order(c, shape, Reg::R1);
        }
        Kind::Avg | Kind::Stats if shape.info.signed == 0 => c.e.alu(Alu::Div, Reg::R1, Reg::R3),
        Kind::Avg | Kind::Stats => {
            let positive = c.e.asm.label();
            c.e.jump_if(Cond::Sge, Reg::R1, 0, positive);
            c.negate(Reg::R1);
            c.e.alu(Alu::Div, Reg::R1, Reg::R3);
            c.negate(Reg::R1);
            c.e.asm.jump(done);
            c.e.asm.bind(positive);
            c.e.alu(Alu::Div, Reg::R1, Reg::R3);
        }
        _ => {}
    }
    c.e.asm.bind(done);
}
