//! Work outside the interpreter's main loop: exceptions and rare instructions.
//!
//! The loop keeps its [`Flow`] in registers. The functions here need it in memory, so it is moved
//! here and back.

use crate::flow::Flow;
use crate::frame::{CALL_DEPTH, Range};
use crate::heap;
use crate::hit::RunContext;
use crate::log::Log;
use crate::loop_exit::LoopExit;
use crate::machine::{Machine, RunAccess};
use crate::trace::View;
use crate::variables::{GLOBAL, LOCAL, Variables};
use crate::{
    End, Exception, HANDLER_LIMIT, INSTRUCTION_LIMIT, NON_MASKABLE, Op, Program, Register, Shape, Word,
};
use crate::{Group, frame_instructions, map_instructions};

/// Does the work for which the loop was left. Returns the flow and, if the handler has ended, how.
#[cold]
#[inline(never)]
pub(crate) fn slow_path<'a, 's, M: Machine, const WIDE: bool>(
    program: &Program<'_>,
    stop: LoopExit,
    mut flow: Flow<'a, 's, WIDE>,
    hit: &mut RunContext<'_, '_, M, WIDE>,
) -> (Flow<'a, 's, WIDE>, Option<End>) {
    let result = match stop {
        LoopExit::End(end) => return (flow, Some(end)),
        LoopExit::Exception(exception) => Err(exception),
        LoopExit::Instruction(Op::Rx) => {
            let end = raise_again(program, &mut flow, hit);
            return (flow, end);
        }
        LoopExit::Instruction(op) => instruction(program, op, &mut flow, hit),
        LoopExit::Register(register) => push_register(register, &mut flow, hit),
    };
    let end = result.err().and_then(|exception| raise(program, exception, &mut flow, hit));
    (flow, end)
}

/// Ends a run that may execute no more instructions. No handler takes the exception: it could not
/// be executed.
#[cold]
#[inline(never)]
pub(crate) fn end_at_instruction_limit<M: Machine, const WIDE: bool>(
    program: &Program<'_>,
    flow: &mut Flow<'_, '_, WIDE>,
    hit: &mut RunContext<'_, '_, M, WIDE>,
) -> End {
    let insmax = program.insmax.min(INSTRUCTION_LIMIT);
    let exception = Exception::new(Exception::JMP_MAX, insmax.into(), 1);
    if hit.mask & Exception::JMP_MAX != 0 {
        push_exception(exception, flow);
        hit.aside().last = exception;
    }
    trace_automatically(program, flow, hit);
    End::Exception(exception)
}

/// Pushes the information of an exception.
fn push_exception<const WIDE: bool>(exception: Exception, flow: &mut Flow<'_, '_, WIDE>) {
    for value in [exception.parm2, exception.parm1, exception.code] {
        flow.stack.push(value);
    }
}

/// Raises an exception of the interpreter's. A masked one ends the handler: a maskable exception
/// only gets here if the handler cannot continue.
fn raise<M: Machine, const WIDE: bool>(
    program: &Program<'_>,
    exception: Exception,
    flow: &mut Flow<'_, '_, WIDE>,
    hit: &mut RunContext<'_, '_, M, WIDE>,
) -> Option<End> {
    let word = Flow::<WIDE>::WORD;
    let Exception { code, parm1, parm2 } = exception;
    let exception = Exception { code, parm1: word.truncate(parm1), parm2: word.truncate(parm2) };
    if hit.mask & exception.x_field() == 0 {
        if NON_MASKABLE & exception.x_field() != 0 {
            trace_automatically(program, flow, hit);
        }
        return Some(End::Exception(exception));
    }
    push_exception(exception, flow);
    dispatch(program, exception, flow, hit)
}

