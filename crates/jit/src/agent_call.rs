//! A call of the agent that carries out an instruction on a map, from which compiled code goes on.
//!
//! ```text
//!             op, map, key, processor, value -> call(%context)
//!             push ...                             what a function may change and is needed
//!             mov  %context, %rdi ; mov $info, %esi ; mov $agent, %eax ; call *%rax
//!             pop ...                              the result is in rax
//! ```

use core::mem::offset_of;

use layout::{CALL, MapCall, PROCESSOR_MASK};
use vm::Op;

use crate::frame::registers;
use crate::operands::{Alu, RAX, RDI, RSI, Reg, Rm};
use crate::output::{Operand, Output};
use crate::owner::of_context;
use crate::ring::AGENT;

/// The registers that a function may change: all but rbx, rbp, and r12 to r15.
const CLOBBERED: u16 = 0b0000_1111_1100_0110;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) op: Op,
    pub(crate) map: usize,
    /// The offset of the key in the frame.
    pub(crate) key: u16,
    pub(crate) key_length: Operand,
    /// The value, or its offset.
    pub(crate) value: Option<Operand>,
    pub(crate) value_length: Option<Operand>,
}

/// Writes the code of a call.
pub(crate) struct AgentCall<'o, 'a> {
    pub(crate) out: &'o mut Output<'a>,
    /// The registers whose contents are needed afterwards, as a bit set.
    pub(crate) needed: u16,
    /// The register of a claimed context.
    pub(crate) context: Reg,
}

impl AgentCall<'_, '_> {
    /// Calls the agent. The result is in rax; nothing else changes.
    pub(crate) fn call(self, asked: Asked) {
        let AgentCall { out, needed, context } = self;
        let field = |offset: usize| of_context(context, CALL as usize + offset);
        out.with_rax();
        out.emitter.store32_number(field(offset_of!(MapCall, op)), asked.op as u32);
        out.emitter.store32_number(field(offset_of!(MapCall, map)), asked.map as u32);
        out.emitter.store32_number(field(offset_of!(MapCall, key)), asked.key.into());
        if asked.op == Op::Update {
            out.processor(RAX);
            out.emitter.alu32_number(Alu::And, RAX, PROCESSOR_MASK as i32);
            out.emitter.store32(field(offset_of!(MapCall, processor)), RAX);
        }
        out.store(field(offset_of!(MapCall, key_length)), asked.key_length);
        if let Some(value) = asked.value {
            out.store(field(offset_of!(MapCall, value)), value);
        }
        if let Some(length) = asked.value_length {
            out.store(field(offset_of!(MapCall, value_length)), length);
        }
        // A register that is not saved holds the program's value.
        let is_kept = |register: &Reg| {
            CLOBBERED >> register.0 & 1 != 0
                && (needed >> register.0 & 1 != 0 || !out.frame.is_saved(register.0))
        };
        let kept: Vec<Reg> = registers(CLOBBERED).filter(is_kept).collect();
        out.pushes(8 * kept.len() as i32 + AGENT);
        kept.iter().for_each(|register| out.emitter.push(*register));
        out.emitter.load(RDI, Rm::Reg(context));
        out.emitter.number(RSI, out.environment.info.into());
        out.emitter.number(RAX, out.environment.agent.map.into());
        out.emitter.call(RAX);
        kept.iter().rev().for_each(|register| out.emitter.pop(*register));
    }
}
