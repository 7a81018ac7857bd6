//! The frame: strings of the program's memory, and comparing bytes.

use bpf::{Alu, Cond, Helper, Insn, Reg, Size};
use vm::Word;

use super::fault::rest_of_page;
use crate::compiler::Compiler;
use crate::frame::LIMIT;
use crate::layout::Field;
use crate::routine::Micro;

/// Bytes of a string that are read first, since most strings end there, and then at a time.
const FIRST: i32 = 64;
const LATER: i32 = 512;

/// `read str`: `A` is the next address, `B` the room that is left, `C` the offset in the frame,
/// `D` the length so far.
pub(super) fn text(c: &mut Compiler<'_>) {
    c.e.set(Field::D, 0);
    c.e.go(Micro::FrameTextMore);
}

/// Reads a piece behind the frame, and copies the string in it to the frame.
pub(super) fn text_more(c: &mut Compiler<'_>) {
    let (end, first, fits, whole) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    let apart = c.layout.frame + LIMIT;
    c.e.get(Reg::R1, Field::B);
    c.e.jump_if(Cond::Eq, Reg::R1, 0, end);
    c.e.get(Reg::R8, Field::A);
    if c.handler.word == Word::W4 {
        // There is nothing behind the last address.
        c.e.mov(Reg::R2, Reg::R8);
        c.e.alu(Alu::Rsh, Reg::R2, 32);
        c.e.jump_if(Cond::Ne, Reg::R2, 0, end);
    }
    rest_of_page(c, Reg::R9, Reg::R2);
    c.e.get(Reg::R3, Field::D);
    c.e.mov(Reg::R2, FIRST);
    c.e.jump_if(Cond::Eq, Reg::R3, 0, first);
    c.e.mov(Reg::R2, LATER);
    c.e.asm.bind(first);
    for bound in [Reg::R2, Reg::R1] {
        let within = c.e.asm.label();
        c.e.jump_if(Cond::Le, Reg::R9, bound, within);
        c.e.mov(Reg::R9, bound);
        c.e.asm.bind(within);
    }
    // The verifier does not know that this is so.
    c.e.jump_if(Cond::Le, Reg::R9, LATER, fits);
    c.e.asm.jump(end);
    c.e.asm.bind(fits);
    c.e.part(Reg::R1, apart);
    c.e.mov(Reg::R2, Reg::R9);
    c.e.mov(Reg::R3, Reg::R8);
    c.read();
    c.e.jump_if(Cond::Ne, Reg::R0, 0, end);
    // Copied onto itself as a string, it tells where it ends: the result counts the zero, which is
    // behind the piece at the latest.
    c.e.part(Reg::R1, apart);
    c.e.mov(Reg::R2, Reg::R9);
    c.e.alu(Alu::Add, Reg::R2, 1);
    c.e.mov(Reg::R3, Reg::R1);
    c.e.call(Helper::PROBE_READ_KERNEL_STR);
    c.e.mov(Reg::R2, Reg::R9);
    c.e.jump_if(Cond::Sgt, Reg::R0, Reg::R9, whole);
    c.e.jump_if(Cond::Slt, Reg::R0, 1, whole);
    c.e.mov(Reg::R2, Reg::R0);
    c.e.alu(Alu::Add, Reg::R2, -1);
    // It ends here: no room is left.
    c.e.set(Field::B, Reg::R2);
    c.e.asm.bind(whole);
    c.e.jump_if(Cond::Gt, Reg::R2, LATER, end);
    c.e.get(Reg::R4, Field::B);
    c.e.alu(Alu::Sub, Reg::R4, Reg::R2);
    c.e.set(Field::B, Reg::R4);
    c.e.alu(Alu::Add, Reg::R8, Reg::R2);
    c.e.set(Field::A, Reg::R8);
    c.e.get(Reg::R3, Field::D);
    c.e.get(Reg::R1, Field::C);
    c.e.alu(Alu::Add, Reg::R1, Reg::R3);
    c.e.alu(Alu::Add, Reg::R3, Reg::R2);
    c.e.set(Field::D, Reg::R3);
    c.e.jump_if(Cond::Gt, Reg::R1, LIMIT, end);
    c.in_frame(Reg::R4, Reg::R1);
    c.e.mov(Reg::R1, Reg::R4);
    c.e.part(Reg::R3, apart);
    c.e.call(Helper::PROBE_READ_KERNEL);
    c.e.go(Micro::FrameTextMore);

    c.e.asm.bind(end);
    finish_text(c);
}

