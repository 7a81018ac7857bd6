//! The record of a run, written into the ring of the processor.

use bpf::{Alu, Cond, Helper, Label, Reg, Size};

use crate::compiler::Compiler;
use crate::emit::CONTEXT;
use crate::layout::{Field, LOG, Map, RECORD, count};
use crate::record;

/// Flags of `bpf_ringbuf_output`.
const NO_WAKEUP: i32 = 1;
const FORCE_WAKEUP: i32 = 2;

impl Compiler<'_> {
    /// Writes the record into the processor's ring.
    /// `R8` says how the run ended.
    pub(crate) fn output(&mut self, release: Label) {
        let (log, traces) = (self.layout.log, self.layout.traces);
        if self.handler.logmax > 0 {
            self.e.get(Reg::R9, Field::Length);
            self.e.jump_if(Cond::Gt, Reg::R9, log, release);
        } else {
            self.e.mov(Reg::R9, 0);
        }
        if self.handler.is_script {
            self.e.jump_if(Cond::Eq, Reg::R9, 0, release);
        }
        self.e.store(Size::Word, CONTEXT, RECORD + record::LOG, Reg::R9);
        if traces > 0 {
            let none = self.e.asm.label();
            self.e.get(Reg::R2, Field::TraceLength);
            self.e.jump_if(Cond::Gt, Reg::R2, traces, release);
            self.e.store(Size::Word, CONTEXT, RECORD + record::TRACE, Reg::R2);
            self.e.jump_if(Cond::Eq, Reg::R2, 0, none);
            self.e.part(Reg::R1, i32::from(LOG));
            self.e.alu(Alu::Add, Reg::R1, Reg::R9);
            self.e.part(Reg::R3, self.layout.trace);
            self.e.call(Helper::PROBE_READ_KERNEL);
            self.e.asm.bind(none);
        } else {
            self.e.store_imm(Size::Word, CONTEXT, RECORD + record::TRACE, 0);
        }
        if self.handler.logmax == 0 {
            // Without a log there is a record of stack traces, or of a facility to be called.
            let wanted = self.e.asm.label();
            self.e.jump_if(Cond::Eq, Reg::R8, record::end::EXIT_TO, wanted);
            self.e.load(Size::Word, Reg::R1, CONTEXT, RECORD + record::TRACE);
            self.e.jump_if(Cond::Eq, Reg::R1, 0, release);
            self.e.asm.bind(wanted);
        }
        let (dropped, quiet, write) = (self.e.asm.label(), self.e.asm.label(), self.e.asm.label());
        self.e.get(Reg::R1, Field::Cpu);
        self.key(Reg::R1);
        self.e.asm.load_map(Reg::R1, Map::Rings as u32);
        self.e.call(Helper::MAP_LOOKUP_ELEM);
        self.e.jump_if(Cond::Eq, Reg::R0, 0, dropped);
        self.e.mov(Reg::R8, Reg::R0);
        self.e.mov(Reg::R1, Reg::R8);
        self.e.mov(Reg::R2, 0);
        self.e.call(Helper::RINGBUF_QUERY);
        self.e.mov(Reg::R4, NO_WAKEUP);
        self.e.jump_if(Cond::Lt, Reg::R0, (self.target.size.ring / 2) as i32, quiet);
        self.e.mov(Reg::R4, FORCE_WAKEUP);
        self.e.asm.bind(quiet);
        self.e.mov(Reg::R1, Reg::R8);
        self.e.part(Reg::R2, i32::from(RECORD));
        self.e.load(Size::Word, Reg::R3, CONTEXT, RECORD + record::LOG);
        self.e.load(Size::Word, Reg::R0, CONTEXT, RECORD + record::TRACE);
        self.e.alu(Alu::Add, Reg::R3, Reg::R0);
        self.e.alu(Alu::Add, Reg::R3, record::HEADER as i32);
        self.e.jump_if(Cond::Le, Reg::R3, self.layout.record() as i32, write);
        self.e.asm.jump(dropped);
        self.e.asm.bind(write);
        self.e.call(Helper::RINGBUF_OUTPUT);
        self.e.jump_if(Cond::Ne, Reg::R0, 0, dropped);
        self.count(count::LOGGED);
        self.e.asm.jump(release);
        self.e.asm.bind(dropped);
        self.count(count::DROPPED);
    }
}