/// `rx`: raises the exception whose information is on top of the stack, without popping it.
fn raise_again<M: Machine, const WIDE: bool>(
    program: &Program<'_>,
    flow: &mut Flow<'_, '_, WIDE>,
    hit: &mut RunContext<'_, '_, M, WIDE>,
) -> Option<End> {
    let top = flow.stack.slot();
    let [code, parm1, parm2] = [0, 1, 2].map(|below| flow.stack.get(top + below));
    let exception = Exception { code, parm1, parm2 };
    if hit.mask & exception.x_field() != 0 {
        return dispatch(program, exception, flow, hit);
    }
    // Masked: not raised. A non-maskable one ends the handler.
    (NON_MASKABLE & exception.x_field() != 0).then(|| {
        trace_automatically(program, flow, hit);
        End::Exception(exception)
    })
}

/// Stores an exception as the last one and goes to the innermost exception handler; without one the
/// run ends.
fn dispatch<M: Machine, const WIDE: bool>(
    program: &Program<'_>,
    exception: Exception,
    flow: &mut Flow<'_, '_, WIDE>,
    hit: &mut RunContext<'_, '_, M, WIDE>,
) -> Option<End> {
    hit.aside().last = exception;
    trace_automatically(program, flow, hit);
    if hit.aside().handled < HANDLER_LIMIT && flow.go_to_handler() {
        hit.aside().handled += 1;
        return None;
    }
    Some(End::Exception(exception))
}

fn trace_automatically<M: Machine, const WIDE: bool>(
    program: &Program<'_>,
    flow: &mut Flow<'_, '_, WIDE>,
    hit: &mut RunContext<'_, '_, M, WIDE>,
) {
    if program.autostacktrace {
        trace(program, flow, hit);
    }
}

/// Writes a stack trace.
fn trace<M: Machine, const WIDE: bool>(
    program: &Program<'_>,
    flow: &mut Flow<'_, '_, WIDE>,
    hit: &mut RunContext<'_, '_, M, WIDE>,
) {
    let view = View {
        point: program.point,
        last: hit.aside().last,
        handler: flow.frame().handler(),
        calls: &flow.frames[1..=flow.depth().min(CALL_DEPTH)],
        elements: flow.stack.words(),
        locals: Variables { list: program.locals, kind: LOCAL },
        globals: Variables { list: program.globals, kind: GLOBAL },
    };
    hit.aside().trace.write(Flow::<WIDE>::WORD, program.excpt_log, &view);
}

