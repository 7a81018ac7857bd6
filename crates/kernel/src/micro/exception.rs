//! Raising exceptions, as `slow_path` of the interpreter does.

use bpf::{Alu, Cond, Reg, Size};
use vm::{Exception, HANDLER_LIMIT, NON_MASKABLE};

use crate::compiler::Compiler;
use crate::emit::CONTEXT;
use crate::layout::{FRAMES, Field, RECORD, frame};
use crate::record;
use crate::routine::Micro;

/// The routine that raises an exception of the interpreter's. A masked one ends the run.
pub(super) fn raise(c: &mut Compiler<'_>) {
    for field in [Field::Parm1, Field::Parm2] {
        c.e.get(Reg::R1, field);
        c.e.truncate(Reg::R1);
        c.e.set(field, Reg::R1);
    }
    let raised = c.e.asm.label();
    c.e.get(Reg::R1, Field::Code);
    c.e.alu(Alu::And, Reg::R1, i32::from(c.handler.mask));
    c.e.jump_if(Cond::Ne, Reg::R1, 0, raised);
    end_masked(c);
    c.e.asm.bind(raised);
    push_exception(c);
    c.e.go(Micro::Dispatch);
}

/// Pushes the information of the exception.
fn push_exception(c: &mut Compiler<'_>) {
    for field in [Field::Parm2, Field::Parm1, Field::Code] {
        c.e.get(Reg::R1, field);
        c.e.push(Reg::R1);
    }
    c.e.flush();
}

/// Ends the run with a masked exception. One that cannot be masked is traced.
fn end_masked(c: &mut Compiler<'_>) {
    if c.handler.autostacktrace {
        let untraced = c.e.asm.label();
        c.e.get(Reg::R1, Field::Code);
        c.e.alu(Alu::And, Reg::R1, i32::from(NON_MASKABLE));
        c.e.jump_if(Cond::Eq, Reg::R1, 0, untraced);
        trace_then(c, Micro::EndException);
        c.e.asm.bind(untraced);
    }
    c.e.go(Micro::EndException);
}

/// Writes a stack trace if every exception does, then goes to a routine.
fn trace_then(c: &mut Compiler<'_>, micro: Micro) {
    if !c.handler.autostacktrace {
        return c.e.go(micro);
    }
    c.e.uses.add(micro);
    c.e.set(Field::BackFromTrace, micro.number());
    c.e.go(Micro::Trace);
}

pub(super) fn again(c: &mut Compiler<'_>) {
    for (below, field) in [(2, Field::Parm2), (1, Field::Parm1), (0, Field::Code)] {
        c.e.peek(Reg::R1, below);
        c.e.set(field, Reg::R1);
    }
    let (raised, ended) = (c.e.asm.label(), c.e.asm.label());
    c.e.mov(Reg::R2, Reg::R1);
    c.e.alu(Alu::And, Reg::R2, i32::from(c.handler.mask));
    c.e.jump_if(Cond::Ne, Reg::R2, 0, raised);
    c.e.alu(Alu::And, Reg::R1, i32::from(NON_MASKABLE));
    c.e.jump_if(Cond::Ne, Reg::R1, 0, ended);
    c.go_back();
    c.e.asm.bind(ended);
    trace_then(c, Micro::EndException);
    c.e.asm.bind(raised);
    c.e.go(Micro::Dispatch);
}

/// Copies the exception to the fields of the last one.
fn note_last(c: &mut Compiler<'_>) {
    let pairs =
        [(Field::Code, Field::LastCode), (Field::Parm1, Field::LastParm1), (Field::Parm2, Field::LastParm2)];
    for (from, to) in pairs {
        c.e.get(Reg::R1, from);
        c.e.set(to, Reg::R1);
    }
}

pub(super) fn dispatch(c: &mut Compiler<'_>) {
    note_last(c);
    trace_then(c, Micro::Unwind);
}

pub(super) fn unwind(c: &mut Compiler<'_>) {
    let (taken, over) = (c.e.asm.label(), c.e.asm.label());
    c.e.get(Reg::R4, Field::Handled);
    c.e.jump_if(Cond::Ge, Reg::R4, HANDLER_LIMIT as i32, over);
    c.frame(Reg::R1);
    c.e.load(Size::Double, Reg::R3, Reg::R1, FRAMES + frame::HANDLER);
    c.e.jump_if(Cond::Ne, Reg::R3, 0, taken);
    c.e.get(Reg::R2, Field::Depth);
    c.e.jump_if(Cond::Eq, Reg::R2, 0, over);
    c.return_from_frame();
    c.e.go(Micro::Unwind);
    c.e.asm.bind(over);
    c.e.go(Micro::EndException);
    c.e.asm.bind(taken);
    c.e.store_imm(Size::Double, Reg::R1, FRAMES + frame::HANDLER, 0);
    c.e.alu(Alu::Add, Reg::R4, 1);
    c.e.set(Field::Handled, Reg::R4);
    c.e.alu(Alu::Add, Reg::R3, -1);
    c.e.set(Field::Next, Reg::R3);
    c.e.end_step();
}

pub(super) fn end(c: &mut Compiler<'_>) {
    let pairs = [(Field::Code, record::CODE), (Field::Parm1, record::PARM1), (Field::Parm2, record::PARM2)];
    for (field, place) in pairs {
        c.e.get(Reg::R1, field);
        c.e.store(Size::Double, CONTEXT, RECORD + place, Reg::R1);
    }
    c.end_run(record::end::EXCEPTION);
}

pub(super) fn end_instructions(c: &mut Compiler<'_>) {
    let insmax = c.handler.insmax.min(vm::INSTRUCTION_LIMIT) as i32;
    c.e.set(Field::Code, i32::from(Exception::JMP_MAX));
    c.e.set(Field::Parm1, insmax);
    c.e.set(Field::Parm2, 1);
    if c.handler.mask & Exception::JMP_MAX != 0 {
        push_exception(c);
        note_last(c);
    }
    trace_then(c, Micro::EndException);
}
