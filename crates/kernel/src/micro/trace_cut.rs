//! `pop stp`: drops the traces that end behind a place.
//!
//! `A` is the place, `D` the end of the traces that stay, `C` their number, `E` how far the next
//! one has been passed, `F` its frames that are left.

use bpf::{Alu, Cond, Label, Reg, Size};

use super::trace::{PREFIX, header, trace_address};
use crate::compiler::Compiler;
use crate::layout::{Field, bytes};
use crate::routine::Micro;

pub(super) fn cut(c: &mut Compiler<'_>) {
    let (nothing, all) = (c.e.asm.label(), c.e.asm.label());
    c.e.get(Reg::R1, Field::A);
    c.e.get(Reg::R2, Field::TraceLength);
    c.e.jump_if(Cond::Ge, Reg::R1, Reg::R2, nothing);
    c.e.jump_if(Cond::Lt, Reg::R1, header(c), all);
    c.e.set(Field::D, header(c));
    c.e.set(Field::C, 0);
    c.e.go(Micro::TraceCutTrace);
    c.e.asm.bind(all);
    c.e.set(Field::TraceLength, 0);
    c.e.set(Field::TraceFull, 0);
    c.e.asm.bind(nothing);
    c.go_back();
}

/// `R1` = the count in the prefix at the place in `R2`, if it is whole.
fn number(c: &mut Compiler<'_>, none: Label) {
    c.e.mov(Reg::R3, Reg::R2);
    c.e.alu(Alu::Add, Reg::R3, PREFIX);
    c.e.get(Reg::R1, Field::TraceLength);
    c.e.jump_if(Cond::Gt, Reg::R3, Reg::R1, none);
    c.e.mov(Reg::R3, Reg::R2);
    trace_address(c, Reg::R3);
    c.e.load(Size::Half, Reg::R1, Reg::R3, 1);
}

/// Drops what is behind `D`.
fn finish(c: &mut Compiler<'_>, label: Label) {
    c.e.asm.bind(label);
    c.e.part(Reg::R3, c.layout.trace);
    c.e.get(Reg::R1, Field::C);
    let place = header(c).min(i32::from(i16::MAX)) as i16 - 2;
    c.e.store(Size::Half, Reg::R3, place, Reg::R1);
    c.e.get(Reg::R1, Field::D);
    c.e.set(Field::TraceLength, Reg::R1);
    c.e.set(Field::TraceFull, 0);
    c.go_back();
}

pub(super) fn one_trace(c: &mut Compiler<'_>) {
    let last = c.e.asm.label();
    c.e.get(Reg::R2, Field::D);
    c.e.alu(Alu::Add, Reg::R2, 4 * bytes(c.handler.word));
    number(c, last);
    c.e.set(Field::F, Reg::R1);
    c.e.alu(Alu::Add, Reg::R2, PREFIX);
    c.e.set(Field::E, Reg::R2);
    c.e.go(Micro::TraceCutPart);
    finish(c, last);
}

pub(super) fn one_part(c: &mut Compiler<'_>) {
    let (last, passed) = (c.e.asm.label(), c.e.asm.label());
    let word = bytes(c.handler.word);
    c.e.get(Reg::R2, Field::E);
    c.e.get(Reg::R4, Field::F);
    c.e.jump_if(Cond::Eq, Reg::R4, 0, passed);
    c.e.alu(Alu::Add, Reg::R4, -1);
    c.e.set(Field::F, Reg::R4);
    c.e.alu(Alu::Add, Reg::R2, 2 * word);
    for _ in 0..3 {
        number(c, last);
        c.e.alu(Alu::Mul, Reg::R1, word);
        c.e.alu(Alu::Add, Reg::R2, PREFIX);
        c.e.alu(Alu::Add, Reg::R2, Reg::R1);
    }
    c.e.set(Field::E, Reg::R2);
    c.e.go(Micro::TraceCutPart);

    c.e.asm.bind(passed);
    c.e.get(Reg::R1, Field::TraceLength);
    c.e.jump_if(Cond::Gt, Reg::R2, Reg::R1, last);
    c.e.get(Reg::R1, Field::A);
    c.e.jump_if(Cond::Gt, Reg::R2, Reg::R1, last);
    c.e.set(Field::D, Reg::R2);
    c.e.get(Reg::R1, Field::C);
    c.e.alu(Alu::Add, Reg::R1, 1);
    c.e.set(Field::C, Reg::R1);
    c.e.go(Micro::TraceCutTrace);
    finish(c, last);
}
