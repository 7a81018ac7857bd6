//! Instructions on the frame.

use bpf::{Alu, Cond, Helper, Reg, Size};
use vm::{Exception, FRAME_LIMIT, Word};

use crate::compiler::Compiler;
use crate::layout::{Field, LOG, Map};
use crate::routine::Micro;

/// `parm1` of INVALID_OPERAND: an offset in the frame.
pub(crate) const OFFSET: i32 = 8;

/// Bytes of the frame.
pub(crate) const LIMIT: i32 = FRAME_LIMIT as i32;

/// Raises unless so many bytes at an offset are in the frame. The registers are none of `R0` and
/// `R5`; then the verifier knows that each is at most the frame's size.
pub(crate) fn check(c: &mut Compiler<'_>, offset: Reg, count: Reg) {
    let beyond = c.e.raise(Exception::INVALID_OPERAND, OFFSET, offset);
    c.e.jump_if(Cond::Gt, offset, LIMIT, beyond);
    c.e.jump_if(Cond::Gt, count, LIMIT, beyond);
    c.e.mov(Reg::R0, offset);
    c.e.alu(Alu::Add, Reg::R0, count);
    c.e.jump_if(Cond::Gt, Reg::R0, LIMIT, beyond);
}

/// `push fr`
pub(crate) fn push(c: &mut Compiler<'_>, offset: u64) {
    word_at(c, offset, |c| {
        c.e.load(Size::Double, Reg::R1, Reg::R2, 0);
        c.e.truncate(Reg::R1);
        c.e.push(Reg::R1);
    });
}

/// `pop fr`
pub(crate) fn pop(c: &mut Compiler<'_>, offset: u64) {
    word_at(c, offset, |c| {
        c.e.pop(Reg::R1);
        c.e.store(Size::Double, Reg::R2, 0, Reg::R1);
    });
}

/// `push fr, u8`
pub(crate) fn push_byte(c: &mut Compiler<'_>) {
    c.e.pop(Reg::R1);
    c.e.mov(Reg::R2, 1);
    check(c, Reg::R1, Reg::R2);
    c.in_frame(Reg::R3, Reg::R1);
    c.e.load(Size::Byte, Reg::R1, Reg::R3, 0);
    c.e.push(Reg::R1);
}

/// `fill fr`
pub(crate) fn fill(c: &mut Compiler<'_>) {
    c.e.pop(Reg::R1);
    c.e.pop(Reg::R2);
    check(c, Reg::R1, Reg::R2);
    c.in_frame(Reg::R3, Reg::R1);
    c.e.mov(Reg::R1, Reg::R3);
    c.zeros(Reg::R3);
    c.e.call(Helper::PROBE_READ_KERNEL);
}

/// `read str`
pub(crate) fn text(c: &mut Compiler<'_>, next: usize) {
    c.e.pop(Reg::R1);
    c.e.pop(Reg::R3);
    c.e.pop(Reg::R2);
    check(c, Reg::R1, Reg::R2);
    for (field, reg) in [(Field::A, Reg::R3), (Field::B, Reg::R2), (Field::C, Reg::R1)] {
        c.e.set(field, reg);
    }
    c.run_routine(Micro::FrameText, next);
}

/// `compare fr` and `find fr`: a routine for the ranges (`A`, `B`) and (`C`, `D`).
pub(crate) fn two_ranges(c: &mut Compiler<'_>, routine: Micro, next: usize) {
    for field in [Field::A, Field::B, Field::C, Field::D] {
        c.e.pop(Reg::R1);
        c.e.set(field, Reg::R1);
    }
    for (offset, count) in [(Field::A, Field::B), (Field::C, Field::D)] {
        c.e.get(Reg::R1, offset);
        c.e.get(Reg::R2, count);
        check(c, Reg::R1, Reg::R2);
    }
    c.e.set(Field::E, 0);
    c.e.set(Field::F, 0);
    c.run_routine(routine, next);
}

/// Does something with the word at an offset, whose address is in `R2`.
fn word_at(c: &mut Compiler<'_>, offset: u64, with: impl Fn(&mut Compiler<'_>)) {
    if offset as i32 > LIMIT - 8 {
        return c.raise_always(Exception::INVALID_OPERAND, OFFSET, offset as i32);
    }
    let place = c.layout.frame + offset as i32;
    c.e.part(Reg::R2, place);
    with(c);
}

