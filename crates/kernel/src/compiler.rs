//! What compiles, and what all that it emits has in common.

use std::collections::BTreeMap;

use bpf::{Alu, Cond, Label, Reg, Size};
use vm::{Exception, LOG_LIMIT};

use crate::emit::{CONTEXT, Emit};
use crate::handler::{Handler, Target};
use crate::layout::{Field, Layout, bytes};
use crate::nodes::Nodes;
use crate::routine::Micro;
use crate::table_code::Function;
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
    pub(crate) fn leave(&mut self, micro: Micro, next: usize) {
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
}
