//! What compiles, and what all that it emits has in common.

use std::collections::BTreeMap;

use bpf::{Alu, Atomic, Cond, Helper, Insn, Label, Reg, Size};
use vm::{Exception, FRAME_LIMIT, LOG_LIMIT};

use crate::emit::{CONTEXT, Emit};
use crate::handler::{Handler, Target};
use crate::layout::{Field, Layout, Map, bytes};
use crate::nodes::Nodes;
use crate::routine::Micro;
use crate::table_function::Function;
use crate::tracepoints::FieldAccess;

/// What compiles.
pub(crate) struct Compiler<'a> {
    pub(crate) e: Emit,
    pub(crate) handler: &'a Handler<'a>,
    pub(crate) target: &'a Target,
    /// At a tracepoint, how each field that the program names is accessed.
    pub(crate) fields: &'a [Option<FieldAccess>],
    pub(crate) layout: Layout,
    pub(crate) nodes: Nodes,
    /// The labels of the nodes.
    pub(crate) labels: BTreeMap<usize, Label>,
    /// The function that clears the stack, if it is used.
    pub(crate) clear: Option<Label>,
    /// The functions on maps that are used.
    pub(crate) table_functions: BTreeMap<(Function, u16), Label>,
}

impl Compiler<'_> {
    /// Ends the step: the next one runs a routine, which then goes on at an offset.
    pub(crate) fn run_routine(&mut self, micro: Micro, next: usize) {
        let top = self.e.top;
        self.e.flush();
        self.e.set(Field::Back, next as i32);
        self.e.go(micro);
        self.e.top = top;
    }

    /// Ends a routine: the bytecode goes on where it was left.
    pub(crate) fn go_back(&mut self) {
        self.e.get(Reg::R1, Field::Back);
        self.e.set(Field::Next, Reg::R1);
        self.e.end_step();
    }

    /// Raises INVALID_OPCODE for the instruction at an offset.
    pub(crate) fn invalid(&mut self, at: usize) {
        let opcode = self.handler.code.get(at).copied().unwrap_or(0);
        self.raise_always(Exception::INVALID_OPCODE, i32::from(opcode), at as i32);
    }

    /// Raises an exception in any case. What is emitted next is not reached.
    pub(crate) fn raise_always(&mut self, code: u16, parm1: i32, parm2: i32) {
        let raise = self.e.raise(code, parm1, parm2);
        self.e.mov(Reg::R0, 0);
        self.e.jump_if(Cond::Eq, Reg::R0, 0, raise);
    }

    /// Bytes that a run may log.
    pub(crate) fn log_limit(&self) -> i32 {
        self.handler.logmax.min(LOG_LIMIT) as i32
    }

    /// The size of an access to a word.
    pub(crate) fn word_size(&self) -> Size {
        if bytes(self.handler.word) == 4 { Size::Word } else { Size::Double }
    }

    /// Adds the context to a place in the log, so that `place + LOG` is its address.
    pub(crate) fn log_address(&mut self, place: Reg) {
        self.e.alu(Alu::And, place, self.layout.log - 1);
        self.e.alu(Alu::Add, place, CONTEXT);
    }

    /// `dst` = the address of zeros.
    pub(crate) fn zeros(&mut self, dst: Reg) {
        let at = self.handler.tables.zeros_at();
        self.e.map_value(dst, Map::Tables, at as u32);
    }

    /// Changes the sign of a register.
    pub(crate) fn negate(&mut self, reg: Reg) {
        self.e.asm.push(Insn::neg(bpf::Width::W64, reg));
    }

    /// `dst` = the address of a byte of the frame, whose offset is in another register.
    pub(crate) fn in_frame(&mut self, dst: Reg, offset: Reg) {
        self.e.part(dst, self.layout.frame);
        self.e.alu(Alu::Add, dst, offset);
    }

    /// Sets all bytes of the frame to 0.
    pub(crate) fn clear_frame(&mut self) {
        self.e.part(Reg::R1, self.layout.frame);
        self.e.mov(Reg::R2, FRAME_LIMIT as i32);
        self.zeros(Reg::R3);
        self.e.call(Helper::PROBE_READ_KERNEL);
    }

    /// The label of a function, which is emitted later.
    pub(crate) fn table_function(&mut self, function: Function, map: u16) -> Label {
        let Compiler { table_functions, e, .. } = self;
        *table_functions.entry((function, map)).or_insert_with(|| e.asm.label())
    }

    /// Calls a function with the context.
    pub(crate) fn call_table(&mut self, function: Function, map: u16) {
        let label = self.table_function(function, map);
        self.e.mov(Reg::R1, CONTEXT);
        self.e.asm.call_function(label);
    }

    /// Ends a function with a result.
    pub(crate) fn give(&mut self, result: i32) {
        self.e.mov(Reg::R0, result);
        self.e.asm.exit();
    }

    /// `dst` = the address of the byte `place`, a register that the verifier knows a bound of.
    pub(crate) fn in_tables(&mut self, dst: Reg, place: Reg) {
        self.e.map_value(dst, Map::Tables, 0);
        self.e.alu(Alu::Add, dst, place);
    }

    /// `dst` = a place that a field says. The verifier sees that it is one of a word.
    pub(crate) fn get_aligned(&mut self, dst: Reg, field: Field) {
        self.e.get(dst, field);
        self.e.alu(Alu::And, dst, -8);
    }

    /// `dst` = the address of what a field says, which is at most `last`; else jumps.
    pub(crate) fn found(&mut self, dst: Reg, field: Field, last: i32, bad: Label) {
        self.get_aligned(Reg::R0, field);
        self.e.jump_if(Cond::Gt, Reg::R0, last, bad);
        self.in_tables(dst, Reg::R0);
    }

    /// `dst` = this processor's copy, times its size. Uses no other register.
    pub(crate) fn own_copy(&mut self, dst: Reg, copies: i32, size: i32) {
        self.e.get(dst, Field::Cpu);
        self.copy_of(dst, copies, size);
    }

    /// Makes a processor's number in a register the place of its copy, from that of the first on.
    pub(crate) fn copy_of(&mut self, dst: Reg, copies: i32, size: i32) {
        self.e.asm.push(Insn::mov32(dst, dst));
        let bounded = self.e.asm.label();
        // As in crate `maps`; the verifier takes no bound from it.
        self.e.alu(Alu::Mod, dst, copies);
        self.e.jump_if(Cond::Lt, dst, copies, bounded);
        self.e.mov(dst, 0);
        self.e.asm.bind(bounded);
        self.e.alu(Alu::Mul, dst, size);
    }

    /// Atomically adds a register to a word, and counts a change of the bucket.
    pub(crate) fn change_control(&mut self, control: Reg, by: Reg, change: Reg) {
        self.e.number(change, maps::CHANGE);
        self.e.alu(Alu::Add, by, change);
        self.e.asm.push(Insn::atomic(Atomic::FetchAdd, Size::Double, control, 0, by));
    }
}
