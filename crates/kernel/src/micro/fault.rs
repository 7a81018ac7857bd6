//! Memory that cannot be accessed. Whether it can is the same for all bytes of a page: so the first
//! address that cannot is where the access begins, or where the next page begins.

use bpf::{Alu, Cond, Helper, Reg, Size};
use vm::{Exception, Word};

use crate::compiler::Compiler;
use crate::emit::CONTEXT;
use crate::layout::{Field, LOG, PIECE, SCRATCH, bytes};
use crate::logging;

/// `dst` = the bytes from the address in `R8` to the end of its page.
pub(super) fn rest_of_page(c: &mut Compiler<'_>, dst: Reg, scratch: Reg) {
    c.e.mov(scratch, Reg::R8);
    c.e.alu(Alu::And, scratch, PIECE - 1);
    c.e.mov(dst, PIECE);
    c.e.alu(Alu::Sub, dst, scratch);
}

/// Raises INVALID_ADDR with the address in `R8`.
fn raise(c: &mut Compiler<'_>) {
    let raise = c.e.raise(Exception::INVALID_ADDR, Reg::R8, 0);
    c.e.asm.jump(raise);
}

pub(super) fn fault(c: &mut Compiler<'_>) {
    let first = c.e.asm.label();
    c.e.get(Reg::R8, Field::A);
    rest_of_page(c, Reg::R9, Reg::R1);
    c.e.get(Reg::R2, Field::B);
    c.e.jump_if(Cond::Le, Reg::R2, Reg::R9, first);
    // At most 8 bytes pass the end of the page, so at most 7 are before it.
    c.e.alu(Alu::And, Reg::R9, 7);
    c.e.part(Reg::R1, SCRATCH.into());
    c.e.mov(Reg::R2, Reg::R9);
    c.e.mov(Reg::R3, Reg::R8);
    c.read();
    c.e.jump_if(Cond::Ne, Reg::R0, 0, first);
    c.e.alu(Alu::Add, Reg::R8, Reg::R9);
    c.e.truncate(Reg::R8);
    c.e.asm.bind(first);
    raise(c);
}

/// A store into two pages is done whole or not at all: what each holds is written back first, to
/// see whether it can be written.
pub(super) fn store(c: &mut Compiler<'_>) {
    let (whole, split, past) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    let first = c.e.asm.label();
    c.e.get(Reg::R8, Field::A);
    c.e.get(Reg::R1, Field::C);
    c.e.store(Size::Double, CONTEXT, SCRATCH + 16, Reg::R1);
    rest_of_page(c, Reg::R9, Reg::R1);
    c.e.get(Reg::R2, Field::B);
    c.e.jump_if(Cond::Gt, Reg::R2, Reg::R9, split);
    c.e.asm.bind(whole);
    c.e.get(Reg::R3, Field::B);
    c.e.get(Reg::R1, Field::A);
    write(c, SCRATCH + 16, first);
    c.e.jump_if(Cond::Ne, Reg::R0, 0, first);
    c.go_back();
    c.e.asm.bind(first);
    raise(c);

    c.e.asm.bind(split);
    rewrite(c, first);
    // The second page: R8 is its address, R9 the bytes there.
    c.e.alu(Alu::Add, Reg::R8, Reg::R9);
    c.e.get(Reg::R2, Field::B);
    c.e.alu(Alu::Sub, Reg::R2, Reg::R9);
    c.e.mov(Reg::R9, Reg::R2);
    if c.handler.word == Word::W4 {
        c.e.mov(Reg::R1, Reg::R8);
        c.e.alu(Alu::Rsh, Reg::R1, 32);
        c.e.jump_if(Cond::Ne, Reg::R1, 0, past);
    } else {
        c.e.jump_if(Cond::Eq, Reg::R8, 0, past);
    }
    rewrite(c, first);
    c.e.asm.jump(whole);
    c.e.asm.bind(past);
    c.e.mov(Reg::R8, 0);
    c.e.asm.jump(first);
}

/// Reads `R9` bytes, at most 7, at the address `R8`, and writes them back.
fn rewrite(c: &mut Compiler<'_>, fault: bpf::Label) {
    c.e.alu(Alu::And, Reg::R9, 7);
    c.e.part(Reg::R1, SCRATCH.into());
    c.e.mov(Reg::R2, Reg::R9);
    c.e.mov(Reg::R3, Reg::R8);
    c.read();
    c.e.jump_if(Cond::Ne, Reg::R0, 0, fault);
    c.e.mov(Reg::R3, Reg::R9);
    c.e.mov(Reg::R1, Reg::R8);
    write(c, SCRATCH, fault);
    c.e.jump_if(Cond::Ne, Reg::R0, 0, fault);
}

/// `R0` = 0 if `R3` bytes, 1 to 8, were written to the address `R1`.
fn write(c: &mut Compiler<'_>, from: i16, none: bpf::Label) {
    c.e.alu(Alu::And, Reg::R3, 15);
    c.e.jump_if(Cond::Lt, Reg::R3, 1, none);
    c.e.part(Reg::R2, from.into());
    c.e.call(Helper::PROBE_WRITE_USER);
}

pub(super) fn log_fault(c: &mut Compiler<'_>) {
    let word = bytes(c.handler.word);
    let size = 3 + word;
    c.e.get(Reg::R8, Field::A);
    if size > c.log_limit() {
        return not_fitting(c);
    }
    let full = c.e.asm.label();
    c.e.get(Reg::R2, Field::Length);
    c.e.jump_if(Cond::Gt, Reg::R2, c.log_limit() - size, full);
    c.e.mov(Reg::R1, word);
    logging::prefix(c, 0xff, Reg::R1);
    let width = c.word_size();
    c.e.store(width, Reg::R3, LOG + 3, Reg::R8);
    c.e.alu(Alu::Add, Reg::R2, size);
    c.e.set(Field::Length, Reg::R2);
    raise(c);
    c.e.asm.bind(full);
    not_fitting(c);
}

/// Raises the exception of a fault record that does not fit.
fn not_fitting(c: &mut Compiler<'_>) {
    if c.handler.mask & Exception::LOG_OVERFLOW == 0 {
        return raise(c);
    }
    let limit = c.log_limit();
    let raise = c.e.raise(Exception::LOG_OVERFLOW, limit, 0);
    c.e.asm.jump(raise);
}
