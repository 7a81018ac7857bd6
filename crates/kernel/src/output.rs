//! The record of a run, written into the ring of the processor.

use bpf::{Alu, Cond, Helper, Label, Reg, Size};

use crate::compiler::Compiler;
use crate::emit::CONTEXT;
use crate::layout::{Field, LOG, Map, RECORD, count};
use crate::record;

/// Flags of `bpf_ringbuf_output`.
const NO_WAKEUP: i32 = 1;
const FORCE_WAKEUP: i32 = 2;

/// Writes the record into the processor's ring.
/// `R8` says how the run ended.
pub(crate) fn output(c: &mut Compiler<'_>, release: Label) {
    let (log, traces) = (c.layout.log, c.layout.traces);
    if c.handler.logmax > 0 {
        c.e.get(Reg::R9, Field::Length);
        c.e.jump_if(Cond::Gt, Reg::R9, log, release);
    } else {
        c.e.mov(Reg::R9, 0);
    }
    if c.handler.is_script {
        c.e.jump_if(Cond::Eq, Reg::R9, 0, release);
    }
    c.e.store(Size::Word, CONTEXT, RECORD + record::LOG, Reg::R9);
    if traces > 0 {
        let none = c.e.asm.label();
        c.e.get(Reg::R2, Field::TraceLength);
        c.e.jump_if(Cond::Gt, Reg::R2, traces, release);
        c.e.store(Size::Word, CONTEXT, RECORD + record::TRACE, Reg::R2);
        c.e.jump_if(Cond::Eq, Reg::R2, 0, none);
        c.e.part(Reg::R1, i32::from(LOG));
        c.e.alu(Alu::Add, Reg::R1, Reg::R9);
        c.e.part(Reg::R3, c.layout.trace);
        c.e.call(Helper::PROBE_READ_KERNEL);
        c.e.asm.bind(none);
    } else {
        c.e.store_imm(Size::Word, CONTEXT, RECORD + record::TRACE, 0);
    }
    if c.handler.logmax == 0 {
        // Without a log there is a record of stack traces, or of a facility to be called.
        let wanted = c.e.asm.label();
        c.e.jump_if(Cond::Eq, Reg::R8, record::end::EXIT_TO, wanted);
        c.e.load(Size::Word, Reg::R1, CONTEXT, RECORD + record::TRACE);
        c.e.jump_if(Cond::Eq, Reg::R1, 0, release);
        c.e.asm.bind(wanted);
    }
    let (dropped, quiet, write) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    c.e.get(Reg::R1, Field::Cpu);
    c.key(Reg::R1);
    c.e.asm.load_map(Reg::R1, Map::Rings as u32);
    c.e.call(Helper::MAP_LOOKUP_ELEM);
    c.e.jump_if(Cond::Eq, Reg::R0, 0, dropped);
    c.e.mov(Reg::R8, Reg::R0);
    c.e.mov(Reg::R1, Reg::R8);
    c.e.mov(Reg::R2, 0);
    c.e.call(Helper::RINGBUF_QUERY);
    c.e.mov(Reg::R4, NO_WAKEUP);
    c.e.jump_if(Cond::Lt, Reg::R0, (c.target.size.ring / 2) as i32, quiet);
    c.e.mov(Reg::R4, FORCE_WAKEUP);
    c.e.asm.bind(quiet);
    c.e.mov(Reg::R1, Reg::R8);
    c.e.part(Reg::R2, i32::from(RECORD));
    c.e.load(Size::Word, Reg::R3, CONTEXT, RECORD + record::LOG);
    c.e.load(Size::Word, Reg::R0, CONTEXT, RECORD + record::TRACE);
    c.e.alu(Alu::Add, Reg::R3, Reg::R0);
    c.e.alu(Alu::Add, Reg::R3, record::HEADER as i32);
    c.e.jump_if(Cond::Le, Reg::R3, c.layout.record() as i32, write);
    c.e.asm.jump(dropped);
    c.e.asm.bind(write);
    c.e.call(Helper::RINGBUF_OUTPUT);
    c.e.jump_if(Cond::Ne, Reg::R0, 0, dropped);
    c.count(count::LOGGED);
    c.e.asm.jump(release);
    c.e.asm.bind(dropped);
    c.count(count::DROPPED);
}
