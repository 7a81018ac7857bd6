//! The heap: blocks side by side in the order of their handles, so that those behind a freed one
//! move down.

use bpf::{Alu, Cond, Helper, Label, Reg, Size};
use vm::{Exception, HEAP_BLOCKS, HEAP_LIMIT, Word};

use super::lookup::{HANDLE, SIZE, START, row};
use crate::compiler::Compiler;
use crate::emit::CONTEXT;
use crate::layout::{Field, HEAP_MASK, PIECE};
use crate::routine::Micro;

/// Makes a place in the heap in a register its address.
fn address(c: &mut Compiler<'_>, place: Reg) {
    c.e.alu(Alu::And, place, HEAP_MASK);
    c.e.alu(Alu::Add, place, CONTEXT);
    c.e.alu(Alu::Add, place, c.layout.heap);
}

pub(super) fn allocate(c: &mut Compiler<'_>) {
    c.e.get(Reg::R1, Field::A);
    let none = c.e.raise(Exception::HEAP_NOMEM, Reg::R1, 0);
    c.e.get(Reg::R2, Field::HeapUsed);
    c.e.mov(Reg::R3, c.handler.heap.min(HEAP_LIMIT) as i32);
    c.e.alu(Alu::Sub, Reg::R3, Reg::R2);
    c.e.jump_if(Cond::Gt, Reg::R1, Reg::R3, none);
    c.e.get(Reg::R4, Field::Blocks);
    c.e.jump_if(Cond::Ge, Reg::R4, HEAP_BLOCKS as i32, none);
    c.e.mov(Reg::R3, Reg::R4);
    row(c, Reg::R3);
    c.e.alu(Alu::Add, Reg::R4, 1);
    c.e.set(Field::Blocks, Reg::R4);
    c.e.get(Reg::R4, Field::LastHandle);
    c.e.alu(Alu::Add, Reg::R4, 1);
    c.e.set(Field::LastHandle, Reg::R4);
    c.e.store(Size::Word, Reg::R3, HANDLE, Reg::R4);
    c.e.store(Size::Half, Reg::R3, START, Reg::R2);
    c.e.store(Size::Half, Reg::R3, SIZE, Reg::R1);
    c.e.set(Field::D, Reg::R2);
    c.e.alu(Alu::Add, Reg::R2, Reg::R1);
    c.e.set(Field::HeapUsed, Reg::R2);
    c.e.go(Micro::AllocateMore);
}

/// Clears the bytes from `D` on: 256 a round. Behind the last block nothing is in use.
pub(super) fn allocate_more(c: &mut Compiler<'_>) {
    let done = c.e.asm.label();
    c.e.get(Reg::R1, Field::D);
    c.e.get(Reg::R2, Field::HeapUsed);
    c.e.jump_if(Cond::Ge, Reg::R1, Reg::R2, done);
    c.e.mov(Reg::R3, Reg::R1);
    address(c, Reg::R3);
    for word in 0..32 {
        c.e.store_imm(Size::Double, Reg::R3, 8 * word, 0);
    }
    c.e.alu(Alu::Add, Reg::R1, 256);
    c.e.set(Field::D, Reg::R1);
    c.e.go(Micro::AllocateMore);
    c.e.asm.bind(done);
    c.e.get(Reg::R1, Field::LastHandle);
    c.e.push(Reg::R1);
    c.e.flush();
    c.go_back();
}

/// `E`: the block's size; `F`: where the next bytes go; `G`: where they are; `H`: where they end.
pub(super) fn free(c: &mut Compiler<'_>) {
    c.e.get(Reg::R1, Field::D);
    row(c, Reg::R1);
    c.e.load(Size::Half, Reg::R2, Reg::R1, SIZE);
    c.e.load(Size::Half, Reg::R3, Reg::R1, START);
    c.e.set(Field::E, Reg::R2);
    c.e.set(Field::F, Reg::R3);
    c.e.alu(Alu::Add, Reg::R3, Reg::R2);
    c.e.set(Field::G, Reg::R3);
    c.e.get(Reg::R1, Field::HeapUsed);
    c.e.set(Field::H, Reg::R1);
    c.e.alu(Alu::Sub, Reg::R1, Reg::R2);
    c.e.set(Field::HeapUsed, Reg::R1);
    c.e.get(Reg::R1, Field::Blocks);
    c.e.alu(Alu::Add, Reg::R1, -1);
    c.e.set(Field::Blocks, Reg::R1);
    c.e.go(Micro::FreeMore);
}

pub(super) fn free_more(c: &mut Compiler<'_>) {
    let (done, piece) = (c.e.asm.label(), c.e.asm.label());
    c.e.get(Reg::R1, Field::G);
    c.e.get(Reg::R9, Field::H);
    c.e.jump_if(Cond::Ge, Reg::R1, Reg::R9, done);
    c.e.alu(Alu::Sub, Reg::R9, Reg::R1);
    c.e.jump_if(Cond::Le, Reg::R9, PIECE, piece);
    c.e.mov(Reg::R9, PIECE);
    c.e.asm.bind(piece);
    // By way of other memory, since the two may overlap.
    c.e.mov(Reg::R3, Reg::R1);
    address(c, Reg::R3);
    c.e.part(Reg::R1, c.layout.moved);
    c.e.mov(Reg::R2, Reg::R9);
    c.e.call(Helper::PROBE_READ_KERNEL);
    c.e.get(Reg::R1, Field::F);
    address(c, Reg::R1);
    c.e.mov(Reg::R2, Reg::R9);
    c.e.part(Reg::R3, c.layout.moved);
    c.e.call(Helper::PROBE_READ_KERNEL);
    for field in [Field::F, Field::G] {
        c.e.get(Reg::R1, field);
        c.e.alu(Alu::Add, Reg::R1, Reg::R9);
        c.e.set(field, Reg::R1);
    }
    c.e.go(Micro::FreeMore);
    c.e.asm.bind(done);
    c.e.go(Micro::FreeTable);
}