/// `move fr`: by way of the room behind the frame, as the ranges may overlap.
pub(crate) fn copy(c: &mut Compiler<'_>) {
    c.e.pop(Reg::R8);
    c.e.pop(Reg::R9);
    c.e.pop(Reg::R2);
    check(c, Reg::R8, Reg::R2);
    check(c, Reg::R9, Reg::R2);
    c.e.set(Field::A, Reg::R2);
    c.e.part(Reg::R1, c.layout.frame + LIMIT);
    c.in_frame(Reg::R3, Reg::R9);
    c.e.call(Helper::PROBE_READ_KERNEL);
    let done = c.e.asm.label();
    c.e.get(Reg::R2, Field::A);
    c.e.jump_if(Cond::Gt, Reg::R2, LIMIT, done);
    c.in_frame(Reg::R1, Reg::R8);
    c.e.part(Reg::R3, c.layout.frame + LIMIT);
    c.e.call(Helper::PROBE_READ_KERNEL);
    c.e.asm.bind(done);
}

/// `read fr`
pub(crate) fn read(c: &mut Compiler<'_>) {
    let (read, fault, done) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    c.e.pop(Reg::R8);
    c.e.pop(Reg::R3);
    c.e.pop(Reg::R9);
    check(c, Reg::R8, Reg::R9);
    // Nothing can be read anywhere.
    c.e.jump_if(Cond::Eq, Reg::R9, 0, read);
    if c.handler.word == Word::W4 {
        // Addresses do not wrap, and the process may have memory behind the last one.
        c.e.mov(Reg::R1, Reg::R3);
        c.e.alu(Alu::Add, Reg::R1, Reg::R9);
        c.e.number(Reg::R2, 1 << 32);
        c.e.jump_if(Cond::Gt, Reg::R1, Reg::R2, fault);
    }
    c.in_frame(Reg::R1, Reg::R8);
    c.e.mov(Reg::R2, Reg::R9);
    c.read();
    c.e.jump_if(Cond::Eq, Reg::R0, 0, read);
    c.e.asm.bind(fault);
    c.in_frame(Reg::R1, Reg::R8);
    c.e.mov(Reg::R2, Reg::R9);
    c.zeros(Reg::R3);
    c.e.call(Helper::PROBE_READ_KERNEL);
    c.e.mov(Reg::R1, 0);
    c.e.asm.jump(done);
    c.e.asm.bind(read);
    c.e.mov(Reg::R1, 1);
    c.e.asm.bind(done);
    c.e.push(Reg::R1);
}

/// `text fr`: the list of constants is in the memory of the maps, their number in the program.
pub(crate) fn constant(c: &mut Compiler<'_>) {
    let shape = c.handler.tables;
    let counts = shape.counts();
    let (none, done) = (c.e.asm.label(), c.e.asm.label());
    c.e.pop(Reg::R8);
    c.e.pop(Reg::R1);
    let top = c.e.top;
    c.e.mov(Reg::R2, Reg::R1);
    c.e.alu(Alu::Rsh, Reg::R2, 32);
    c.e.asm.push(bpf::Insn::mov32(Reg::R1, Reg::R1));
    let found = c.e.asm.label();
    let mut before = 0;
    for (class, count) in (0..).zip(counts) {
        let other = c.e.asm.label();
        c.e.jump_if(Cond::Ne, Reg::R2, class, other);
        c.e.jump_if(Cond::Ge, Reg::R1, count as i32, none);
        c.e.alu(Alu::Add, Reg::R1, before);
        c.e.asm.jump(found);
        c.e.asm.bind(other);
        before += count as i32;
    }
    c.e.asm.jump(none);
    c.e.asm.bind(found);
    c.e.jump_if(Cond::Ge, Reg::R1, before, none);
    let at = shape.constants_at() as u32;
    c.e.alu(Alu::Lsh, Reg::R1, 3);
    c.e.map_value(Reg::R3, Map::Tables, at);
    c.e.alu(Alu::Add, Reg::R1, Reg::R3);
    c.e.load(Size::Word, Reg::R2, Reg::R1, 0);
    c.e.load(Size::Word, Reg::R9, Reg::R1, 4);
    c.e.alu(Alu::Add, Reg::R3, Reg::R2);
    check(c, Reg::R8, Reg::R9);
    // The zeros behind it are copied, too, as far as the frame goes.
    let fits = c.e.asm.label();
    c.e.mov(Reg::R2, Reg::R9);
    c.e.alu(Alu::Add, Reg::R2, 7);
    c.e.alu(Alu::And, Reg::R2, -8);
    c.e.mov(Reg::R1, LIMIT);
    c.e.alu(Alu::Sub, Reg::R1, Reg::R8);
    c.e.jump_if(Cond::Le, Reg::R2, Reg::R1, fits);
    c.e.mov(Reg::R2, Reg::R1);
    c.e.asm.bind(fits);
    c.e.jump_if(Cond::Gt, Reg::R2, LIMIT, none);
    c.in_frame(Reg::R1, Reg::R8);
    c.e.call(Helper::PROBE_READ_KERNEL);
    c.e.mov(Reg::R1, Reg::R9);
    c.e.asm.jump(done);
    c.e.asm.bind(none);
    c.e.mov(Reg::R1, -1);
    c.e.truncate(Reg::R1);
    c.e.asm.bind(done);
    c.e.top = top;
    c.e.push(Reg::R1);
}

