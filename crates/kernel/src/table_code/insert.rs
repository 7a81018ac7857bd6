//! The entry of a key in one copy, which is made if there is none.

use bpf::{Alu, Atomic, Cond, Helper, Insn, Reg, Size};
use maps::Kind;

use super::shape::{AGAIN, DONE, NONE, Shape};
use crate::compiler::Compiler;
use crate::layout::Field;
use crate::table_function::Function;

/// The most words that are stored one by one.
const FEW: i32 = 8;

/// `count` += the empty lanes of the control word in `seen`.
fn count_free(c: &mut Compiler<'_>, count: Reg, seen: Reg, scratch: Reg) {
    c.e.mov(count, 0);
    for lane in 0..maps::LANES as i32 {
        c.e.mov(scratch, seen);
        c.e.alu(Alu::Rsh, scratch, 8 * lane);
        c.e.alu(Alu::And, scratch, 0xff);
        // 0 becomes -1, and then 1; another byte 0: no branch, so that there is one path.
        c.e.alu(Alu::Add, scratch, -1);
        c.e.alu(Alu::Rsh, scratch, 63);
        c.e.alu(Alu::Add, count, scratch);
    }
}

/// A new entry has the value in the context's place for values if the map is plain, else zeros.
///
/// ```text
///     find() or else:
///     (bucket, seen), other = free(First) >= min(4, free(Second)) ? First, Second : Second, First
///     lane = the first empty one; none: NONE
///     control: seen -> seen + (tag << lane), or AGAIN
///     other control changed: control -= tag << lane; AGAIN
///     length, key, value; control += READY << lane
/// ```
pub(super) fn ensure(c: &mut Compiler<'_>, shape: &Shape) {
    let (out, first, chosen) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    let (full, again, got) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    c.call_table(Function::Find, shape.number);
    c.e.set(Field::New, 0);
    c.e.jump_if(Cond::Ne, Reg::R0, NONE, out);
    c.e.get(Reg::R1, Field::SeenFirst);
    c.e.get(Reg::R2, Field::SeenSecond);
    count_free(c, Reg::R3, Reg::R1, Reg::R5);
    count_free(c, Reg::R4, Reg::R2, Reg::R5);
    c.e.jump_if(Cond::Ge, Reg::R3, 4, first);
    c.e.jump_if(Cond::Ge, Reg::R3, Reg::R4, first);
    let choose = |c: &mut Compiler<'_>, seen: Reg, bucket: Field, other: Reg| {
        c.e.set(Field::Seen, seen);
        c.e.get(Reg::R3, bucket);
        c.e.set(Field::Bucket, Reg::R3);
        // What the other one was seen as: the field of the first serves for it.
        c.e.set(Field::SeenFirst, other);
    };
    choose(c, Reg::R2, Field::Second, Reg::R1);
    c.e.get(Reg::R3, Field::First);
    c.e.set(Field::Control, Reg::R3);
    c.e.asm.jump(chosen);
    c.e.asm.bind(first);
    choose(c, Reg::R1, Field::First, Reg::R2);
    c.e.get(Reg::R3, Field::Second);
    c.e.set(Field::Control, Reg::R3);
    c.e.asm.bind(chosen);
    c.e.get(Reg::R1, Field::Seen);
    for lane in 0..maps::LANES as i32 {
        let taken = c.e.asm.label();
        c.e.mov(Reg::R2, Reg::R1);
        c.e.alu(Alu::Rsh, Reg::R2, 8 * lane);
        c.e.alu(Alu::And, Reg::R2, 0xff);
        c.e.jump_if(Cond::Ne, Reg::R2, 0, taken);
        c.e.set(Field::Lane, lane);
        c.e.asm.jump(got);
        c.e.asm.bind(taken);
    }
    c.e.asm.jump(full);
    c.e.asm.bind(got);
    claim(c, shape, full, again);
    write(c, shape);
    c.e.number(Reg::R2, maps::READY.into());
    shift_by_lane(c, Reg::R2, Reg::R1);
    c.change_control(Reg::R9, Reg::R2, Reg::R1);
    // What the word has become: all that was added is known.
    c.e.number(Reg::R1, maps::READY.into());
    shift_by_lane(c, Reg::R1, Reg::R3);
    c.e.alu(Alu::Add, Reg::R1, Reg::R2);
    c.e.number(Reg::R2, maps::CHANGE);
    c.e.alu(Alu::Add, Reg::R1, Reg::R2);
    c.e.set(Field::Seen, Reg::R1);
    c.e.set(Field::New, 1);
    c.give(DONE);
    c.e.asm.bind(again);
    c.give(AGAIN);
    c.e.asm.bind(full);
    c.give(NONE);
    c.e.asm.bind(out);
    c.e.asm.exit();
}

/// Shifts a register to the lane's place.
pub(super) fn shift_by_lane(c: &mut Compiler<'_>, value: Reg, scratch: Reg) {
    c.e.get(scratch, Field::Lane);
    c.e.alu(Alu::Lsh, scratch, 3);
    c.e.alu(Alu::Lsh, value, scratch);
}

