//! Reading, setting and removing entries.

use bpf::{Alu, Atomic, Cond, Helper, Insn, Reg, Size};
use maps::Kind;

use super::entry::{choose_first, remove};
use super::insert::{clear, copy, shift_by_lane};
use super::number::unchanged;
use super::shape::{AGAIN, DONE, NONE, Shape};
use crate::compiler::Compiler;
use crate::layout::{Field, Map};
use crate::table_function::Function;
use crate::tables::MAX_FRAMES;

const FRAME_MASK: i32 = vm::FRAME_LIMIT as i32 - 1;

/// Copies the value at `R8` to the frame at `C`.
fn to_frame(c: &mut Compiler<'_>, bytes: i32) {
    c.e.get(Reg::R2, Field::C);
    c.e.alu(Alu::And, Reg::R2, FRAME_MASK);
    c.e.part(Reg::R1, c.layout.frame);
    c.e.alu(Alu::Add, Reg::R1, Reg::R2);
    c.e.mov(Reg::R2, bytes);
    c.e.mov(Reg::R3, Reg::R8);
    c.e.call(Helper::PROBE_READ_KERNEL);
}

/// Copies the entry to the frame at `C`, zeros if there is none; `D` = whether there is one. An
/// aggregate's is its number.
pub(super) fn fetch(c: &mut Compiler<'_>, shape: &Shape) {
    let (none, out, again) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    c.e.set(Field::D, 0);
    if shape.kind() != Kind::Plain {
        aggregate_to_frame(c, shape, out);
        c.give(DONE);
        c.e.asm.bind(out);
        return c.e.asm.exit();
    }
    if shape.is_keyed() {
        choose_first(c, shape);
        c.call_table(Function::Find, shape.number);
        c.e.jump_if(Cond::Eq, Reg::R0, AGAIN, out);
        c.e.jump_if(Cond::Eq, Reg::R0, NONE, none);
        c.found(Reg::R8, Field::Entry, shape.last_entry(), none);
        c.e.alu(Alu::Add, Reg::R8, shape.value_in_entry);
        to_frame(c, shape.value_bytes);
        c.e.set(Field::D, 1);
        unchanged(c, shape, none);
        c.e.asm.jump(out);
    } else {
        // A sequence lock: even, and the same after the value was copied.
        c.e.map_value(Reg::R9, Map::Tables, shape.value as u32 - 8);
        c.e.load(Size::Double, Reg::R7, Reg::R9, 0);
        c.e.jump_if(Cond::Set, Reg::R7, 1, again);
        c.e.mov(Reg::R8, Reg::R9);
        c.e.alu(Alu::Add, Reg::R8, 8);
        to_frame(c, shape.value_bytes);
        c.e.load(Size::Double, Reg::R1, Reg::R9, 0);
        c.e.jump_if(Cond::Ne, Reg::R1, Reg::R7, again);
        c.e.set(Field::D, 1);
        c.give(DONE);
        c.e.asm.bind(again);
        c.give(AGAIN);
    }
    c.e.asm.bind(none);
    zeros_to_frame(c, shape.value_bytes);
    c.give(DONE);
    c.e.asm.bind(out);
    c.e.asm.exit();
}

/// Sets bytes of the frame at `C` to zeros.
fn zeros_to_frame(c: &mut Compiler<'_>, bytes: i32) {
    c.zeros(Reg::R8);
    to_frame(c, bytes);
}

/// The number of an aggregate, and zeros.
fn aggregate_to_frame(c: &mut Compiler<'_>, shape: &Shape, out: bpf::Label) {
    let none = c.e.asm.label();
    c.call_table(Function::Has, shape.number);
    c.e.jump_if(Cond::Eq, Reg::R0, AGAIN, out);
    c.e.get(Reg::R9, Field::D);
    zeros_to_frame(c, shape.value_bytes);
    c.e.jump_if(Cond::Eq, Reg::R9, 0, none);
    c.call_table(Function::Load, shape.number);
    c.e.jump_if(Cond::Eq, Reg::R0, AGAIN, out);
    c.e.get(Reg::R2, Field::C);
    c.e.alu(Alu::And, Reg::R2, FRAME_MASK);
    c.e.part(Reg::R1, c.layout.frame);
    c.e.alu(Alu::Add, Reg::R1, Reg::R2);
    c.e.get(Reg::R2, Field::D);
    c.e.store(Size::Double, Reg::R1, 0, Reg::R2);
    c.e.set(Field::D, 1);
    c.e.asm.bind(none);
}

/// Copies `E` bytes of the frame at `C` to the place for values, and zeros behind them.
fn stage(c: &mut Compiler<'_>, shape: &Shape) {
    c.e.part(Reg::R8, 0);
    clear(c, c.layout.value, shape.places.value_words as i32);
    let out = c.e.asm.label();
    c.e.get(Reg::R2, Field::E);
    c.e.jump_if(Cond::Gt, Reg::R2, shape.value_bytes, out);
    c.e.get(Reg::R4, Field::C);
    c.e.alu(Alu::And, Reg::R4, FRAME_MASK);
    c.e.part(Reg::R1, c.layout.value);
    c.e.part(Reg::R3, c.layout.frame);
    c.e.alu(Alu::Add, Reg::R3, Reg::R4);
    c.e.call(Helper::PROBE_READ_KERNEL);
    c.e.asm.bind(out);
}

