//! Logging elements and variables, and moving the log pointer.
//!
//! `D` is the number of words that fit, `E` how many are logged, `F` the place of the next one in
//! the log, `G` the kind of the variables and `H` the index that there is none for.

use bpf::{Alu, Cond, Label, Reg, Size};
use vm::Exception;

use crate::access::Variables;
use crate::compiler::Compiler;
use crate::layout::{Field, LOG, bytes};
use crate::logging;
use crate::routine::Micro;

/// Words that one round logs.
const ROUND: usize = 8;

/// Prepares to log `A` words, with a prefix if `C` is a token.
fn begin(c: &mut Compiler<'_>, micro: Micro) {
    let (bare, fits, full) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    c.e.get(Reg::R1, Field::Length);
    c.e.mov(Reg::R2, c.log_limit());
    c.e.alu(Alu::Sub, Reg::R2, Reg::R1);
    c.e.get(Reg::R3, Field::C);
    c.e.jump_if(Cond::Eq, Reg::R3, 0, bare);
    c.e.alu(Alu::Add, Reg::R1, 3);
    c.e.alu(Alu::Add, Reg::R2, -3);
    c.e.jump_if(Cond::Slt, Reg::R2, 0, full);
    c.e.asm.bind(bare);
    c.e.set(Field::F, Reg::R1);
    c.e.alu(Alu::Rsh, Reg::R2, bytes(c.handler.word).trailing_zeros() as i32);
    c.e.get(Reg::R1, Field::A);
    c.e.jump_if(Cond::Le, Reg::R2, Reg::R1, fits);
    c.e.mov(Reg::R2, Reg::R1);
    c.e.asm.bind(fits);
    c.e.set(Field::D, Reg::R2);
    c.e.set(Field::E, 0);
    c.e.set(Field::G, 0);
    c.e.go(micro);
    c.e.asm.bind(full);
    logging::overflow(c);
}

/// Puts `R1` into the log.
fn put(c: &mut Compiler<'_>) {
    c.e.get(Reg::R3, Field::F);
    c.e.mov(Reg::R4, Reg::R3);
    c.e.alu(Alu::Add, Reg::R4, bytes(c.handler.word));
    c.e.set(Field::F, Reg::R4);
    c.log_address(Reg::R3);
    let size = c.word_size();
    c.e.store(size, Reg::R3, LOG, Reg::R1);
}

/// `R1` = the number of the next word, which is counted; jumps if there is none.
fn next(c: &mut Compiler<'_>, done: Label) {
    c.e.get(Reg::R1, Field::E);
    c.e.get(Reg::R2, Field::D);
    c.e.jump_if(Cond::Ge, Reg::R1, Reg::R2, done);
}

fn count(c: &mut Compiler<'_>) {
    c.e.get(Reg::R1, Field::E);
    c.e.alu(Alu::Add, Reg::R1, 1);
    c.e.set(Field::E, Reg::R1);
}

/// Makes a record of the words.
fn finish(c: &mut Compiler<'_>, variables: bool) {
    let (bare, whole) = (c.e.asm.label(), c.e.asm.label());
    c.e.get(Reg::R4, Field::C);
    c.e.jump_if(Cond::Eq, Reg::R4, 0, bare);
    c.e.get(Reg::R2, Field::Length);
    c.e.get(Reg::R1, Field::E);
    logging::prefix(c, 0, Reg::R1);
    c.e.store(Size::Byte, Reg::R3, LOG, Reg::R4);
    c.e.asm.bind(bare);
    c.e.get(Reg::R1, Field::F);
    c.e.set(Field::Length, Reg::R1);
    if variables {
        c.e.get(Reg::R3, Field::G);
        c.e.get(Reg::R2, Field::H);
        let bad = c.e.raise(Exception::INVALID_OPERAND, Reg::R3, Reg::R2);
        c.e.jump_if(Cond::Ne, Reg::R3, 0, bad);
    }
    c.e.get(Reg::R2, Field::D);
    c.e.get(Reg::R3, Field::A);
    c.e.jump_if(Cond::Eq, Reg::R2, Reg::R3, whole);
    logging::overflow(c);
    c.e.asm.bind(whole);
    c.e.set(Field::Complete, Reg::R1);
    c.go_back();
}

