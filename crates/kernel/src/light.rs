//! Handlers that only count: they need no context, since nothing they compute is kept in memory.
//!
//! ```text
//!     push r, rdi; push 0; push 0; update 0     R8 = registers.rdi; add R8 to the map's value
//!     inc lv, 3                                 lock locals[3] += 1
//!     exit
//! ```
//!
//! Such a handler takes no jump and raises nothing. What it pushes is known when it is compiled: a
//! number, or a register that is read where it is used.

use bpf::{Atomic, Insn, Reg, Size};
use vm::{FRAME_LIMIT, Instruction, Op, Register, Word};

use crate::access::Variables;
use crate::compiler::Compiler;
use crate::emit::REGISTERS;
use crate::{registers, table_code};

/// The most instructions of such a handler.
const MOST: usize = 256;

/// A value that is pushed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    Number(u64),
    /// The place of a register in the kernel's structure.
    Register(i16),
}

/// What a handler does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Adds to a variable.
    Variable(Variables, u32, i32),
    /// Adds to a map without keys.
    Update(u16, Value),
}

/// The steps of a handler, if it only counts.
pub(crate) fn steps(c: &Compiler<'_>) -> Option<Vec<Step>> {
    if !c.target.without_context || c.nodes.counts {
        return None;
    }
    let (mut steps, mut stack) = (Vec::new(), Vec::new());
    let mut offset = c.handler.entry;
    for _ in 0..MOST {
        let it = Instruction::at(c.handler.code, offset, c.handler.word)?;
        match it.op {
            Op::Abort => return Some(steps),
            // Unless it writes a record.
            Op::Exit => return c.nodes.is_quiet.then_some(steps),
            Op::Nop => {}
            Op::Push => stack.push(Value::Number(it.operand)),
            Op::PushR => stack.push(Value::Register(register(c, &it)?)),
            Op::IncLvImm => steps.push(variable(c, Variables::Local, &it, 1)?),
            Op::DecLvImm => steps.push(variable(c, Variables::Local, &it, -1)?),
            Op::IncGvImm => steps.push(variable(c, Variables::Global, &it, 1)?),
            Op::DecGvImm => steps.push(variable(c, Variables::Global, &it, -1)?),
            Op::Update => {
                let (key, length, value) = (stack.pop()?, stack.pop()?, stack.pop()?);
                let number = it.operand as u16;
                let info = c.handler.tables.infos.get(usize::from(number))?;
                let is_empty = matches!((key, length), (Value::Number(key), Value::Number(0)) if key <= FRAME_LIMIT as u64);
                if !is_empty || info.key > 0 || !table_code::adds_words(info.kind()) {
                    return None;
                }
                steps.push(Step::Update(number, value));
            }
            _ => return None,
        }
        offset = it.next;
    }
    None
}

/// The place of a register of 64 bits that an instruction pushes as it is.
fn register(c: &Compiler<'_>, it: &Instruction) -> Option<i16> {
    let register = Register::from_index(it.operand as u16)?;
    let whole = c.handler.word == Word::W8 && register.set() == vm::RegisterSet::Long;
    let place = registers::offset(register).filter(|place| *place != registers::IP);
    place.filter(|_| whole && !c.target.place.has_fields())
}

fn variable(c: &Compiler<'_>, which: Variables, it: &Instruction, by: i32) -> Option<Step> {
    let is_there = it.operand < c.count_of(which) as u64;
    is_there.then_some(Step::Variable(which, it.operand as u32, by))
}

/// Emits the steps. The processor is at a place of the program's stack.
pub(crate) fn emit(c: &mut Compiler<'_>, steps: &[Step], processor: i16) {
    for step in steps {
        match *step {
            Step::Variable(which, index, by) => {
                c.e.map_value(Reg::R3, which.map(), 8 * index);
                c.e.mov(Reg::R1, by);
                c.e.asm.push(Insn::atomic(Atomic::Add, Size::Double, Reg::R3, 0, Reg::R1));
            }
            Step::Update(map, value) => {
                match value {
                    Value::Number(number) => c.e.number(Reg::R8, number),
                    Value::Register(place) => c.e.load(Size::Double, Reg::R8, REGISTERS, place),
                }
                c.e.load(Size::Double, Reg::R1, Reg::R10, processor);
                table_code::update_single(c, map, Reg::R1);
            }
        }
    }
}
