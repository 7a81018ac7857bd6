//! `log mrf`: memory, page by page.
//!
//! `A` is the next address, `B` the bytes asked for, `C` those that fit, `D` those that are left,
//! `F` their place in the log, `G` whether the last address has been passed.

use bpf::{Alu, Cond, Reg};

use super::fault::rest_of_page;
use crate::compiler::Compiler;
use crate::layout::{Field, LOG, PIECE};
use crate::logging;
use crate::routine::Micro;

/// Begins to log `B` bytes at `A`.
pub(super) fn memory(c: &mut Compiler<'_>) {
    begin(c, Micro::MemoryMore);
}

/// Prepares for `B` bytes behind a prefix.
pub(super) fn begin(c: &mut Compiler<'_>, micro: Micro) {
    let (fits, full) = (c.e.asm.label(), c.e.asm.label());
    c.e.get(Reg::R1, Field::Length);
    c.e.mov(Reg::R2, c.log_limit() - 3);
    c.e.alu(Alu::Sub, Reg::R2, Reg::R1);
    c.e.jump_if(Cond::Slt, Reg::R2, 0, full);
    c.e.alu(Alu::Add, Reg::R1, 3);
    c.e.set(Field::F, Reg::R1);
    c.e.get(Reg::R1, Field::B);
    c.e.jump_if(Cond::Le, Reg::R2, Reg::R1, fits);
    c.e.mov(Reg::R2, Reg::R1);
    c.e.asm.bind(fits);
    c.e.set(Field::C, Reg::R2);
    c.e.set(Field::D, Reg::R2);
    c.e.set(Field::G, 0);
    c.e.go(micro);
    c.e.asm.bind(full);
    match micro {
        // A string that does not fit ends the handler even if LOG_OVERFLOW is masked.
        Micro::TextMore => logging::raise_overflow(c),
        _ => logging::overflow(c),
    }
}

/// Reads a piece, at most `most` bytes, into the log: `R9` bytes at the address `R8`, which is
/// moved behind them. Logs a fault if they cannot be read.
pub(super) fn read_piece(c: &mut Compiler<'_>, short_first: bool) {
    let (past, bounded, within) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    c.e.get(Reg::R1, Field::G);
    c.e.get(Reg::R8, Field::A);
    c.e.jump_if(Cond::Ne, Reg::R1, 0, past);
    rest_of_page(c, Reg::R9, Reg::R1);
    c.e.get(Reg::R1, Field::D);
    if short_first {
        // Most strings end in their first bytes.
        let later = c.e.asm.label();
        c.e.get(Reg::R2, Field::C);
        c.e.jump_if(Cond::Ne, Reg::R1, Reg::R2, later);
        c.e.jump_if(Cond::Le, Reg::R9, 128, later);
        c.e.mov(Reg::R9, 128);
        c.e.asm.bind(later);
    }
    c.e.jump_if(Cond::Le, Reg::R9, Reg::R1, bounded);
    c.e.mov(Reg::R9, Reg::R1);
    c.e.asm.bind(bounded);
    // The verifier does not know that this is so.
    c.e.jump_if(Cond::Le, Reg::R9, PIECE, within);
    c.e.asm.bind(past);
    let fault = c.e.asm.label();
    c.e.asm.bind(fault);
    c.e.set(Field::A, Reg::R8);
    c.e.go(Micro::LogFault);
    c.e.asm.bind(within);
    c.e.get(Reg::R1, Field::F);
    c.log_address(Reg::R1);
    c.e.alu(Alu::Add, Reg::R1, i32::from(LOG));
    c.e.mov(Reg::R2, Reg::R9);
    c.e.mov(Reg::R3, Reg::R8);
    c.read();
    let read = c.e.asm.label();
    c.e.jump_if(Cond::Eq, Reg::R0, 0, read);
    c.e.set(Field::A, Reg::R8);
    c.e.go(Micro::LogFault);
    c.e.asm.bind(read);
}

/// Goes on behind the piece.
pub(super) fn pass_piece(c: &mut Compiler<'_>) {
    let there = c.e.asm.label();
    c.e.get(Reg::R1, Field::F);
    c.e.alu(Alu::Add, Reg::R1, Reg::R9);
    c.e.set(Field::F, Reg::R1);
    c.e.get(Reg::R1, Field::D);
    c.e.alu(Alu::Sub, Reg::R1, Reg::R9);
    c.e.set(Field::D, Reg::R1);
    c.e.alu(Alu::Add, Reg::R8, Reg::R9);
    c.e.truncate(Reg::R8);
    c.e.set(Field::A, Reg::R8);
    c.e.jump_if(Cond::Ne, Reg::R8, 0, there);
    c.e.set(Field::G, 1);
    c.e.asm.bind(there);
}

pub(super) fn memory_more(c: &mut Compiler<'_>) {
    let (done, whole) = (c.e.asm.label(), c.e.asm.label());
    c.e.get(Reg::R1, Field::D);
    c.e.jump_if(Cond::Eq, Reg::R1, 0, done);
    read_piece(c, false);
    pass_piece(c);
    c.e.go(Micro::MemoryMore);
    c.e.asm.bind(done);
    c.e.get(Reg::R4, Field::C);
    logging::commit(c, 0, Reg::R4);
    c.e.get(Reg::R1, Field::B);
    c.e.jump_if(Cond::Eq, Reg::R1, Reg::R4, whole);
    logging::overflow(c);
    c.e.asm.bind(whole);
    logging::succeed(c);
}
