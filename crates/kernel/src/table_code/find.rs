//! Finds a key in one copy.

use bpf::{Alu, Cond, Reg, Size};

use super::shape::{AGAIN, DONE, NONE, Shape};
use crate::compiler::Compiler;
use crate::emit::CONTEXT;
use crate::layout::Field;
use crate::table_function::Function;

/// The most words that are compared one by one, and how many are compared together of others.
const FEW: i32 = 8;
const CHUNK: i32 = 32;

/// Whether the entry at `R1` has the key of the context `R2`: its length, and as many words.
pub(super) fn same(c: &mut Compiler<'_>, shape: &Shape) {
    let words = shape.places.key_words as i32;
    let (equal, differs) = (c.e.asm.label(), c.e.asm.label());
    c.e.load(Size::Double, Reg::R3, Reg::R2, Field::KeyLength.at());
    c.e.load(Size::Double, Reg::R4, Reg::R1, 0);
    c.e.jump_if(Cond::Ne, Reg::R3, Reg::R4, differs);
    c.e.alu(Alu::Add, Reg::R2, c.layout.key);
    if words <= FEW {
        for word in 0..words {
            c.e.jump_if(Cond::Le, Reg::R3, 8 * word, equal);
            c.e.load(Size::Double, Reg::R4, Reg::R1, 8 + 8 * word as i16);
            c.e.load(Size::Double, Reg::R5, Reg::R2, 8 * word as i16);
            c.e.jump_if(Cond::Ne, Reg::R4, Reg::R5, differs);
        }
    } else {
        // Few branches: the verifier follows each. Behind a key there are zeros in both.
        for first in (0..words).step_by(CHUNK as usize) {
            c.e.jump_if(Cond::Le, Reg::R3, 8 * first, equal);
            c.e.mov(Reg::R0, 0);
            for word in first..words.min(first + CHUNK) {
                c.e.load(Size::Double, Reg::R4, Reg::R1, 8 + 8 * word as i16);
                c.e.load(Size::Double, Reg::R5, Reg::R2, 8 * word as i16);
                c.e.alu(Alu::Xor, Reg::R4, Reg::R5);
                c.e.alu(Alu::Or, Reg::R0, Reg::R4);
            }
            c.e.jump_if(Cond::Ne, Reg::R0, 0, differs);
        }
    }
    c.e.asm.bind(equal);
    c.give(1);
    c.e.asm.bind(differs);
    c.give(0);
}

/// The address of the control word, and what it was seen as, on the stack of the function.
const ADDRESS: i16 = -8;
const SEEN: i16 = -16;

/// Finds the key in the copy at `CopyAt`.
///
/// ```text
///     for bucket in [First, Second]:
///         seen = control
///         for lane: if byte(seen, lane) == READY | tag && entry is the key's:
///             return control == seen ? DONE : AGAIN
///     return a lane had the tag, and was busy ? AGAIN : NONE
/// ```
pub(super) fn find(c: &mut Compiler<'_>, shape: &Shape) {
    let (busy, none) = (c.e.asm.label(), c.e.asm.label());
    c.get_aligned(Reg::R9, Field::CopyAt);
    c.e.jump_if(Cond::Gt, Reg::R9, shape.last_table(), none);
    c.e.get(Reg::R8, Field::Tag);
    c.e.mov(Reg::R7, 0);
    for (bucket, seen) in [(Field::First, Field::SeenFirst), (Field::Second, Field::SeenSecond)] {
        c.e.get(Reg::R1, bucket);
        c.e.jump_if(Cond::Ge, Reg::R1, shape.places.buckets as i32, none);
        c.e.set(Field::Bucket, Reg::R1);
        c.e.alu(Alu::Mul, Reg::R1, shape.bucket);
        c.e.alu(Alu::Add, Reg::R1, Reg::R9);
        c.e.set(Field::Control, Reg::R1);
        c.in_tables(Reg::R2, Reg::R1);
        c.e.load(Size::Double, Reg::R3, Reg::R2, 0);
        c.e.set(seen, Reg::R3);
        c.e.store(Size::Double, Reg::R10, ADDRESS, Reg::R2);
        c.e.store(Size::Double, Reg::R10, SEEN, Reg::R3);
        for lane in 0..maps::LANES as i32 {
            let (ready, next) = (c.e.asm.label(), c.e.asm.label());
            c.e.mov(Reg::R4, Reg::R3);
            c.e.alu(Alu::Rsh, Reg::R4, 8 * lane);
            c.e.alu(Alu::And, Reg::R4, 0xff);
            c.e.jump_if(Cond::Ne, Reg::R4, Reg::R8, ready);
            c.e.mov(Reg::R7, 1);
            c.e.asm.jump(next);
            c.e.asm.bind(ready);
            c.e.alu(Alu::Xor, Reg::R4, i32::from(maps::READY));
            c.e.jump_if(Cond::Ne, Reg::R4, Reg::R8, next);
            c.e.mov(Reg::R1, Reg::R2);
            c.e.alu(Alu::Add, Reg::R1, 8 + lane * shape.entry);
            c.e.mov(Reg::R2, CONTEXT);
            let same = c.table_function(Function::Same, shape.number);
            c.e.asm.call_function(same);
            c.e.load(Size::Double, Reg::R2, Reg::R10, ADDRESS);
            c.e.load(Size::Double, Reg::R3, Reg::R10, SEEN);
            c.e.jump_if(Cond::Eq, Reg::R0, 0, next);
            c.e.load(Size::Double, Reg::R4, Reg::R2, 0);
            c.e.jump_if(Cond::Ne, Reg::R4, Reg::R3, busy);
            c.e.set(Field::Seen, Reg::R3);
            c.e.set(Field::Lane, lane);
            c.e.get(Reg::R1, Field::Control);
            c.e.alu(Alu::Add, Reg::R1, 8 + lane * shape.entry);
            c.e.set(Field::Entry, Reg::R1);
            c.give(DONE);
            c.e.asm.bind(next);
        }
    }
    c.e.jump_if(Cond::Ne, Reg::R7, 0, busy);
    c.e.asm.bind(none);
    c.give(NONE);
    c.e.asm.bind(busy);
    c.give(AGAIN);
}