/// Writes zeros up to a multiple of 8, as far as the frame goes, and pushes the length.
fn finish_text(c: &mut Compiler<'_>) {
    let (none, fits, padded) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    c.e.get(Reg::R8, Field::D);
    c.e.get(Reg::R1, Field::C);
    c.e.alu(Alu::Add, Reg::R1, Reg::R8);
    c.e.jump_if(Cond::Gt, Reg::R1, LIMIT, padded);
    c.e.mov(Reg::R2, Reg::R8);
    c.negate(Reg::R2);
    c.e.alu(Alu::And, Reg::R2, 7);
    c.e.mov(Reg::R3, LIMIT);
    c.e.alu(Alu::Sub, Reg::R3, Reg::R1);
    c.e.jump_if(Cond::Le, Reg::R2, Reg::R3, fits);
    c.e.mov(Reg::R2, Reg::R3);
    c.e.alu(Alu::And, Reg::R2, 7);
    c.e.asm.bind(fits);
    c.in_frame(Reg::R3, Reg::R1);
    c.e.mov(Reg::R1, Reg::R3);
    c.zeros(Reg::R3);
    c.e.call(Helper::PROBE_READ_KERNEL);
    c.e.asm.bind(padded);
    // Nothing was read, but for an empty string, which ends with no room left.
    c.e.jump_if(Cond::Ne, Reg::R8, 0, none);
    c.e.get(Reg::R1, Field::B);
    c.e.jump_if(Cond::Eq, Reg::R1, 0, none);
    c.e.mov(Reg::R8, -1);
    c.e.truncate(Reg::R8);
    c.e.asm.bind(none);
    c.e.push(Reg::R8);
    c.e.flush();
    c.go_back();
}

/// Words that one round compares, and bytes that one looks at.
const WORDS: i32 = 16;
const STEPS: usize = 16;

/// `compare fr`: `B` bytes at `A` with `D` bytes at `C`; `E` of them are equal.
pub(super) fn compare(c: &mut Compiler<'_>) {
    let (less, greater, lengths, done) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    let shorter = c.e.asm.label();
    c.e.get(Reg::R8, Field::B);
    c.e.get(Reg::R1, Field::D);
    c.e.jump_if(Cond::Le, Reg::R8, Reg::R1, shorter);
    c.e.mov(Reg::R8, Reg::R1);
    c.e.asm.bind(shorter);
    c.e.get(Reg::R9, Field::E);
    c.e.alu(Alu::Sub, Reg::R8, Reg::R9);
    // R8 = bytes that are left; R3, R4 = the addresses.
    for (field, address) in [(Field::A, Reg::R3), (Field::C, Reg::R4)] {
        c.e.get(Reg::R1, field);
        c.e.alu(Alu::Add, Reg::R1, Reg::R9);
        c.e.alu(Alu::And, Reg::R1, 2 * LIMIT - 1);
        c.in_frame(address, Reg::R1);
    }
    for word in 0..WORDS {
        let all = c.e.asm.label();
        c.e.jump_if(Cond::Eq, Reg::R8, 0, lengths);
        c.e.load(Size::Double, Reg::R1, Reg::R3, 8 * word as i16);
        c.e.load(Size::Double, Reg::R2, Reg::R4, 8 * word as i16);
        for value in [Reg::R1, Reg::R2] {
            c.e.asm.push(Insn::big_endian(Size::Double, value));
        }
        c.e.jump_if(Cond::Ge, Reg::R8, 8, all);
        // Only the first bytes of the last word count.
        c.e.mov(Reg::R0, 8);
        c.e.alu(Alu::Sub, Reg::R0, Reg::R8);
        c.e.alu(Alu::Lsh, Reg::R0, 3);
        c.e.alu(Alu::Rsh, Reg::R1, Reg::R0);
        c.e.alu(Alu::Rsh, Reg::R2, Reg::R0);
        c.e.mov(Reg::R8, 8);
        c.e.asm.bind(all);
        c.e.jump_if(Cond::Lt, Reg::R1, Reg::R2, less);
        c.e.jump_if(Cond::Gt, Reg::R1, Reg::R2, greater);
        c.e.alu(Alu::Add, Reg::R8, -8);
    }
    c.e.alu(Alu::Add, Reg::R9, 8 * WORDS);
    c.e.set(Field::E, Reg::R9);
    c.e.jump_if(Cond::Eq, Reg::R8, 0, lengths);
    c.e.go(Micro::FrameCompare);
    c.e.asm.bind(lengths);
    c.e.get(Reg::R1, Field::B);
    c.e.get(Reg::R2, Field::D);
    c.e.jump_if(Cond::Lt, Reg::R1, Reg::R2, less);
    c.e.jump_if(Cond::Gt, Reg::R1, Reg::R2, greater);
    c.e.mov(Reg::R1, 0);
    c.e.asm.jump(done);
    c.e.asm.bind(less);
    c.e.mov(Reg::R1, -1);
    c.e.truncate(Reg::R1);
    c.e.asm.jump(done);
    c.e.asm.bind(greater);
    c.e.mov(Reg::R1, 1);
    c.e.asm.bind(done);
    c.e.push(Reg::R1);
    c.e.flush();
    c.go_back();
}