/// Makes the lane busy. Then `R9` is the address of the control word, `R8` that of the entry.
fn claim(c: &mut Compiler<'_>, shape: &Shape, full: bpf::Label, again: bpf::Label) {
    let alone = c.e.asm.label();
    c.get_aligned(Reg::R1, Field::CopyAt);
    c.e.jump_if(Cond::Gt, Reg::R1, shape.last_table(), full);
    // The number of the other bucket, and the address of its control word.
    c.e.get(Reg::R2, Field::Control);
    c.e.jump_if(Cond::Ge, Reg::R2, shape.places.buckets as i32, full);
    c.e.get(Reg::R3, Field::Bucket);
    c.e.jump_if(Cond::Ge, Reg::R3, shape.places.buckets as i32, full);
    c.e.mov(Reg::R4, Reg::R2);
    c.e.alu(Alu::Mul, Reg::R4, shape.bucket);
    c.e.alu(Alu::Add, Reg::R4, Reg::R1);
    c.in_tables(Reg::R7, Reg::R4);
    c.e.mov(Reg::R4, Reg::R3);
    c.e.alu(Alu::Mul, Reg::R4, shape.bucket);
    c.e.alu(Alu::Add, Reg::R4, Reg::R1);
    c.e.set(Field::Control, Reg::R4);
    c.in_tables(Reg::R9, Reg::R4);
    c.e.get(Reg::R5, Field::Lane);
    c.e.jump_if(Cond::Ge, Reg::R5, maps::LANES as i32, full);
    c.e.alu(Alu::Mul, Reg::R5, shape.entry);
    c.e.alu(Alu::Add, Reg::R5, 8);
    c.e.mov(Reg::R8, Reg::R9);
    c.e.alu(Alu::Add, Reg::R8, Reg::R5);
    c.e.alu(Alu::Add, Reg::R5, Reg::R4);
    c.e.set(Field::Entry, Reg::R5);

    c.e.get(Reg::R4, Field::Tag);
    shift_by_lane(c, Reg::R4, Reg::R5);
    c.e.number(Reg::R5, maps::CHANGE);
    c.e.get(Reg::R0, Field::Seen);
    c.e.mov(Reg::R1, Reg::R0);
    c.e.alu(Alu::Add, Reg::R1, Reg::R4);
    c.e.alu(Alu::Add, Reg::R1, Reg::R5);
    c.e.asm.push(Insn::atomic(Atomic::CompareExchange, Size::Double, Reg::R9, 0, Reg::R1));
    c.e.get(Reg::R1, Field::Seen);
    c.e.jump_if(Cond::Ne, Reg::R0, Reg::R1, again);
    // Alone only if nobody has changed the other bucket: one who has may have put the key there.
    c.e.jump_if(Cond::Eq, Reg::R2, Reg::R3, alone);
    c.e.load(Size::Double, Reg::R1, Reg::R7, 0);
    c.e.get(Reg::R0, Field::SeenFirst);
    c.e.jump_if(Cond::Eq, Reg::R0, Reg::R1, alone);
    c.e.alu(Alu::Sub, Reg::R5, Reg::R4);
    c.e.asm.push(Insn::atomic(Atomic::Add, Size::Double, Reg::R9, 0, Reg::R5));
    c.e.asm.jump(again);
    c.e.asm.bind(alone);
}

/// Writes the length, the key and the value of the entry at `R8`.
fn write(c: &mut Compiler<'_>, shape: &Shape) {
    let words = shape.places.key_words as i32;
    c.e.get(Reg::R1, Field::KeyLength);
    c.e.store(Size::Double, Reg::R8, 0, Reg::R1);
    copy(c, 8, c.layout.key, words);
    if shape.kind() == Kind::Plain {
        copy(c, shape.value_in_entry, c.layout.value, shape.places.value_words as i32);
    } else {
        clear(c, shape.value_in_entry, shape.places.value_words as i32);
    }
}

/// Copies words of the context to `R8` + `to`.
pub(super) fn copy(c: &mut Compiler<'_>, to: i32, from: i32, words: i32) {
    if words > FEW {
        c.e.mov(Reg::R1, Reg::R8);
        c.e.alu(Alu::Add, Reg::R1, to);
        c.e.mov(Reg::R2, 8 * words);
        c.e.part(Reg::R3, from);
        return c.e.call(Helper::PROBE_READ_KERNEL);
    }
    c.e.mov(Reg::R1, Reg::R8);
    c.e.alu(Alu::Add, Reg::R1, to);
    c.e.part(Reg::R2, from);
    for word in 0..words as i16 {
        c.e.load(Size::Double, Reg::R3, Reg::R2, 8 * word);
        c.e.store(Size::Double, Reg::R1, 8 * word, Reg::R3);
    }
}

/// Sets words at `R8` + `to` to zeros.
pub(super) fn clear(c: &mut Compiler<'_>, to: i32, words: i32) {
    const MOST: i32 = crate::tables::ZEROS as i32 / 8;
    c.e.mov(Reg::R1, Reg::R8);
    c.e.alu(Alu::Add, Reg::R1, to);
    if words <= FEW {
        return (0..words as i16).for_each(|word| c.e.store_imm(Size::Double, Reg::R1, 8 * word, 0));
    }
    for first in (0..words).step_by(MOST as usize) {
        c.e.mov(Reg::R1, Reg::R8);
        c.e.alu(Alu::Add, Reg::R1, to + 8 * first);
        c.e.mov(Reg::R2, 8 * (words - first).min(MOST));
        c.zeros(Reg::R3);
        c.e.call(Helper::PROBE_READ_KERNEL);
    }
}