/// Sets the entry of a plain map to `E` bytes of the frame at `C`.
pub(super) fn store(c: &mut Compiler<'_>, shape: &Shape) {
    let (lost, again, out, done) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    stage(c, shape);
    let words = shape.places.value_words as i32;
    if !shape.is_keyed() {
        c.e.map_value(Reg::R9, Map::Tables, shape.value as u32 - 8);
        c.e.load(Size::Double, Reg::R7, Reg::R9, 0);
        c.e.jump_if(Cond::Set, Reg::R7, 1, again);
        c.e.mov(Reg::R0, Reg::R7);
        c.e.mov(Reg::R1, Reg::R7);
        c.e.alu(Alu::Add, Reg::R1, 1);
        c.e.asm.push(Insn::atomic(Atomic::CompareExchange, Size::Double, Reg::R9, 0, Reg::R1));
        c.e.jump_if(Cond::Ne, Reg::R0, Reg::R7, again);
        c.e.mov(Reg::R8, Reg::R9);
        copy(c, 8, c.layout.value, words);
        c.e.alu(Alu::Add, Reg::R7, 2);
        c.e.store(Size::Double, Reg::R9, 0, Reg::R7);
        c.give(DONE);
        c.e.asm.bind(again);
        return c.give(AGAIN);
    }
    choose_first(c, shape);
    c.call_table(Function::Ensure, shape.number);
    c.e.jump_if(Cond::Eq, Reg::R0, AGAIN, out);
    c.e.jump_if(Cond::Eq, Reg::R0, NONE, lost);
    c.e.get(Reg::R1, Field::New);
    c.e.jump_if(Cond::Ne, Reg::R1, 0, done);
    c.found(Reg::R8, Field::Entry, shape.last_entry(), lost);
    if words > 1 {
        // Busy while it is written.
        c.found(Reg::R9, Field::Control, shape.last_bucket(), lost);
        c.e.mov(Reg::R2, i32::from(maps::READY));
        shift_by_lane(c, Reg::R2, Reg::R1);
        c.e.get(Reg::R0, Field::Seen);
        c.e.mov(Reg::R3, Reg::R0);
        c.e.mov(Reg::R7, Reg::R2);
        c.e.mov(Reg::R1, Reg::R0);
        c.e.alu(Alu::Sub, Reg::R1, Reg::R2);
        c.e.number(Reg::R4, maps::CHANGE);
        c.e.alu(Alu::Add, Reg::R1, Reg::R4);
        c.e.asm.push(Insn::atomic(Atomic::CompareExchange, Size::Double, Reg::R9, 0, Reg::R1));
        c.e.jump_if(Cond::Ne, Reg::R0, Reg::R3, again);
        copy(c, shape.value_in_entry, c.layout.value, words);
        c.change_control(Reg::R9, Reg::R7, Reg::R1);
    } else {
        copy(c, shape.value_in_entry, c.layout.value, words);
    }
    c.e.asm.bind(done);
    c.give(DONE);
    c.e.asm.bind(again);
    c.give(AGAIN);
    c.e.asm.bind(lost);
    c.call_table(Function::Lose, shape.number);
    c.e.asm.bind(out);
    c.e.asm.exit();
}

/// Sets the first word of the entry to `C`.
pub(super) fn put(c: &mut Compiler<'_>, shape: &Shape) {
    change_first(c, shape, |c| c.e.store(Size::Double, Reg::R9, 0, Reg::R8));
}

/// Adds `C` to the first word of the entry; `D` = what it was.
pub(super) fn bump(c: &mut Compiler<'_>, shape: &Shape) {
    change_first(c, shape, |c| {
        c.e.asm.push(Insn::atomic(Atomic::FetchAdd, Size::Double, Reg::R9, 0, Reg::R8));
        c.e.set(Field::D, Reg::R8);
    });
}

