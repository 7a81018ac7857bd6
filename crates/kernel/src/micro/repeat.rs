//! `dup`: pushes a value many times.

use bpf::{Alu, Cond, Reg, Size};

use crate::compiler::Compiler;
use crate::emit::CONTEXT;
use crate::layout::{Field, SLOT_MASK, STACK};
use crate::routine::Micro;

/// Pushes of one round.
const ROUND: usize = 16;

/// Pushes `A` `B` + 1 times. After 1024 pushes only the top still changes: so of more, 1024 and the
/// rest modulo 1024 are done.
pub(super) fn copies(c: &mut Compiler<'_>) {
    let (few, done) = (c.e.asm.label(), c.e.asm.label());
    c.e.get(Reg::R1, Field::A);
    c.e.get(Reg::R2, Field::Top);
    c.e.get(Reg::R4, Field::B);
    c.e.jump_if(Cond::Lt, Reg::R4, 1024, few);
    c.e.alu(Alu::Add, Reg::R4, 1);
    c.e.alu(Alu::And, Reg::R4, SLOT_MASK);
    c.e.alu(Alu::Add, Reg::R4, 1023);
    c.e.asm.bind(few);
    for _ in 0..ROUND {
        c.e.alu(Alu::Add, Reg::R2, -1);
        c.e.alu(Alu::And, Reg::R2, SLOT_MASK);
        c.e.mov(Reg::R3, Reg::R2);
        c.e.alu(Alu::Lsh, Reg::R3, 3);
        c.e.alu(Alu::Add, Reg::R3, CONTEXT);
        c.e.store(Size::Double, Reg::R3, STACK, Reg::R1);
        c.e.jump_if(Cond::Eq, Reg::R4, 0, done);
        c.e.alu(Alu::Add, Reg::R4, -1);
    }
    c.e.set(Field::B, Reg::R4);
    c.e.set(Field::Top, Reg::R2);
    c.e.go(Micro::Copies);
    c.e.asm.bind(done);
    c.e.set(Field::Top, Reg::R2);
    c.go_back();
}