pub(super) fn elements(c: &mut Compiler<'_>) {
    begin(c, Micro::ElementsMore);
}

pub(super) fn elements_more(c: &mut Compiler<'_>) {
    let done = c.e.asm.label();
    for _ in 0..ROUND {
        next(c, done);
        c.e.get(Reg::R2, Field::B);
        c.e.alu(Alu::Add, Reg::R2, Reg::R1);
        let (base, offset) = c.e.slot_address(Reg::R2);
        c.e.load(Size::Double, Reg::R1, base, offset);
        put(c);
        count(c);
    }
    c.e.go(Micro::ElementsMore);
    c.e.asm.bind(done);
    finish(c, false);
}

pub(super) fn variables(c: &mut Compiler<'_>) {
    begin(c, Micro::VariablesMore);
}

pub(super) fn variables_more(c: &mut Compiler<'_>) {
    let (done, bad) = (c.e.asm.label(), c.e.asm.label());
    for _ in 0..ROUND {
        next(c, done);
        c.e.get(Reg::R2, Field::B);
        c.e.alu(Alu::Add, Reg::R2, Reg::R1);
        let (global, loaded) = (c.e.asm.label(), c.e.asm.label());
        c.e.get(Reg::R1, Field::C);
        c.e.jump_if(Cond::Ne, Reg::R1, 5, global);
        value(c, Variables::Local, bad);
        c.e.asm.jump(loaded);
        c.e.asm.bind(global);
        value(c, Variables::Global, bad);
        c.e.asm.bind(loaded);
        put(c);
        count(c);
    }
    c.e.go(Micro::VariablesMore);
    c.e.asm.bind(bad);
    c.e.set(Field::G, Reg::R1);
    c.e.set(Field::H, Reg::R2);
    c.e.asm.bind(done);
    finish(c, true);
}

/// `R1` = the variable with the index `R2`; jumps with the kind in `R1` if there is none.
fn value(c: &mut Compiler<'_>, which: Variables, bad: Label) {
    let count = c.count_of(which);
    c.e.mov(Reg::R1, which.kind());
    c.e.jump_if(Cond::Ge, Reg::R2, count, bad);
    if count > 0 {
        c.e.alu(Alu::Lsh, Reg::R2, 3);
        c.e.map_value(Reg::R1, which.map(), 0);
        c.e.alu(Alu::Add, Reg::R1, Reg::R2);
        c.e.load(Size::Double, Reg::R1, Reg::R1, 0);
    }
}

/// Sets both log pointers to `A`, or to the limit. Bytes that this adds are zeros.
pub(super) fn pointer(c: &mut Compiler<'_>) {
    let fits = c.e.asm.label();
    c.e.get(Reg::R1, Field::A);
    c.e.jump_if(Cond::Le, Reg::R1, c.log_limit(), fits);
    c.e.mov(Reg::R1, c.log_limit());
    c.e.asm.bind(fits);
    c.e.set(Field::D, Reg::R1);
    c.e.go(Micro::PointerMore);
}

pub(super) fn pointer_more(c: &mut Compiler<'_>) {
    let (done, whole) = (c.e.asm.label(), c.e.asm.label());
    c.e.get(Reg::R1, Field::Length);
    c.e.get(Reg::R2, Field::D);
    c.e.jump_if(Cond::Ge, Reg::R1, Reg::R2, done);
    c.e.mov(Reg::R3, Reg::R1);
    c.log_address(Reg::R3);
    for word in 0..32 {
        c.e.store_imm(Size::Double, Reg::R3, LOG + 8 * word, 0);
    }
    c.e.alu(Alu::Add, Reg::R1, 256);
    c.e.set(Field::Length, Reg::R1);
    c.e.go(Micro::PointerMore);
    c.e.asm.bind(done);
    c.e.set(Field::Length, Reg::R2);
    c.e.set(Field::Complete, Reg::R2);
    c.e.get(Reg::R1, Field::A);
    c.e.jump_if(Cond::Eq, Reg::R1, Reg::R2, whole);
    logging::overflow(c);
    c.e.asm.bind(whole);
    c.go_back();
}