/// `find fr`: `D` bytes at `C` in `B` bytes at `A`. `E` is the place that is tried, `F` the number
/// of bytes that are equal there.
pub(super) fn find(c: &mut Compiler<'_>) {
    let (found, none, done) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    c.e.get(Reg::R8, Field::E);
    c.e.get(Reg::R9, Field::F);
    for _ in 0..STEPS {
        let (differs, next) = (c.e.asm.label(), c.e.asm.label());
        c.e.get(Reg::R1, Field::D);
        c.e.jump_if(Cond::Ge, Reg::R9, Reg::R1, found);
        c.e.alu(Alu::Add, Reg::R1, Reg::R8);
        c.e.get(Reg::R2, Field::B);
        c.e.jump_if(Cond::Gt, Reg::R1, Reg::R2, none);
        c.e.get(Reg::R1, Field::A);
        c.e.alu(Alu::Add, Reg::R1, Reg::R8);
        byte(c, Reg::R1);
        c.e.get(Reg::R2, Field::C);
        byte(c, Reg::R2);
        c.e.jump_if(Cond::Ne, Reg::R1, Reg::R2, differs);
        c.e.alu(Alu::Add, Reg::R9, 1);
        c.e.asm.jump(next);
        c.e.asm.bind(differs);
        c.e.alu(Alu::Add, Reg::R8, 1);
        c.e.mov(Reg::R9, 0);
        c.e.asm.bind(next);
        // In memory the verifier forgets what it knows of them: paths meet.
        c.e.set(Field::E, Reg::R8);
        c.e.set(Field::F, Reg::R9);
        c.e.get(Reg::R8, Field::E);
        c.e.get(Reg::R9, Field::F);
    }
    c.e.go(Micro::FrameFind);
    c.e.asm.bind(found);
    c.e.mov(Reg::R1, Reg::R8);
    c.e.asm.jump(done);
    c.e.asm.bind(none);
    c.e.mov(Reg::R1, -1);
    c.e.truncate(Reg::R1);
    c.e.asm.bind(done);
    c.e.push(Reg::R1);
    c.e.flush();
    c.go_back();
}

/// Makes an offset, to which `R9` is added, the byte there.
fn byte(c: &mut Compiler<'_>, reg: Reg) {
    c.e.alu(Alu::Add, reg, Reg::R9);
    c.e.alu(Alu::And, reg, LIMIT - 1);
    c.in_frame(Reg::R3, reg);
    c.e.load(Size::Byte, reg, Reg::R3, 0);
}