/// Moves the row behind `D` down.
pub(super) fn free_table(c: &mut Compiler<'_>) {
    let done = c.e.asm.label();
    c.e.get(Reg::R1, Field::D);
    c.e.get(Reg::R2, Field::Blocks);
    c.e.jump_if(Cond::Ge, Reg::R1, Reg::R2, done);
    c.e.mov(Reg::R2, Reg::R1);
    row(c, Reg::R2);
    c.e.alu(Alu::Add, Reg::R1, 1);
    c.e.set(Field::D, Reg::R1);
    row(c, Reg::R1);
    c.e.load(Size::Word, Reg::R3, Reg::R1, HANDLE);
    c.e.store(Size::Word, Reg::R2, HANDLE, Reg::R3);
    c.e.load(Size::Half, Reg::R3, Reg::R1, SIZE);
    c.e.store(Size::Half, Reg::R2, SIZE, Reg::R3);
    c.e.load(Size::Half, Reg::R3, Reg::R1, START);
    c.e.get(Reg::R4, Field::E);
    c.e.alu(Alu::Sub, Reg::R3, Reg::R4);
    c.e.store(Size::Half, Reg::R2, START, Reg::R3);
    c.e.go(Micro::FreeTable);
    c.e.asm.bind(done);
    c.go_back();
}

/// `R3` = the address of the next value, whose number is in `E` and whose size is in `F`; raises
/// INVALID_OFFSET if it is not inside of the block. Jumps if no value is left.
fn next(c: &mut Compiler<'_>, done: Label) {
    c.e.get(Reg::R1, Field::E);
    c.e.jump_if(Cond::Eq, Reg::R1, 0, done);
    c.e.get(Reg::R8, Field::A);
    c.e.get(Reg::R9, Field::B);
    let outside = c.e.raise(Exception::INVALID_OFFSET, Reg::R8, Reg::R9);
    c.e.get(Reg::R3, Field::D);
    row(c, Reg::R3);
    c.e.load(Size::Half, Reg::R2, Reg::R3, SIZE);
    c.e.load(Size::Half, Reg::R3, Reg::R3, START);
    c.e.jump_if(Cond::Gt, Reg::R9, Reg::R2, outside);
    c.e.alu(Alu::Sub, Reg::R2, Reg::R9);
    c.e.get(Reg::R4, Field::F);
    c.e.jump_if(Cond::Lt, Reg::R2, Reg::R4, outside);
    c.e.alu(Alu::Add, Reg::R1, -1);
    c.e.set(Field::E, Reg::R1);
    c.e.alu(Alu::Add, Reg::R3, Reg::R9);
    address(c, Reg::R3);
    c.e.alu(Alu::Add, Reg::R9, Reg::R4);
    c.e.set(Field::B, Reg::R9);
}

/// Emits a part for each size, which is in `R4`, and a jump behind them.
fn by_size(c: &mut Compiler<'_>, mut part: impl FnMut(&mut Compiler<'_>, Size)) {
    let done = c.e.asm.label();
    for size in [Size::Byte, Size::Half, Size::Word, Size::Double] {
        let other = c.e.asm.label();
        if size != Size::Double {
            c.e.jump_if(Cond::Ne, Reg::R4, size.bytes() as i32, other);
        }
        part(c, size);
        c.e.asm.jump(done);
        c.e.asm.bind(other);
    }
    c.e.asm.bind(done);
}

pub(super) fn push(c: &mut Compiler<'_>) {
    let done = c.e.asm.label();
    next(c, done);
    let narrow = c.handler.word == Word::W4;
    by_size(c, |c, size| {
        if size == Size::Double && narrow {
            c.e.load(Size::Word, Reg::R1, Reg::R3, 4);
            c.e.push(Reg::R1);
            c.e.load(Size::Word, Reg::R1, Reg::R3, 0);
        } else {
            c.e.load(size, Reg::R1, Reg::R3, 0);
        }
        c.e.push(Reg::R1);
        c.e.flush();
    });
    c.e.go(Micro::PushHeap);
    c.e.asm.bind(done);
    c.go_back();
}

pub(super) fn pop(c: &mut Compiler<'_>) {
    let done = c.e.asm.label();
    next(c, done);
    let narrow = c.handler.word == Word::W4;
    by_size(c, |c, size| {
        c.e.pop(Reg::R1);
        if size == Size::Double && narrow {
            c.e.store(Size::Word, Reg::R3, 0, Reg::R1);
            c.e.pop(Reg::R1);
            c.e.store(Size::Word, Reg::R3, 4, Reg::R1);
        } else {
            c.e.store(size, Reg::R3, 0, Reg::R1);
        }
        c.e.flush();
    });
    c.e.go(Micro::PopHeap);
    c.e.asm.bind(done);
    c.go_back();
}
