//! The interpreter's main loop: what each instruction does.
//!
//! One arm per row of the table, in the order of the groups; rare instructions are in
//! [`crate::slow_path`]. An instruction that fails raises an exception (`?`), which leaves the loop
//! until it has been handled.

use crate::arithmetic as bits;
use crate::flow::Flow;
use crate::frame::slot;
use crate::hit::RunContext;
use crate::log::Token;
use crate::loop_exit::LoopExit;
use crate::machine::Machine;
use crate::variables::{GLOBAL, LOCAL, Variables};
use crate::{End, Exception, Op, Program, Register, RegisterSet, Word};

/// `parm1` of INVALID_OPERAND: an exit facility.
const FACILITY: u64 = 4;
/// `parm1` of INVALID_OPERAND: a value that a segment register does not accept.
const SELECTOR: u64 = 5;

/// Runs instructions until something must be done outside the loop.
#[inline(always)]
pub(crate) fn execute<M: Machine, const WIDE: bool>(
    program: &Program<'_>,
    flow: &mut Flow<'_, '_, WIDE>,
    hit: &mut RunContext<'_, '_, M, WIDE>,
) -> Result<LoopExit, Exception> {
    let word = Flow::<WIDE>::WORD;
    let locals = Variables { list: program.locals, kind: LOCAL };
    let globals = Variables { list: program.globals, kind: GLOBAL };
    loop {
        match flow.code.op()? {
            // Execution.
            Op::Nop => {}
            Op::Jmp => flow.jump_if(|_| true)?,
            Op::Jlt => flow.jump_if(|top| top < 0)?,
            Op::Jle => flow.jump_if(|top| top <= 0)?,
            Op::Jgt => flow.jump_if(|top| top > 0)?,
            Op::Jge => flow.jump_if(|top| top >= 0)?,
            Op::Jz => flow.jump_if(|top| top == 0)?,
            Op::Jnz => flow.jump_if(|top| top != 0)?,
            Op::Loop => {
                let distance = flow.code.word(word)?;
                flow.count_jump()?;
                let count = word.truncate(flow.stack.top().wrapping_sub(1));
                flow.stack.set_top(count);
                if count != 0 {
                    flow.code.jump(word, distance)?;
                }
            }
            Op::Call => flow.call()?,
            Op::Ret => flow.ret()?,
            Op::Abort => return Ok(LoopExit::End(End::Abort)),
            Op::Remove => return Ok(LoopExit::End(End::Remove)),
            Op::Exit => return Ok(LoopExit::End(End::Exit)),
            Op::ExitTo => match flow.code.u8()? {
                facility @ 1..=3 => return Ok(LoopExit::End(End::ExitTo(facility as u8))),
                facility => return Err(Exception::operand(FACILITY, facility)),
            },

            // Logging.
            Op::SetMinImm => hit.minor = Some(flow.code.u16()?.into()),
            Op::SetMin => hit.minor = Some((flow.stack.pop() as u16).into()),
            Op::SetMajImm => hit.major = Some(flow.code.u16()?.into()),
            Op::SetMaj => hit.major = Some((flow.stack.pop() as u16).into()),
            Op::LogStr => {
                let (address, size) = (flow.stack.pop(), flow.stack.pop());
                hit.log_string(address, size)?;
            }
            Op::LogMrf => {
                let (address, size) = (flow.stack.pop(), flow.stack.pop());
                hit.log_memory(address, size)?;
            }
            // Elements are popped whether they fit or not.
            Op::LogImm => {
                let count = flow.code.u16()?.into();
                let top = flow.stack.slot();
                flow.stack.discard(count);
                hit.log_elements(None, flow.stack.words(), top, count)?;
            }
            op @ (Op::LogB | Op::LogW | Op::LogD) => {
                let count = flow.code.u16()?.into();
                let top = flow.stack.slot();
                flow.stack.discard(count);
                let bytes = match op {
                    Op::LogB => 1,
                    Op::LogW => 2,
                    _ => 4,
                };
                hit.log_parts(bytes, flow.stack.words(), top, count)?;
            }
            Op::Log => {
                let count = flow.stack.pop();
                let top = flow.stack.slot();
                flow.stack.discard(count);
                hit.log_elements(Some(Token::Elements), flow.stack.words(), top, count)?;
            }

            // Global variables.
            Op::PushGvImm => flow.stack.push(globals.get(word, flow.code.u16()?.into())?),
            Op::PushGv => {
                let index = flow.stack.pop();
                flow.stack.push(globals.get(word, index)?);
            }
            Op::PopGvImm => {
                globals.set(flow.code.u16()?.into(), flow.stack.top())?;
                flow.stack.discard(1);
            }
            Op::PopGv => {
                let (value, index) = (flow.stack.pop(), flow.stack.pop());
                globals.set(index, value)?;
            }
            Op::MoveGvImm => globals.set(flow.code.u16()?.into(), flow.stack.top())?,
            Op::MoveGv => globals.set(flow.stack.pop(), flow.stack.top())?,
            Op::IncGvImm => globals.add(flow.code.u16()?.into(), 1)?,
            Op::IncGv => globals.add(flow.stack.pop(), 1)?,
            Op::DecGvImm => globals.add(flow.code.u16()?.into(), u64::MAX)?,
            Op::DecGv => globals.add(flow.stack.pop(), u64::MAX)?,
            Op::LogGv => {
                let (count, first) = (flow.stack.pop(), flow.stack.pop());
                hit.log_variables(Token::Globals, globals, count, first)?;
            }

            // Local variables.
            Op::PushLvImm => flow.stack.push(locals.get(word, flow.code.u16()?.into())?),
            Op::PushLv => {
                let index = flow.stack.pop();
                flow.stack.push(locals.get(word, index)?);
            }
            Op::PopLvImm => {
                locals.set(flow.code.u16()?.into(), flow.stack.top())?;
                flow.stack.discard(1);
            }
            Op::PopLv => {
                let (value, index) = (flow.stack.pop(), flow.stack.pop());
                locals.set(index, value)?;
            }
            Op::MoveLvImm => locals.set(flow.code.u16()?.into(), flow.stack.top())?,
            Op::MoveLv => locals.set(flow.stack.pop(), flow.stack.top())?,
            Op::IncLvImm => locals.add(flow.code.u16()?.into(), 1)?,
            Op::IncLv => locals.add(flow.stack.pop(), 1)?,
            Op::DecLvImm => locals.add(flow.code.u16()?.into(), u64::MAX)?,
            Op::DecLv => locals.add(flow.stack.pop(), u64::MAX)?,
            Op::LogLv => {
                let (count, first) = (flow.stack.pop(), flow.stack.pop());
                hit.log_variables(Token::Locals, locals, count, first)?;
            }

            // Arithmetic and logic.
            Op::Add => flow.binary(u64::wrapping_add),
            Op::Sub => flow.binary(u64::wrapping_sub),
            Op::Mul => flow.binary(u64::wrapping_mul),
            Op::Neg => flow.unary(|value| word.truncate(!value)),
            Op::And => flow.binary(|first, second| first & second),
            Op::Or => flow.binary(|first, second| first | second),
            Op::Xor => flow.binary(|first, second| first ^ second),
            Op::RolImm => flow.by_operand(bits::rotate_left)?,
            Op::Rol => flow.binary(|value, count| bits::rotate_left(word, value, count)),
            Op::RorImm => flow.by_operand(bits::rotate_right)?,
            Op::Ror => flow.binary(|value, count| bits::rotate_right(word, value, count)),
            Op::ShlImm => flow.by_operand(bits::shift_left)?,
            Op::Shl => flow.binary(|value, count| bits::shift_left(word, value, count)),
            Op::ShrImm => flow.by_operand(bits::shift_right)?,
            Op::Shr => flow.binary(|value, count| bits::shift_right(word, value, count)),
            Op::Div => flow.divide(bits::divide)?,
            Op::Idiv => {
                flow.divide(|dividend, divisor| bits::divide_signed(word, dividend, divisor))?;
            }
            Op::Eq => flow.binary(|first, second| u64::from(first == second)),
            Op::Slt => flow.binary(|first, second| u64::from(word.signed(first) < word.signed(second))),
            Op::Ult => flow.binary(|first, second| u64::from(first < second)),
            Op::Quo => flow.binary(|first, second| first.checked_div(second).unwrap_or(0)),
            Op::Rem => flow.binary(|first, second| first.checked_rem(second).unwrap_or(first)),
            Op::Squo => flow.binary(|first, second| bits::quotient_signed(word, first, second)),
            Op::Srem => flow.binary(|first, second| bits::remainder_signed(word, first, second)),
            Op::Sar => flow.binary(|value, count| bits::shift_right_signed(word, value, count)),
            Op::PblImm => flow.at_operand(bits::propagate_left)?,
            Op::Pbl => flow.at_popped(bits::propagate_left)?,
            Op::PbrImm => flow.at_operand(bits::propagate_right)?,
            Op::Pbr => flow.at_popped(bits::propagate_right)?,
            Op::PzlImm => flow.at_operand(bits::zero_left)?,
            Op::Pzl => flow.at_popped(bits::zero_left)?,
            Op::PzrImm => flow.at_operand(bits::zero_right)?,
            Op::Pzr => flow.at_popped(bits::zero_right)?,
            Op::Xchg => {
                let (top, next) = (flow.stack.pop(), flow.stack.pop());
                flow.stack.push(top);
                flow.stack.push(next);
            }
            Op::DupImm => {
                let count = flow.code.u8()?;
                let value = flow.stack.pop();
                flow.stack.push_copies(value, count);
            }
            Op::Dup => {
                let (value, count) = (flow.stack.pop(), flow.stack.pop());
                flow.stack.push_copies(value, count);
            }
            Op::Ros => {
                let count = flow.code.u8()?;
                flow.stack.discard(count);
            }

            // Registers. In a user program both contexts are the same.
            Op::PushR | Op::PushU => {
                let register = flow.register()?;
                if !register.is_general() {
                    return Ok(LoopExit::Register(register));
                }
                let value = hit.machine.register(register);
                flow.stack.push(cut(register, value));
            }
            Op::PopR | Op::PopU => {
                let register = flow.register()?;
                if !register.can_pop() {
                    return Err(flow.code.invalid());
                }
                let value = cut(register, flow.stack.pop());
                if !hit.machine.accepts(register, value) {
                    return Err(Exception::operand(SELECTOR, value));
                }
                hit.machine.set_register(register, value);
            }

            // Data.
            Op::Push => {
                let value = flow.code.word(word)?;
                flow.stack.push(value);
            }
            Op::PushMem8 => {
                let address = flow.stack.pop();
                flow.stack.push(hit.load::<1>(address)?);
            }
            Op::PushMem16 => {
                let address = flow.stack.pop();
                flow.stack.push(hit.load::<2>(address)?);
            }
            Op::PushMem32 => {
                let address = flow.stack.pop();
                flow.stack.push(hit.load::<4>(address)?);
            }
            Op::PushMem64 => {
                let address = flow.stack.pop();
                let value = hit.load::<8>(address)?;
                if !WIDE {
                    flow.stack.push(value >> 32);
                }
                flow.stack.push(word.truncate(value));
            }
            Op::PopMem8 => {
                let (value, address) = (flow.stack.pop(), flow.stack.pop());
                hit.store::<1>(address, value)?;
            }
            Op::PopMem16 => {
                let (value, address) = (flow.stack.pop(), flow.stack.pop());
                hit.store::<2>(address, value)?;
            }
            Op::PopMem32 => {
                let (value, address) = (flow.stack.pop(), flow.stack.pop());
                hit.store::<4>(address, value)?;
            }
            Op::PopMem64 => {
                let low = flow.stack.pop();
                let high = if WIDE { 0 } else { flow.stack.pop() << 32 };
                let address = flow.stack.pop();
                hit.store::<8>(address, high | low)?;
            }

            // System variables.
            Op::PushPid => flow.stack.push(word.truncate(hit.machine.pid())),
            Op::PushMinor => flow.stack.push(u64::from(program.point.minor)),
            Op::PushProcid => flow.stack.push(word.truncate(hit.machine.processor())),

            // Address verification.
            Op::Vfyr => {
                let address = flow.stack.pop();
                flow.stack.push((!hit.machine.verify(address, false)).into());
            }
            Op::Vfyrw => {
                let address = flow.stack.pop();
                flow.stack.push((!hit.machine.verify(address, true)).into());
            }

            // Exceptions.
            Op::Sx => flow.set_handler()?,
            Op::Ux => flow.frame().set_handler(None),

            // Internal registers. An index from the stack is relative to the top after the pops; an
            // operand index is relative to the top before them.
            Op::PushSbp => {
                let index = flow.stack.pop();
                flow.stack.push(flow.stack.get(slot(flow.base(), index)));
            }
            Op::PushSbpImm => {
                let index = flow.index()?;
                flow.stack.push(flow.stack.get(slot(flow.base(), index)));
            }
            Op::PopSbp => {
                let (value, index) = (flow.stack.pop(), flow.stack.pop());
                flow.stack.set(slot(flow.base(), index), value);
            }
            Op::PopSbpImm => {
                let index = flow.index()?;
                let value = flow.stack.pop();
                flow.stack.set(slot(flow.base(), index), value);
            }
            Op::CopySbp => {
                let index = flow.stack.pop();
                flow.stack.set(slot(flow.base(), index), flow.stack.top());
            }
            Op::CopySbpImm => {
                let index = flow.index()?;
                flow.stack.set(slot(flow.base(), index), flow.stack.top());
            }
            Op::PushTsp => {
                let index = flow.stack.pop();
                flow.stack.push(flow.stack.get(slot(flow.stack.slot(), index)));
            }
            Op::PushTspImm => {
                let index = flow.index()?;
                flow.stack.push(flow.stack.get(slot(flow.stack.slot(), index)));
            }
            Op::PopTsp => {
                let (value, index) = (flow.stack.pop(), flow.stack.pop());
                flow.stack.set(slot(flow.stack.slot(), index), value);
            }
            Op::PopTspImm => {
                let place = slot(flow.stack.slot(), flow.index()?);
                let value = flow.stack.pop();
                flow.stack.set(place, value);
            }
            Op::CopyTsp => {
                let index = flow.stack.pop();
                flow.stack.set(slot(flow.stack.slot(), index), flow.stack.top());
            }
            Op::CopyTspImm => {
                let index = flow.index()?;
                flow.stack.set(slot(flow.stack.slot(), index), flow.stack.top());
            }
            Op::SaveSbp => flow.stack.push(flow.base() as u64),
            Op::RestoreSbp => {
                let value = flow.stack.pop();
                flow.set_base(value);
            }
            Op::SaveTsp => flow.stack.push(flow.stack.slot() as u64),
            Op::RestoreTsp => {
                let value = flow.stack.pop();
                flow.stack.move_top(slot(0, value));
            }
            Op::PushLp => flow.stack.push(hit.log.length() as u64),
            Op::PushPlp => flow.stack.push(hit.log.complete_length() as u64),
            Op::PopLp => {
                let length = flow.stack.pop();
                hit.set_log_length(length)?;
            }
            Op::PushWid => flow.stack.push(word.truncate(u64::from(word.bits()).wrapping_neg())),

            // The rest: exceptions that the program raises, stack tracing, the heap, and
            // instructions that a machine may refuse.
            op @ (Op::Rx
            | Op::PushX
            | Op::LogSt
            | Op::PurgeSt
            | Op::TraceLv
            | Op::TraceGv
            | Op::TracePv
            | Op::PushStp
            | Op::PopStp
            | Op::Malloc
            | Op::Free
            | Op::PushH8
            | Op::PushH16
            | Op::PushH32
            | Op::PushH64
            | Op::PopH8
            | Op::PopH16
            | Op::PopH32
            | Op::PopH64
            | Op::PushTask
            | Op::PushField
            | Op::Callk
            | Op::Seg2lin
            | Op::PushIo8
            | Op::PushIo16
            | Op::PushIo32
            | Op::PopIo8
            | Op::PopIo16
            | Op::PopIo32
            | Op::PushF
            | Op::PopF
            | Op::PushF8
            | Op::FillF
            | Op::MoveF
            | Op::ReadF
            | Op::StrF
            | Op::TextF
            | Op::CompareF
            | Op::FindF
            | Op::GlobF
            | Op::LogF
            | Op::LogTextF
            | Op::PushTid
            | Op::PushNsecs
            | Op::PushRand
            | Op::PushIds
            | Op::PushParent
            | Op::Signal
            | Op::Override
            | Op::CommF
            | Op::Update
            | Op::Fetch
            | Op::Store
            | Op::Erase
            | Op::Load
            | Op::Put
            | Op::Bump
            | Op::Has
            | Op::Next
            | Op::Entries
            | Op::StackOf
            | Op::KStackOf
            | Op::Depth) => return Ok(LoopExit::Instruction(op)),
        }
    }
}

/// Truncates a value to the width of the register's name: 32 bits for an i386 name.
#[inline(always)]
fn cut(register: Register, value: u64) -> u64 {
    match register.set() {
        RegisterSet::Both => Word::W4.truncate(value),
        RegisterSet::Long => value,
    }
}