/// `log fr` and `log text`
pub(crate) fn log(c: &mut Compiler<'_>, with_length: bool) {
    c.e.pop(Reg::R8);
    c.e.pop(Reg::R9);
    let (full, done) = (c.e.asm.label(), c.e.asm.label());
    check(c, Reg::R8, Reg::R9);
    c.e.mov(Reg::R2, Reg::R9);
    if with_length {
        c.e.alu(Alu::Add, Reg::R2, 15);
        c.e.alu(Alu::And, Reg::R2, -8);
    }
    c.e.get(Reg::R3, Field::Length);
    c.e.mov(Reg::R4, Reg::R3);
    c.e.alu(Alu::Add, Reg::R4, Reg::R2);
    c.e.jump_if(Cond::Gt, Reg::R4, c.log_limit(), full);
    c.e.set(Field::A, Reg::R4);
    c.log_address(Reg::R3);
    c.e.alu(Alu::Add, Reg::R3, i32::from(LOG));
    if with_length {
        c.e.store(Size::Double, Reg::R3, 0, Reg::R9);
        c.e.alu(Alu::Add, Reg::R3, 8);
        // The last word is zeros but for the bytes that are copied into it.
        c.e.mov(Reg::R1, Reg::R3);
        c.e.alu(Alu::Add, Reg::R1, Reg::R9);
        c.e.store_imm(Size::Double, Reg::R1, 0, 0);
    }
    c.e.mov(Reg::R1, Reg::R3);
    c.e.mov(Reg::R2, Reg::R9);
    c.in_frame(Reg::R3, Reg::R8);
    c.e.call(Helper::PROBE_READ_KERNEL);
    c.e.get(Reg::R1, Field::A);
    c.e.set(Field::Length, Reg::R1);
    c.e.set(Field::Complete, Reg::R1);
    if c.handler.mask & Exception::LOG_OVERFLOW == 0 {
        c.e.asm.bind(full);
    } else {
        let limit = c.log_limit();
        let raise = c.e.raise(Exception::LOG_OVERFLOW, limit, 0);
        c.e.asm.jump(done);
        c.e.asm.bind(full);
        c.e.asm.jump(raise);
        c.e.asm.bind(done);
    }
}

/// `comm fr`
pub(crate) fn name(c: &mut Compiler<'_>) {
    const BYTES: i16 = 16;
    let done = c.e.asm.label();
    c.e.pop(Reg::R8);
    c.e.mov(Reg::R2, i32::from(BYTES));
    check(c, Reg::R8, Reg::R2);
    c.in_frame(Reg::R1, Reg::R8);
    c.e.thread_name();
    c.in_frame(Reg::R2, Reg::R8);
    for place in 0..BYTES {
        c.e.mov(Reg::R1, i32::from(place));
        c.e.load(Size::Byte, Reg::R3, Reg::R2, place);
        c.e.jump_if(Cond::Eq, Reg::R3, 0, done);
    }
    c.e.mov(Reg::R1, i32::from(BYTES));
    c.e.asm.bind(done);
    c.e.push(Reg::R1);
}