/// Executes an instruction that is not in the main loop.
fn instruction<M: Machine, const WIDE: bool>(
    program: &Program<'_>,
    op: Op,
    flow: &mut Flow<'_, '_, WIDE>,
    hit: &mut RunContext<'_, '_, M, WIDE>,
) -> Result<(), Exception> {
    let word = Flow::<WIDE>::WORD;
    match op {
        Op::PushX => {
            let Exception { code, parm1, parm2 } = hit.aside().last;
            [parm2, parm1, code].into_iter().for_each(|value| flow.stack.push(value));
        }

        // Stack tracing.
        Op::LogSt => trace(program, flow, hit),
        Op::PurgeSt => hit.aside().trace.clear(),
        Op::TraceLv => flow.frame().locals = pop_range(flow),
        Op::TraceGv => flow.frame().globals = pop_range(flow),
        Op::TracePv => flow.frame().elements = pop_range(flow),
        Op::PushStp => flow.stack.push(hit.aside().trace.length() as u64),
        Op::PopStp => hit.aside().trace.set_length(word, flow.stack.pop()),

        // The heap.
        Op::Malloc => {
            let size = flow.stack.pop();
            flow.stack.push(hit.aside().heap.allocate(size, program.heap)?);
        }
        Op::Free => hit.aside().heap.free(flow.stack.pop())?,
        Op::PushH8 => push_heap::<M, WIDE, 1>(flow, hit)?,
        Op::PushH16 => push_heap::<M, WIDE, 2>(flow, hit)?,
        Op::PushH32 => push_heap::<M, WIDE, 4>(flow, hit)?,
        Op::PushH64 => push_heap::<M, WIDE, 8>(flow, hit)?,
        Op::PopH8 => pop_heap::<M, WIDE, 1>(flow, hit)?,
        Op::PopH16 => pop_heap::<M, WIDE, 2>(flow, hit)?,
        Op::PopH32 => pop_heap::<M, WIDE, 4>(flow, hit)?,
        Op::PopH64 => pop_heap::<M, WIDE, 8>(flow, hit)?,

        // Instructions that a machine may refuse.
        Op::PushTask => {
            let task = granted(flow, hit.machine.task())?;
            flow.stack.push(word.truncate(task));
        }
        Op::PushField => {
            let field = hit.machine.field(flow.code.u16()?);
            let field = granted(flow, field)?;
            flow.stack.push(word.truncate(field));
        }
        Op::Callk => {
            let mut run = Run { flow, log: &mut hit.log };
            let called = hit.machine.call_registered(&mut run).then_some(());
            granted(flow, called)?;
        }
        Op::Seg2lin => {
            let (offset, selector) = (flow.stack.pop(), flow.stack.pop());
            let machine = &mut hit.machine;
            let linear = u16::try_from(selector).ok().and_then(|it| machine.linear_address(it, offset));
            match linear {
                Some(address) => flow.stack.push(word.truncate(address)),
                None => return Err(Exception::new(Exception::SEG_FAULT, selector, 0)),
            }
        }
        Op::PushIo8 => read_port(flow, hit, 1)?,
        Op::PushIo16 => read_port(flow, hit, 2)?,
        Op::PushIo32 => read_port(flow, hit, 4)?,
        Op::PopIo8 => write_port(flow, hit, 1)?,
        Op::PopIo16 => write_port(flow, hit, 2)?,
        Op::PopIo32 => write_port(flow, hit, 4)?,

        // The main loop has an arm for each of the others.
        op => {
            return match op.row().group {
                Group::Map => map_instructions::execute(program, op, flow, hit),
                _ => frame_instructions::execute(program, op, flow, hit),
            };
        }
    }
    Ok(())
}

/// The stack and the log of a run, as lent to plugins by `callk`.
struct Run<'r, 'a, 's, 'l, const WIDE: bool> {
    flow: &'r mut Flow<'a, 's, WIDE>,
    log: &'r mut Log<'l>,
}

impl<const WIDE: bool> RunAccess for Run<'_, '_, '_, '_, WIDE> {
    fn word(&self) -> Word {
        Flow::<WIDE>::WORD
    }

    fn pop(&mut self) -> u64 {
        self.flow.stack.pop()
    }

    fn push(&mut self, value: u64) {
        self.flow.stack.push(Flow::<WIDE>::WORD.truncate(value));
    }

    fn log(&mut self, bytes: &[u8]) -> bool {
        let logged = self.log.bytes(bytes).is_ok();
        if logged {
            self.log.succeeded();
        }
        logged
    }
}

/// Pops a count, then the index of the first.
fn pop_range<const WIDE: bool>(flow: &mut Flow<'_, '_, WIDE>) -> Range {
    let (count, first) = (flow.stack.pop(), flow.stack.pop());
    Range { first, count }
}

/// Unwraps the machine's answer; a refusal raises INVALID_OPCODE.
pub(crate) fn granted<T, const WIDE: bool>(
    flow: &Flow<'_, '_, WIDE>,
    answer: Option<T>,
) -> Result<T, Exception> {
    answer.ok_or_else(|| flow.code.invalid())
}

/// Pushes values of `N` bytes from a heap block, one after another.
fn push_heap<M: Machine, const WIDE: bool, const N: usize>(
    flow: &mut Flow<'_, '_, WIDE>,
    hit: &mut RunContext<'_, '_, M, WIDE>,
) -> Result<(), Exception> {
    let count = u64::from(flow.code.u16()?);
    let (offset, handle) = (flow.stack.pop(), flow.stack.pop());
    let block = hit.aside().heap.block(handle, offset)?;
    for place in 0..count {
        // No sum wraps: the loop ends at the first value outside the block.
        let stored = heap::value::<N>(block, handle, offset + place * N as u64)?;
        let mut bytes = [0; 8];
        bytes[..N].copy_from_slice(stored);
        push_u64::<WIDE, N>(flow, u64::from_le_bytes(bytes));
    }
    Ok(())
}

