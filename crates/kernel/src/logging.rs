//! What the log instructions do before a routine takes over, or without one.

use bpf::{Alu, Cond, Reg, Size};
use vm::{Exception, Instruction};

use crate::access::Variables;
use crate::compiler::Compiler;
use crate::emit::CONTEXT;
use crate::layout::{Field, LOG, RECORD, bytes};
use crate::nodes::INLINE_LOG;
use crate::routine::Micro;

/// `setmin` and `setmaj`.
pub(crate) fn set_code(c: &mut Compiler<'_>, place: i16, operand: Option<u64>) {
    match operand {
        Some(code) => c.e.store_imm(Size::Word, CONTEXT, RECORD + place, code as i32),
        None => {
            c.e.pop(Reg::R1);
            c.e.alu(Alu::And, Reg::R1, 0xffff);
            c.e.store(Size::Word, CONTEXT, RECORD + place, Reg::R1);
        }
    }
}

/// `log mrf` and `log str`.
pub(crate) fn log_range(c: &mut Compiler<'_>, micro: Micro, next: usize) {
    for field in [Field::A, Field::B] {
        c.e.pop(Reg::R1);
        c.e.set(field, Reg::R1);
    }
    c.run_routine(micro, next);
}

/// `log n`: a few elements that fit are logged here.
pub(crate) fn log_elements(c: &mut Compiler<'_>, count: u64, next: usize) {
    let word = bytes(c.handler.word);
    let before = c.e.top;
    let (slow, done) = (c.e.asm.label(), c.e.asm.label());
    let inline = count <= INLINE_LOG && count as i32 * word <= c.log_limit();
    if inline {
        c.e.get(Reg::R2, Field::Length);
        c.e.jump_if(Cond::Gt, Reg::R2, c.log_limit() - count as i32 * word, slow);
        c.e.mov(Reg::R3, Reg::R2);
        c.log_address(Reg::R3);
        let size = c.word_size();
        for place in 0..count as i32 {
            c.e.pop(Reg::R1);
            c.e.store(size, Reg::R3, LOG + (place * word) as i16, Reg::R1);
        }
        c.e.alu(Alu::Add, Reg::R2, count as i32 * word);
        c.e.set(Field::Length, Reg::R2);
        c.e.set(Field::Complete, Reg::R2);
        c.e.asm.jump(done);
        c.e.asm.bind(slow);
    }
    c.e.top = before;
    c.e.set(Field::A, count as i32);
    log_slots(c, 0, next);
    c.e.asm.bind(done);
    c.e.top = before;
    c.e.discard(count as i32);
}

/// `log`: a count, then the elements.
pub(crate) fn log_counted(c: &mut Compiler<'_>, next: usize) {
    c.e.pop(Reg::R1);
    c.e.set(Field::A, Reg::R1);
    log_slots(c, 7, next);
}

/// Logs `A` elements from the top on, which are popped.
fn log_slots(c: &mut Compiler<'_>, token: i32, next: usize) {
    c.e.mov(Reg::R1, 0);
    c.above_top(Reg::R1);
    c.e.set(Field::B, Reg::R1);
    c.e.set(Field::C, token);
    c.e.get(Reg::R2, Field::A);
    c.e.alu(Alu::Add, Reg::R1, Reg::R2);
    c.e.alu(Alu::And, Reg::R1, crate::layout::SLOT_MASK);
    c.e.set(Field::Top, Reg::R1);
    let top = c.e.top;
    c.e.top = crate::emit::Top::Above(0);
    c.run_routine(Micro::Elements, next);
    c.e.top = top;
}

/// `log lv` and `log gv`.
pub(crate) fn log_variables(c: &mut Compiler<'_>, which: Variables, next: usize) {
    for field in [Field::A, Field::B] {
        c.e.pop(Reg::R1);
        c.e.set(field, Reg::R1);
    }
    c.e.set(Field::C, if which == Variables::Local { 5 } else { 6 });
    c.run_routine(Micro::Variables, next);
}

/// `pushh` and `poph`: pops an offset, then a handle.
pub(crate) fn heap_values(c: &mut Compiler<'_>, micro: Micro, size: i32, it: &Instruction) {
    for field in [Field::B, Field::A] {
        c.e.pop(Reg::R1);
        c.e.set(field, Reg::R1);
    }
    c.e.set(Field::E, it.operand as i32);
    c.e.set(Field::F, size);
    find_block(c, micro, it.next);
}

/// Finds the block with the handle `A`; then a routine continues.
pub(crate) fn find_block(c: &mut Compiler<'_>, micro: Micro, next: usize) {
    c.e.uses.add(micro);
    c.e.set(Field::C, micro.number());
    c.run_routine(Micro::Find, next);
}

/// Writes the prefix of a record at the place `R2` in the log: a token and the count in a
/// register. Then `R3` + [`LOG`] is the address of the record.
pub(crate) fn prefix(c: &mut Compiler<'_>, token: i32, count: Reg) {
    c.e.mov(Reg::R3, Reg::R2);
    c.log_address(Reg::R3);
    c.e.store_imm(Size::Byte, Reg::R3, LOG, token);
    c.e.store(Size::Half, Reg::R3, LOG + 1, count);
}

/// Ends a log instruction for which the log is full: an exception, unless masked.
pub(crate) fn overflow(c: &mut Compiler<'_>) {
    if c.handler.mask & Exception::LOG_OVERFLOW == 0 {
        return c.go_back();
    }
    let limit = c.log_limit();
    let raise = c.e.raise(Exception::LOG_OVERFLOW, limit, 0);
    c.e.asm.jump(raise);
}

/// Makes a record of the bytes behind the prefix, whose count is in a register other than `R1`
/// to `R3`.
pub(crate) fn commit(c: &mut Compiler<'_>, token: i32, count: Reg) {
    c.e.get(Reg::R2, Field::Length);
    prefix(c, token, count);
    c.e.alu(Alu::Add, Reg::R2, 3);
    c.e.alu(Alu::Add, Reg::R2, count);
    c.e.set(Field::Length, Reg::R2);
}

/// Ends a log instruction that has succeeded.
pub(crate) fn succeed(c: &mut Compiler<'_>) {
    c.e.get(Reg::R1, Field::Length);
    c.e.set(Field::Complete, Reg::R1);
    c.go_back();
}

/// Raises LOG_OVERFLOW, masked or not.
pub(crate) fn raise_overflow(c: &mut Compiler<'_>) {
    let limit = c.log_limit();
    let raise = c.e.raise(vm::Exception::LOG_OVERFLOW, limit, 0);
    c.e.asm.jump(raise);
}
