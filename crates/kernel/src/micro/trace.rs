//! Writes a stack trace, in the layout of [`vm::State::trace`]: a word, or a few bytes, a step.
//!
//! `E` is the depth of the frame, `G` the number of its range, `A` the next element or variable,
//! `B` those that are left, `C` whether all fit.

use bpf::{Alu, Cond, Label, Reg, Size};
use vm::TRACE_LIMIT;

use crate::access::Variables;
use crate::compiler::Compiler;
use crate::emit::CONTEXT;
use crate::layout::{FRAME, FRAME_MASK, FRAMES, Field, bytes, frame};
use crate::routine::Micro;

/// Bytes of a header without the module's name.
const HEADER: usize = 20;
/// Bytes of a prefix.
pub(super) const PREFIX: i32 = 3;

/// The module's name in the header.
fn name<'a>(c: &Compiler<'a>) -> &'a [u8] {
    let module = c.handler.point.module;
    &module[..module.len().min(TRACE_LIMIT)]
}

/// Bytes of the header.
pub(super) fn header(c: &Compiler<'_>) -> i32 {
    (HEADER + name(c).len()) as i32
}

/// Bytes of stack traces of a run.
fn limit(c: &Compiler<'_>) -> i32 {
    c.handler.excpt_log.min(TRACE_LIMIT) as i32
}

/// Goes on where a trace was asked for.
fn go_on_after_trace(c: &mut Compiler<'_>) {
    let bytecode = c.e.asm.label();
    c.e.get(Reg::R1, Field::BackFromTrace);
    c.e.jump_if(Cond::Eq, Reg::R1, 0, bytecode);
    c.e.set(Field::Next, Reg::R1);
    c.e.end_step();
    c.e.asm.bind(bytecode);
    c.go_back();
}

/// Notes that the trace is cut off.
fn cut_off(c: &mut Compiler<'_>, label: Label) {
    c.e.asm.bind(label);
    c.e.set(Field::TraceFull, 1);
    go_on_after_trace(c);
}

/// `dst` = the address of a place in the stack traces, which is in `dst`.
pub(super) fn trace_address(c: &mut Compiler<'_>, dst: Reg) {
    c.e.alu(Alu::And, dst, c.layout.traces - 1);
    c.e.alu(Alu::Add, dst, CONTEXT);
    c.e.alu(Alu::Add, dst, c.layout.trace);
}

/// `R3` = the address of the next byte, if so many fit. Then `R2` is where it is.
fn next_byte(c: &mut Compiler<'_>, size: i32, full: Label) {
    c.e.get(Reg::R2, Field::TraceLength);
    match limit(c) - size {
        most @ 0.. => c.e.jump_if(Cond::Gt, Reg::R2, most, full),
        _ => c.e.asm.jump(full),
    }
    c.e.mov(Reg::R3, Reg::R2);
    trace_address(c, Reg::R3);
}

/// Notes that so many bytes were written.
fn wrote(c: &mut Compiler<'_>, size: i32) {
    c.e.alu(Alu::Add, Reg::R2, size);
    c.e.set(Field::TraceLength, Reg::R2);
}

pub(super) fn trace(c: &mut Compiler<'_>) {
    let (full, begun, skipped) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    let word = bytes(c.handler.word);
    c.e.get(Reg::R1, Field::TraceFull);
    c.e.jump_if(Cond::Ne, Reg::R1, 0, skipped);
    c.e.get(Reg::R1, Field::TraceLength);
    c.e.jump_if(Cond::Ne, Reg::R1, 0, begun);
    write_header(c, full);
    c.e.asm.bind(begun);
    // These and the number of frames are written together or not at all.
    let size = c.word_size();
    next_byte(c, 4 * word + PREFIX, full);
    c.frame(Reg::R4);
    c.e.load(Size::Double, Reg::R4, Reg::R4, FRAMES + frame::HANDLER);
    c.e.alu(Alu::Add, Reg::R4, -1);
    c.e.store(size, Reg::R3, word as i16, Reg::R4);
    for (place, field) in [(0, Field::LastCode), (2, Field::LastParm1), (3, Field::LastParm2)] {
        c.e.get(Reg::R4, field);
        c.e.store(size, Reg::R3, place * word as i16, Reg::R4);
    }
    c.e.get(Reg::R4, Field::Depth);
    c.e.set(Field::E, Reg::R4);
    c.e.store_imm(Size::Byte, Reg::R3, 4 * word as i16, 3);
    c.e.store(Size::Half, Reg::R3, 4 * word as i16 + 1, Reg::R4);
    wrote(c, 4 * word + PREFIX);
    count_trace(c);
    c.e.go(Micro::TraceFrame);
    c.e.asm.bind(skipped);
    go_on_after_trace(c);
    cut_off(c, full);
}