/// Pops values of `N` bytes into a heap block, one after another.
fn pop_heap<M: Machine, const WIDE: bool, const N: usize>(
    flow: &mut Flow<'_, '_, WIDE>,
    hit: &mut RunContext<'_, '_, M, WIDE>,
) -> Result<(), Exception> {
    let count = u64::from(flow.code.u16()?);
    let (offset, handle) = (flow.stack.pop(), flow.stack.pop());
    let block = hit.aside().heap.block(handle, offset)?;
    for place in 0..count {
        let into = heap::value::<N>(block, handle, offset + place * N as u64)?;
        let low = flow.stack.pop();
        let high = if N == 8 && !WIDE { flow.stack.pop() << 32 } else { 0 };
        into.copy_from_slice(&(high | low).to_le_bytes()[..N]);
    }
    Ok(())
}

/// Pushes a value of `N` bytes: one element, or for 8 bytes with a 4-byte word two, low on top.
fn push_u64<const WIDE: bool, const N: usize>(flow: &mut Flow<'_, '_, WIDE>, value: u64) {
    if N == 8 && !WIDE {
        flow.stack.push(value >> 32);
    }
    flow.stack.push(Flow::<WIDE>::WORD.truncate(value));
}

/// Pushes a register that is not in the register file.
fn push_register<M: Machine, const WIDE: bool>(
    register: Register,
    flow: &mut Flow<'_, '_, WIDE>,
    hit: &mut RunContext<'_, '_, M, WIDE>,
) -> Result<(), Exception> {
    let word = Flow::<WIDE>::WORD;
    match register.shape() {
        Shape::Cpuid => {
            let leaf = flow.stack.pop() as u32;
            let registers = granted(flow, hit.machine.cpuid(leaf))?;
            registers.iter().rev().for_each(|&register| flow.stack.push(register.into()));
        }
        Shape::ModelSpecific => {
            let number = flow.stack.pop() as u32;
            let value = granted(flow, hit.machine.model_specific_register(number))?;
            push_u64::<WIDE, 8>(flow, value);
        }
        Shape::DescriptorTable => {
            let value = granted(flow, hit.machine.wide_register(register))?;
            flow.stack.push(word.truncate((value >> 16) as u64));
            flow.stack.push(value as u64 & 0xffff);
        }
        Shape::General | Shape::Word | Shape::Float | Shape::Vector => {
            let value = granted(flow, hit.machine.wide_register(register))?;
            for place in (0..register.pushes(word)).rev() {
                let part = value >> (place * word.bits() as usize);
                flow.stack.push(word.truncate(part as u64));
            }
        }
    }
    Ok(())
}

/// Pops a port and pushes what is read from it.
fn read_port<M: Machine, const WIDE: bool>(
    flow: &mut Flow<'_, '_, WIDE>,
    hit: &mut RunContext<'_, '_, M, WIDE>,
    size: usize,
) -> Result<(), Exception> {
    let port = flow.stack.pop() as u16;
    let value = granted(flow, hit.machine.read_port(port, size))?;
    flow.stack.push((value & low(size)).into());
    Ok(())
}

/// Pops a value, then a port, and writes the value to the port.
fn write_port<M: Machine, const WIDE: bool>(
    flow: &mut Flow<'_, '_, WIDE>,
    hit: &mut RunContext<'_, '_, M, WIDE>,
    size: usize,
) -> Result<(), Exception> {
    let (value, port) = (flow.stack.pop() as u32, flow.stack.pop() as u16);
    let written = hit.machine.write_port(port, size, value & low(size)).then_some(());
    granted(flow, written)
}

/// The bits of 1, 2 or 4 bytes.
fn low(size: usize) -> u32 {
    u32::MAX >> (32 - 8 * size)
}