/// Changes the first word, at `R9`, by `C`, in `R8`: a new entry has it already.
fn change_first(c: &mut Compiler<'_>, shape: &Shape, change: impl Fn(&mut Compiler<'_>)) {
    let (lost, out, done) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    c.e.set(Field::D, 0);
    if !shape.is_keyed() {
        c.e.get(Reg::R8, Field::C);
        c.e.map_value(Reg::R9, Map::Tables, shape.value as u32);
        change(c);
        return c.give(DONE);
    }
    c.e.part(Reg::R8, 0);
    clear(c, c.layout.value, shape.places.value_words as i32);
    c.e.part(Reg::R1, c.layout.value);
    c.e.get(Reg::R2, Field::C);
    c.e.store(Size::Double, Reg::R1, 0, Reg::R2);
    choose_first(c, shape);
    c.call_table(Function::Ensure, shape.number);
    c.e.jump_if(Cond::Eq, Reg::R0, AGAIN, out);
    c.e.jump_if(Cond::Eq, Reg::R0, NONE, lost);
    c.e.get(Reg::R1, Field::New);
    c.e.jump_if(Cond::Ne, Reg::R1, 0, done);
    c.found(Reg::R9, Field::Entry, shape.last_entry(), lost);
    c.e.alu(Alu::Add, Reg::R9, shape.value_in_entry);
    c.e.get(Reg::R8, Field::C);
    change(c);
    c.e.asm.bind(done);
    c.give(DONE);
    c.e.asm.bind(lost);
    c.call_table(Function::Lose, shape.number);
    c.e.asm.bind(out);
    c.e.asm.exit();
}

/// Removes the entry from all copies: `R9` is the copy's place. `D` = whether there was one.
pub(super) fn erase(c: &mut Compiler<'_>, shape: &Shape) {
    let (next, skip, end, out) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    let again = c.e.asm.label();
    let all = shape.copies() * shape.copy;
    c.e.mov(Reg::R9, 0);
    c.e.asm.bind(next);
    c.e.jump_if(Cond::Ge, Reg::R9, all, end);
    if shape.is_keyed() {
        c.e.mov(Reg::R1, Reg::R9);
        c.e.alu(Alu::Add, Reg::R1, shape.table);
        c.e.set(Field::CopyAt, Reg::R1);
        c.call_table(Function::Find, shape.number);
        c.e.jump_if(Cond::Eq, Reg::R0, AGAIN, out);
        c.e.jump_if(Cond::Eq, Reg::R0, NONE, skip);
        remove(c, shape, skip);
        c.e.jump_if(Cond::Eq, Reg::R0, 0, again);
        c.e.set(Field::Erased, 1);
    } else {
        c.e.map_value(Reg::R8, Map::Tables, shape.value as u32);
        c.e.alu(Alu::Add, Reg::R8, Reg::R9);
        clear(c, 0, shape.places.value_words as i32);
        c.e.set(Field::Erased, 1);
    }
    c.e.asm.bind(skip);
    c.e.alu(Alu::Add, Reg::R9, shape.copy);
    c.e.asm.jump(next);
    c.e.asm.bind(end);
    // If the instruction began again, what it removed before counts.
    c.e.get(Reg::R1, Field::Erased);
    c.e.set(Field::D, Reg::R1);
    c.e.set(Field::Erased, 0);
    c.give(DONE);
    c.e.asm.bind(again);
    c.give(AGAIN);
    c.e.asm.bind(out);
    c.e.asm.exit();
}

/// `D` = whether there is an entry.
pub(super) fn has(c: &mut Compiler<'_>, shape: &Shape) {
    let out = c.e.asm.label();
    c.e.set(Field::D, 1);
    if !shape.is_keyed() {
        return c.give(DONE);
    }
    choose_first(c, shape);
    c.call_table(Function::Find, shape.number);
    c.e.jump_if(Cond::Ne, Reg::R0, NONE, out);
    c.e.set(Field::D, 0);
    c.e.mov(Reg::R0, DONE);
    c.e.asm.bind(out);
    c.e.asm.exit();
}

/// `D` = the number of the stack of `B` bytes in the place for keys; 0 if there is no room.
pub(super) fn intern(c: &mut Compiler<'_>, shape: &Shape) {
    let (lost, out) = (c.e.asm.label(), c.e.asm.label());
    c.e.set(Field::D, 0);
    c.e.get(Reg::R1, Field::B);
    c.e.jump_if(Cond::Gt, Reg::R1, (8 * MAX_FRAMES as i32).min(shape.info.key as i32), lost);
    c.e.set(Field::KeyLength, Reg::R1);
    super::key::hash(c, shape);
    choose_first(c, shape);
    c.call_table(Function::Ensure, shape.number);
    c.e.jump_if(Cond::Eq, Reg::R0, AGAIN, out);
    c.e.jump_if(Cond::Eq, Reg::R0, NONE, lost);
    // The upper half of the hash, and 1 + the place in the table.
    c.e.get(Reg::R1, Field::Bucket);
    c.e.alu(Alu::Mul, Reg::R1, maps::LANES as i32);
    c.e.get(Reg::R2, Field::Lane);
    c.e.alu(Alu::Add, Reg::R1, Reg::R2);
    c.e.alu(Alu::Add, Reg::R1, 1);
    c.e.get(Reg::R2, Field::Hash);
    c.e.alu(Alu::Rsh, Reg::R2, 32);
    c.e.alu(Alu::Lsh, Reg::R2, 32);
    c.e.alu(Alu::Or, Reg::R1, Reg::R2);
    c.e.set(Field::D, Reg::R1);
    c.give(DONE);
    c.e.asm.bind(lost);
    c.call_table(Function::Lose, shape.number);
    c.e.asm.bind(out);
    c.e.asm.exit();
}