/// Writes the header, whole or not at all.
fn write_header(c: &mut Compiler<'_>, full: Label) {
    if header(c) > limit(c) {
        return c.e.asm.jump(full);
    }
    let point = c.handler.point;
    let mut header = vec![1];
    header.extend((name(c).len() as u16).to_le_bytes());
    header.extend(name(c));
    header.extend(point.offset.to_le_bytes());
    for number in [point.id, point.major, point.minor] {
        header.extend((number as u16).to_le_bytes());
    }
    header.extend([2, 0, 0]);
    c.e.part(Reg::R3, c.layout.trace);
    for (place, chunk) in header.chunks(4).enumerate() {
        let place = 4 * place as i16;
        match *chunk {
            [a, b, third, d] => {
                c.e.store_imm(Size::Word, Reg::R3, place, i32::from_le_bytes([a, b, third, d]));
            }
            _ => {
                for (byte, offset) in chunk.iter().zip(place..) {
                    c.e.store_imm(Size::Byte, Reg::R3, offset, i32::from(*byte));
                }
            }
        }
    }
    c.e.set(Field::TraceLength, header.len() as i32);
}

/// Counts the trace in the header.
fn count_trace(c: &mut Compiler<'_>) {
    let most = c.e.asm.label();
    let place = header(c).min(i32::from(i16::MAX)) as i16 - 2;
    c.e.part(Reg::R3, c.layout.trace);
    c.e.load(Size::Half, Reg::R1, Reg::R3, place);
    c.e.jump_if(Cond::Eq, Reg::R1, 0xffff, most);
    c.e.alu(Alu::Add, Reg::R1, 1);
    c.e.store(Size::Half, Reg::R3, place, Reg::R1);
    c.e.asm.bind(most);
}

/// `R1` = the address of the frame with the depth `E`, but for [`FRAMES`]; `R4` = its depth.
fn traced_frame(c: &mut Compiler<'_>) {
    c.e.get(Reg::R4, Field::E);
    c.e.mov(Reg::R1, Reg::R4);
    c.e.alu(Alu::And, Reg::R1, FRAME_MASK);
    c.e.alu(Alu::Mul, Reg::R1, FRAME);
    c.e.alu(Alu::Add, Reg::R1, CONTEXT);
}

pub(super) fn frame(c: &mut Compiler<'_>) {
    let (full, done) = (c.e.asm.label(), c.e.asm.label());
    let (word, size) = (bytes(c.handler.word), c.word_size());
    traced_frame(c);
    c.e.jump_if(Cond::Eq, Reg::R4, 0, done);
    for value in [frame::CALLEE, frame::BACK] {
        next_byte(c, word, full);
        c.e.load(Size::Double, Reg::R4, Reg::R1, FRAMES + value);
        c.e.store(size, Reg::R3, 0, Reg::R4);
        wrote(c, word);
    }
    c.e.set(Field::G, 0);
    c.e.go(Micro::TraceRange);
    c.e.asm.bind(done);
    go_on_after_trace(c);
    cut_off(c, full);
}

