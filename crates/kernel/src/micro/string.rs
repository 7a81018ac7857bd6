//! `log str`: a string, page by page. The fields are those of `log mrf`; `E` counts the bytes
//! before the piece.

use bpf::{Alu, Cond, Helper, Reg, Size};

use super::memory::{begin, pass_piece, read_piece};
use crate::compiler::Compiler;
use crate::emit::CONTEXT;
use crate::layout::{Field, LOG, SCRATCH};
use crate::logging;
use crate::routine::Micro;

pub(super) fn text(c: &mut Compiler<'_>) {
    c.e.set(Field::E, 0);
    begin(c, Micro::TextMore);
}

pub(super) fn text_more(c: &mut Compiler<'_>) {
    let (room_used, open) = (c.e.asm.label(), c.e.asm.label());
    c.e.get(Reg::R1, Field::D);
    c.e.jump_if(Cond::Eq, Reg::R1, 0, room_used);
    read_piece(c, true);
    // The piece is in place: copied onto itself as a string, it tells where it ends. The copy ends
    // with a zero behind the piece at the latest.
    c.e.get(Reg::R1, Field::F);
    c.log_address(Reg::R1);
    c.e.alu(Alu::Add, Reg::R1, i32::from(LOG));
    c.e.mov(Reg::R2, Reg::R9);
    c.e.alu(Alu::Add, Reg::R2, 1);
    c.e.mov(Reg::R3, Reg::R1);
    c.e.call(Helper::PROBE_READ_KERNEL_STR);
    // The result counts the zero.
    c.e.jump_if(Cond::Sgt, Reg::R0, Reg::R9, open);
    c.e.jump_if(Cond::Slt, Reg::R0, 1, open);
    c.e.get(Reg::R4, Field::E);
    c.e.alu(Alu::Add, Reg::R4, Reg::R0);
    c.e.alu(Alu::Add, Reg::R4, -1);
    logging::commit(c, 1, Reg::R4);
    logging::succeed(c);
    c.e.asm.bind(open);
    c.e.get(Reg::R1, Field::E);
    c.e.alu(Alu::Add, Reg::R1, Reg::R9);
    c.e.set(Field::E, Reg::R1);
    pass_piece(c);
    c.e.go(Micro::TextMore);

    c.e.asm.bind(room_used);
    let (whole, fault, past) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    c.e.get(Reg::R4, Field::C);
    c.e.get(Reg::R1, Field::B);
    c.e.jump_if(Cond::Eq, Reg::R1, Reg::R4, whole);
    // The log is full: the string fits only if it ends here.
    c.e.get(Reg::R8, Field::A);
    c.e.get(Reg::R1, Field::G);
    c.e.jump_if(Cond::Ne, Reg::R1, 0, fault);
    c.e.part(Reg::R1, SCRATCH.into());
    c.e.mov(Reg::R2, 1);
    c.e.mov(Reg::R3, Reg::R8);
    c.read();
    c.e.jump_if(Cond::Ne, Reg::R0, 0, fault);
    c.e.load(Size::Byte, Reg::R1, CONTEXT, SCRATCH);
    c.e.jump_if(Cond::Ne, Reg::R1, 0, past);
    c.e.asm.bind(whole);
    c.e.get(Reg::R4, Field::C);
    logging::commit(c, 1, Reg::R4);
    logging::succeed(c);
    c.e.asm.bind(fault);
    c.e.set(Field::A, Reg::R8);
    c.e.go(Micro::LogFault);
    c.e.asm.bind(past);
    logging::raise_overflow(c);
}
