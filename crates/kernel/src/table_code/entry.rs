//! The entry in this processor's copy. Copy 0 has all keys of the map.

use bpf::{Alu, Atomic, Cond, Insn, Reg, Size};

use super::insert::shift_by_lane;
use super::shape::{DONE, NONE, Shape};
use crate::compiler::Compiler;
use crate::layout::{Field, Map};
use crate::table_function::Function;

/// What is kept on the stack of the function.
const KEPT: [(Field, i16); 2] = [(Field::Entry, -8), (Field::Control, -16)];

/// Makes the copy at a place, or this processor's, the one that functions work on.
fn choose(c: &mut Compiler<'_>, shape: &Shape, own: bool) {
    if own && shape.copies() > 1 {
        c.own_copy(Reg::R1, shape.copies(), shape.copy);
        c.e.alu(Alu::Add, Reg::R1, shape.table);
        c.e.set(Field::CopyAt, Reg::R1);
    } else {
        c.e.set(Field::CopyAt, shape.table);
    }
}

/// Makes copy 0 the one that functions work on.
pub(super) fn choose_first(c: &mut Compiler<'_>, shape: &Shape) {
    choose(c, shape, false);
}

/// ```text
///     find in the own copy, or else:
///     ensure in copy 0; ensure in the own copy; ensure in copy 0 again
/// ```
///
/// Keys are removed from copy 0 first. So if the key is in copy 0 after it is in the own copy,
/// whoever removes it from there comes to the own copy later.
pub(super) fn entry(c: &mut Compiler<'_>, shape: &Shape) {
    choose(c, shape, true);
    if shape.copies() == 1 {
        c.call_table(Function::Ensure, shape.number);
        return c.e.asm.exit();
    }
    let (out, own) = (c.e.asm.label(), c.e.asm.label());
    c.call_table(Function::Find, shape.number);
    c.e.set(Field::New, 0);
    c.e.jump_if(Cond::Ne, Reg::R0, NONE, out);
    c.e.get(Reg::R1, Field::CopyAt);
    c.e.jump_if(Cond::Eq, Reg::R1, shape.table, own);
    choose(c, shape, false);
    c.call_table(Function::Ensure, shape.number);
    c.e.jump_if(Cond::Ne, Reg::R0, DONE, out);
    choose(c, shape, true);
    c.call_table(Function::Ensure, shape.number);
    c.e.jump_if(Cond::Ne, Reg::R0, DONE, out);
    for (field, place) in KEPT {
        c.e.get(Reg::R1, field);
        c.e.store(Size::Double, Reg::R10, place, Reg::R1);
    }
    c.e.get(Reg::R8, Field::Seen);
    c.e.get(Reg::R9, Field::Lane);
    choose(c, shape, false);
    c.call_table(Function::Ensure, shape.number);
    for (field, place) in KEPT {
        c.e.load(Size::Double, Reg::R1, Reg::R10, place);
        c.e.set(field, Reg::R1);
    }
    c.e.set(Field::Lane, Reg::R9);
    c.e.jump_if(Cond::Eq, Reg::R0, DONE, out);
    // No key may be in this copy alone.
    c.e.mov(Reg::R7, Reg::R0);
    c.e.set(Field::Seen, Reg::R8);
    remove(c, shape, out);
    c.e.mov(Reg::R0, Reg::R7);
    c.e.asm.exit();
    c.e.asm.bind(own);
    c.call_table(Function::Ensure, shape.number);
    c.e.asm.bind(out);
    c.e.asm.exit();
}

/// Removes the entry that was found, if its bucket is as it was seen: `R0` is then 1, else 0.
/// Changes `R0` to `R5`. Jumps if the place is none.
pub(super) fn remove(c: &mut Compiler<'_>, shape: &Shape, bad: bpf::Label) {
    let done = c.e.asm.label();
    c.found(Reg::R2, Field::Control, shape.last_bucket(), bad);
    c.e.get(Reg::R3, Field::Tag);
    c.e.alu(Alu::Or, Reg::R3, i32::from(maps::READY));
    shift_by_lane(c, Reg::R3, Reg::R4);
    c.e.get(Reg::R0, Field::Seen);
    c.e.mov(Reg::R4, Reg::R0);
    c.e.alu(Alu::Sub, Reg::R4, Reg::R3);
    c.e.number(Reg::R5, maps::CHANGE);
    c.e.alu(Alu::Add, Reg::R4, Reg::R5);
    c.e.mov(Reg::R5, Reg::R0);
    c.e.asm.push(Insn::atomic(Atomic::CompareExchange, Size::Double, Reg::R2, 0, Reg::R4));
    c.e.mov(Reg::R1, Reg::R0);
    c.e.mov(Reg::R0, 1);
    c.e.jump_if(Cond::Eq, Reg::R1, Reg::R5, done);
    c.e.mov(Reg::R0, 0);
    c.e.asm.bind(done);
}

/// Counts an update that is lost.
pub(super) fn lose(c: &mut Compiler<'_>, shape: &Shape) {
    c.own_copy(Reg::R1, shape.copies(), shape.copy);
    c.e.map_value(Reg::R2, Map::Tables, shape.lost as u32);
    c.e.alu(Alu::Add, Reg::R2, Reg::R1);
    c.e.mov(Reg::R1, 1);
    c.e.asm.push(Insn::atomic(Atomic::Add, Size::Double, Reg::R2, 0, Reg::R1));
    c.give(NONE);
}