pub(super) fn range(c: &mut Compiler<'_>) {
    let (full, done) = (c.e.asm.label(), c.e.asm.label());
    c.e.get(Reg::R8, Field::G);
    c.e.jump_if(Cond::Ge, Reg::R8, 3, done);
    traced_frame(c);
    c.e.mov(Reg::R3, Reg::R8);
    c.e.alu(Alu::Lsh, Reg::R3, 4);
    c.e.alu(Alu::And, Reg::R3, 0x30);
    c.e.alu(Alu::Add, Reg::R1, Reg::R3);
    c.e.load(Size::Double, Reg::R9, Reg::R1, FRAMES + frame::ELEMENTS);
    c.e.load(Size::Double, Reg::R4, Reg::R1, FRAMES + frame::ELEMENTS + 8);
    c.e.set(Field::A, Reg::R9);
    // Those that exist: R4.
    let exist = c.e.asm.label();
    for (number, which) in [(1, Variables::Local), (2, Variables::Global)] {
        let (other, some, fewer) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
        c.e.jump_if(Cond::Ne, Reg::R8, number, other);
        c.e.mov(Reg::R1, 0);
        c.e.jump_if(Cond::Ge, Reg::R9, c.count_of(which), some);
        c.e.mov(Reg::R1, c.count_of(which));
        c.e.alu(Alu::Sub, Reg::R1, Reg::R9);
        c.e.asm.bind(some);
        c.e.jump_if(Cond::Le, Reg::R4, Reg::R1, fewer);
        c.e.mov(Reg::R4, Reg::R1);
        c.e.asm.bind(fewer);
        c.e.asm.jump(exist);
        c.e.asm.bind(other);
    }
    c.e.asm.bind(exist);
    next_byte(c, PREFIX, full);
    // Those that fit: R1.
    let all = c.e.asm.label();
    c.e.mov(Reg::R1, limit(c) - PREFIX);
    c.e.alu(Alu::Sub, Reg::R1, Reg::R2);
    c.e.alu(Alu::Rsh, Reg::R1, bytes(c.handler.word).trailing_zeros() as i32);
    c.e.set(Field::C, 0);
    c.e.jump_if(Cond::Lt, Reg::R1, Reg::R4, all);
    c.e.mov(Reg::R1, Reg::R4);
    c.e.set(Field::C, 1);
    c.e.asm.bind(all);
    c.e.set(Field::B, Reg::R1);
    c.e.alu(Alu::Add, Reg::R8, 4);
    c.e.store(Size::Byte, Reg::R3, 0, Reg::R8);
    c.e.store(Size::Half, Reg::R3, 1, Reg::R1);
    wrote(c, PREFIX);
    c.e.go(Micro::TraceWords);
    c.e.asm.bind(done);
    c.e.get(Reg::R1, Field::E);
    c.e.alu(Alu::Add, Reg::R1, -1);
    c.e.set(Field::E, Reg::R1);
    c.e.go(Micro::TraceFrame);
    cut_off(c, full);
}

pub(super) fn words(c: &mut Compiler<'_>) {
    let (full, done, write) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    c.e.get(Reg::R1, Field::B);
    c.e.jump_if(Cond::Eq, Reg::R1, 0, done);
    c.e.alu(Alu::Add, Reg::R1, -1);
    c.e.set(Field::B, Reg::R1);
    c.e.get(Reg::R4, Field::A);
    c.e.mov(Reg::R1, Reg::R4);
    c.e.alu(Alu::Add, Reg::R1, 1);
    c.e.set(Field::A, Reg::R1);
    c.e.get(Reg::R1, Field::G);
    for (number, which) in [(1, Variables::Local), (2, Variables::Global)] {
        let other = c.e.asm.label();
        c.e.jump_if(Cond::Ne, Reg::R1, number, other);
        if c.count_of(which) > 0 {
            c.e.jump_if(Cond::Ge, Reg::R4, c.count_of(which), full);
            c.e.alu(Alu::Lsh, Reg::R4, 3);
            c.e.map_value(Reg::R3, which.map(), 0);
            c.e.alu(Alu::Add, Reg::R4, Reg::R3);
            c.e.load(Size::Double, Reg::R4, Reg::R4, 0);
        }
        c.e.asm.jump(write);
        c.e.asm.bind(other);
    }
    let (base, offset) = c.e.slot_address(Reg::R4);
    c.e.load(Size::Double, Reg::R4, base, offset);
    c.e.asm.bind(write);
    next_byte(c, bytes(c.handler.word), full);
    let size = c.word_size();
    c.e.store(size, Reg::R3, 0, Reg::R4);
    wrote(c, bytes(c.handler.word));
    c.e.go(Micro::TraceWords);
    c.e.asm.bind(done);
    c.e.get(Reg::R1, Field::C);
    c.e.jump_if(Cond::Eq, Reg::R1, 0, full);
    c.e.get(Reg::R1, Field::G);
    c.e.alu(Alu::Add, Reg::R1, 1);
    c.e.set(Field::G, Reg::R1);
    c.e.go(Micro::TraceRange);
    cut_off(c, full);
}
