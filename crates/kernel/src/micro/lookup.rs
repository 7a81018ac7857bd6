//! Finds a heap block by its handle: a binary search, since the table is sorted by handle.
//!
//! `A` is the handle, `B` the offset that was popped with it, `C` the routine that goes on with the
//! block's number in `D`; `G` and `H` enclose where it can be.

use bpf::{Alu, Cond, Reg, Size};
use vm::Exception;

use crate::compiler::Compiler;
use crate::emit::CONTEXT;
use crate::layout::{BLOCK_MASK, Field};
use crate::routine::Micro;

/// The handle in a row of the table.
pub(super) const HANDLE: i16 = 0;
/// Where the block begins.
pub(super) const START: i16 = 4;
/// Its size.
pub(super) const SIZE: i16 = 6;

/// Makes a block's number in a register the address of its row.
pub(super) fn row(c: &mut Compiler<'_>, number: Reg) {
    c.e.alu(Alu::And, number, BLOCK_MASK);
    c.e.alu(Alu::Lsh, number, 3);
    c.e.alu(Alu::Add, number, CONTEXT);
    c.e.alu(Alu::Add, number, c.layout.blocks);
}

pub(super) fn find(c: &mut Compiler<'_>) {
    c.e.set(Field::G, 0);
    c.e.get(Reg::R1, Field::Blocks);
    c.e.set(Field::H, Reg::R1);
    c.e.go(Micro::FindMore);
}

pub(super) fn find_more(c: &mut Compiler<'_>) {
    let (found, above) = (c.e.asm.label(), c.e.asm.label());
    c.e.get(Reg::R1, Field::A);
    c.e.get(Reg::R2, Field::B);
    let none = c.e.raise(Exception::INVALID_HANDLE, Reg::R1, Reg::R2);
    c.e.get(Reg::R3, Field::G);
    c.e.get(Reg::R4, Field::H);
    c.e.jump_if(Cond::Ge, Reg::R3, Reg::R4, none);
    c.e.alu(Alu::Add, Reg::R3, Reg::R4);
    c.e.alu(Alu::Rsh, Reg::R3, 1);
    c.e.mov(Reg::R4, Reg::R3);
    row(c, Reg::R4);
    c.e.load(Size::Word, Reg::R4, Reg::R4, HANDLE);
    c.e.jump_if(Cond::Eq, Reg::R4, Reg::R1, found);
    c.e.jump_if(Cond::Lt, Reg::R4, Reg::R1, above);
    c.e.set(Field::H, Reg::R3);
    c.e.go(Micro::FindMore);
    c.e.asm.bind(above);
    c.e.alu(Alu::Add, Reg::R3, 1);
    c.e.set(Field::G, Reg::R3);
    c.e.go(Micro::FindMore);
    c.e.asm.bind(found);
    c.e.set(Field::D, Reg::R3);
    c.e.get(Reg::R1, Field::C);
    c.e.set(Field::Next, Reg::R1);
    c.e.end_step();
}
