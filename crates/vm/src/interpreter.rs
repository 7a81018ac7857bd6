//! What each instruction does.
//!
//! One loop, one arm per row of the table, in the order of the groups. An instruction that cannot do what it
//! says raises an exception (`?`); as no program can take one yet, that ends the handler.

use crate::arithmetic as bits;
use crate::code::Code;
use crate::log::{Failure, Log, Token};
use crate::machine::{self, Fault, Machine};
use crate::stack::Stack;
use crate::state::{CALL_DEPTH, State};
use crate::{End, Exception, Op, Outcome, Program, Register, RegisterSet, Word};
use core::sync::atomic::{AtomicU64, Ordering};

/// The most jumps that one run can take, whatever `jmpmax` says.
pub const JUMP_LIMIT: u32 = 65_535;

/// The most calls that one run can make. The next one raises [`Exception::CALL_STACK_OVERFLOW`] with this number:
/// 32 procedures that call each other twice would make 2^32 calls without a jump.
pub const CALL_LIMIT: u32 = 65_535;

/// Runs the handler that begins at `entry` in the program's code, for one hit.
///
/// Whatever the code holds, it ends after at most (`jmpmax` + 2 x [`CALL_LIMIT`] + 1) x `code.len()` instructions:
/// between two jumps, calls or returns the offset only grows, and there are no more returns than calls. An
/// instruction takes a bounded time: at most 1024 words of the stack or what is free of the log.
///
/// The handler's log is [`State::log`] afterwards.
pub fn run<M: Machine>(program: &Program<'_>, entry: usize, state: &mut State, machine: &mut M) -> Outcome {
    match program.word {
        Word::W4 => run_for::<M, false>(program, entry, state, machine),
        Word::W8 => run_for::<M, true>(program, entry, state, machine),
    }
}

/// [`run`], for one word: 8 bytes if `WIDE`.
fn run_for<M: Machine, const WIDE: bool>(
    program: &Program<'_>,
    entry: usize,
    state: &mut State,
    machine: &mut M,
) -> Outcome {
    let State { words, used, returns, .. } = state;
    // All words count as used until the run is over, in case it never is.
    let stack = Stack::new(words, core::mem::replace(used, words.len()));
    let jumps = program.jmpmax.min(JUMP_LIMIT);
    let mut hit = Hit::<M, WIDE> {
        machine,
        mask: program.mask,
        code: Code::new(program.code, entry),
        stack,
        returns,
        depth: 0,
        calls: CALL_LIMIT,
        jumps,
        jmpmax: jumps,
        log: Log::new(&mut state.log, program.logmax),
        locals: Variables { list: program.locals, kind: LOCAL },
        globals: Variables { list: program.globals, kind: GLOBAL },
        major: None,
        minor: None,
        #[cfg(test)]
        steps: 0,
    };
    let end = hit.execute().unwrap_or_else(End::Exception);
    let outcome = Outcome { end, major: hit.major, minor: hit.minor };
    let (top, written, length) = (hit.stack.slot(), hit.stack.used(), hit.log.length());
    #[cfg(test)]
    let steps = hit.steps;
    state.top = top;
    state.used = written;
    state.log_length = if end == End::Abort { 0 } else { length };
    #[cfg(test)]
    (state.steps = steps);
    outcome
}

/// `parm1` of INVALID_OPERAND: a local variable's index.
const LOCAL: u64 = 1;
/// `parm1` of INVALID_OPERAND: a global variable's index.
const GLOBAL: u64 = 2;
/// `parm1` of INVALID_OPERAND: a bit position.
const POSITION: u64 = 3;
/// `parm1` of INVALID_OPERAND: an exit facility.
const FACILITY: u64 = 4;

/// The local or the global variables.
#[derive(Clone, Copy)]
struct Variables<'a> {
    list: &'a [AtomicU64],
    /// What an index out of range raises.
    kind: u64,
}

impl<'a> Variables<'a> {
    /// The variable at an index.
    #[inline(always)]
    fn at(self, index: u64) -> Result<&'a AtomicU64, Exception> {
        match usize::try_from(index).ok().and_then(|index| self.list.get(index)) {
            Some(variable) => Ok(variable),
            None => Err(Exception::operand(self.kind, index)),
        }
    }

    /// Sets the variable at an index.
    #[inline(always)]
    fn set(self, index: u64, value: u64) -> Result<(), Exception> {
        self.at(index)?.store(value, Ordering::Relaxed);
        Ok(())
    }

    /// Adds to the variable at an index, atomically.
    #[inline(always)]
    fn add(self, index: u64, value: u64) -> Result<(), Exception> {
        self.at(index)?.fetch_add(value, Ordering::Relaxed);
        Ok(())
    }
}

/// One hit: what its run has and where it is.
struct Hit<'a, 's, 'm, M, const WIDE: bool> {
    machine: &'m mut M,
    mask: u16,
    code: Code<'a>,
    stack: Stack<'s>,
    returns: &'s mut [usize; CALL_DEPTH],
    /// Calls that have not returned.
    depth: usize,
    /// Calls that may still be made.
    calls: u32,
    /// Jumps that may still be taken.
    jumps: u32,
    /// Jumps that a run may take.
    jmpmax: u32,
    log: Log<'s>,
    locals: Variables<'a>,
    globals: Variables<'a>,
    major: Option<u32>,
    minor: Option<u32>,
    #[cfg(test)]
    steps: u64,
}

impl<M: Machine, const WIDE: bool> Hit<'_, '_, '_, M, WIDE> {
    const WORD: Word = if WIDE { Word::W8 } else { Word::W4 };

    /// Runs instructions until one ends the handler.
    #[inline(always)]
    fn execute(&mut self) -> Result<End, Exception> {
        let word = Self::WORD;
        loop {
            let op = self.code.op()?;
            #[cfg(test)]
            (self.steps += 1);
            match op {
                // Execution.
                Op::Nop => {}
                Op::Jmp => self.jump_if(|_| true)?,
                Op::Jlt => self.jump_if(|top| top < 0)?,
                Op::Jle => self.jump_if(|top| top <= 0)?,
                Op::Jgt => self.jump_if(|top| top > 0)?,
                Op::Jge => self.jump_if(|top| top >= 0)?,
                Op::Jz => self.jump_if(|top| top == 0)?,
                Op::Jnz => self.jump_if(|top| top != 0)?,
                Op::Loop => {
                    let distance = self.code.word(word)?;
                    self.count_jump()?;
                    let count = word.truncate(self.stack.top().wrapping_sub(1));
                    self.stack.set_top(count);
                    if count != 0 {
                        self.code.jump(word, distance)?;
                    }
                }
                Op::Call => self.call()?,
                Op::Ret => match self.depth.checked_sub(1) {
                    Some(depth) => {
                        self.depth = depth;
                        self.code.resume(self.returns[depth % CALL_DEPTH]);
                    }
                    None => return Err(Exception::new(Exception::CALL_STACK_OVERFLOW, 0, 0)),
                },
                Op::Abort => return Ok(End::Abort),
                Op::Remove => return Ok(End::Remove),
                Op::Exit => return Ok(End::Exit),
                Op::ExitTo => match self.code.u8()? {
                    facility @ 1..=3 => return Ok(End::ExitTo(facility as u8)),
                    facility => return Err(Exception::operand(FACILITY, facility)),
                },

                // Logging.
                Op::SetMinImm => self.minor = Some(self.code.u16()?.into()),
                Op::SetMin => self.minor = Some((self.stack.pop() as u16).into()),
                Op::SetMajImm => self.major = Some(self.code.u16()?.into()),
                Op::SetMaj => self.major = Some((self.stack.pop() as u16).into()),
                Op::LogStr => {
                    let (address, size) = (self.stack.pop(), self.stack.pop());
                    match self.log.string(self.machine, word, address, size) {
                        Ok(()) => {}
                        // Ends the handler even where the exception is masked.
                        Err(Failure::Overflow) => return Err(self.log.overflow()),
                        Err(Failure::Fault(fault)) => return Err(self.log_fault(fault)),
                    }
                }
                Op::LogMrf => {
                    let (address, size) = (self.stack.pop(), self.stack.pop());
                    let logged = self.log.memory(self.machine, word, address, size);
                    self.logged(logged)?;
                }
                Op::LogImm => {
                    let count = self.code.u16()?;
                    self.log_elements(None, count.into())?;
                }
                Op::Log => {
                    let count = self.stack.pop();
                    self.log_elements(Some(Token::Elements), count)?;
                }

                // Global variables.
                Op::PushGvImm => {
                    let index = self.code.u16()?;
                    self.push_variable(self.globals, index.into())?;
                }
                Op::PushGv => {
                    let index = self.stack.pop();
                    self.push_variable(self.globals, index)?;
                }
                Op::PopGvImm => {
                    let variable = self.globals.at(self.code.u16()?.into())?;
                    variable.store(self.stack.pop(), Ordering::Relaxed);
                }
                Op::PopGv => {
                    let (value, index) = (self.stack.pop(), self.stack.pop());
                    self.globals.set(index, value)?;
                }
                Op::MoveGvImm => self.globals.set(self.code.u16()?.into(), self.stack.top())?,
                Op::MoveGv => self.globals.set(self.stack.pop(), self.stack.top())?,
                Op::IncGvImm => self.globals.add(self.code.u16()?.into(), 1)?,
                Op::IncGv => self.globals.add(self.stack.pop(), 1)?,
                Op::DecGvImm => self.globals.add(self.code.u16()?.into(), u64::MAX)?,
                Op::DecGv => self.globals.add(self.stack.pop(), u64::MAX)?,
                Op::LogGv => self.log_variables(Token::Globals, self.globals)?,

                // Local variables.
                Op::PushLvImm => {
                    let index = self.code.u16()?;
                    self.push_variable(self.locals, index.into())?;
                }
                Op::PushLv => {
                    let index = self.stack.pop();
                    self.push_variable(self.locals, index)?;
                }
                Op::PopLvImm => {
                    let variable = self.locals.at(self.code.u16()?.into())?;
                    variable.store(self.stack.pop(), Ordering::Relaxed);
                }
                Op::PopLv => {
                    let (value, index) = (self.stack.pop(), self.stack.pop());
                    self.locals.set(index, value)?;
                }
                Op::MoveLvImm => self.locals.set(self.code.u16()?.into(), self.stack.top())?,
                Op::MoveLv => self.locals.set(self.stack.pop(), self.stack.top())?,
                Op::IncLvImm => self.locals.add(self.code.u16()?.into(), 1)?,
                Op::IncLv => self.locals.add(self.stack.pop(), 1)?,
                Op::DecLvImm => self.locals.add(self.code.u16()?.into(), u64::MAX)?,
                Op::DecLv => self.locals.add(self.stack.pop(), u64::MAX)?,
                Op::LogLv => self.log_variables(Token::Locals, self.locals)?,

                // Arithmetic and logic.
                Op::Add => self.binary(u64::wrapping_add),
                Op::Sub => self.binary(u64::wrapping_sub),
                Op::Mul => self.binary(u64::wrapping_mul),
                Op::Neg => self.unary(|value| word.truncate(!value)),
                Op::And => self.binary(|first, second| first & second),
                Op::Or => self.binary(|first, second| first | second),
                Op::Xor => self.binary(|first, second| first ^ second),
                Op::RolImm => self.by_operand(bits::rotate_left)?,
                Op::Rol => self.binary(|value, count| bits::rotate_left(word, value, count)),
                Op::RorImm => self.by_operand(bits::rotate_right)?,
                Op::Ror => self.binary(|value, count| bits::rotate_right(word, value, count)),
                Op::ShlImm => self.by_operand(bits::shift_left)?,
                Op::Shl => self.binary(|value, count| bits::shift_left(word, value, count)),
                Op::ShrImm => self.by_operand(bits::shift_right)?,
                Op::Shr => self.binary(|value, count| bits::shift_right(word, value, count)),
                Op::Div => self.divide(bits::divide)?,
                Op::Idiv => {
                    self.divide(|dividend, divisor| bits::divide_signed(word, dividend, divisor))?;
                }
                Op::PblImm => self.at_operand(bits::propagate_left)?,
                Op::Pbl => self.at_popped(bits::propagate_left)?,
                Op::PbrImm => self.at_operand(bits::propagate_right)?,
                Op::Pbr => self.at_popped(bits::propagate_right)?,
                Op::PzlImm => self.at_operand(bits::zero_left)?,
                Op::Pzl => self.at_popped(bits::zero_left)?,
                Op::PzrImm => self.at_operand(bits::zero_right)?,
                Op::Pzr => self.at_popped(bits::zero_right)?,
                Op::Xchg => {
                    let (top, next) = (self.stack.pop(), self.stack.pop());
                    self.stack.push(top);
                    self.stack.push(next);
                }
                Op::DupImm => {
                    let count = self.code.u8()?;
                    let value = self.stack.pop();
                    self.stack.push_copies(value, count);
                }
                Op::Dup => {
                    let (value, count) = (self.stack.pop(), self.stack.pop());
                    self.stack.push_copies(value, count);
                }
                Op::Ros => {
                    let count = self.code.u8()?;
                    self.stack.discard(count);
                }

                // Registers. In the code of a user program both contexts are one.
                Op::PushR | Op::PushU => self.push_register()?,
                Op::PopR | Op::PopU => self.pop_register()?,

                // Data.
                Op::Push => {
                    let value = self.code.word(word)?;
                    self.stack.push(value);
                }
                Op::PushMem8 => self.push_memory::<1>()?,
                Op::PushMem16 => self.push_memory::<2>()?,
                Op::PushMem32 => self.push_memory::<4>()?,
                Op::PushMem64 => self.push_memory::<8>()?,
                Op::PopMem8 => self.pop_memory::<1>()?,
                Op::PopMem16 => self.pop_memory::<2>()?,
                Op::PopMem32 => self.pop_memory::<4>()?,
                Op::PopMem64 => self.pop_memory::<8>()?,

                // System variables.
                Op::PushTask => self.stack.push(word.truncate(self.machine.task())),
                Op::PushPid => self.stack.push(word.truncate(self.machine.pid())),
                Op::PushProcid => self.stack.push(word.truncate(self.machine.processor())),

                // Address verification.
                Op::Vfyr => self.verify(false),
                Op::Vfyrw => self.verify(true),
            }
        }
    }

    /// Counts a jump, if one more is allowed.
    #[inline(always)]
    fn count_jump(&mut self) -> Result<(), Exception> {
        match self.jumps.checked_sub(1) {
            Some(left) => {
                self.jumps = left;
                Ok(())
            }
            None => Err(Exception::new(Exception::JMP_MAX, self.jmpmax.into(), 0)),
        }
    }

    /// Jumps if the top, as a signed number, is as `condition` says.
    #[inline(always)]
    fn jump_if(&mut self, condition: impl Fn(i64) -> bool) -> Result<(), Exception> {
        let distance = self.code.word(Self::WORD)?;
        if condition(Self::WORD.signed(self.stack.top())) {
            self.count_jump()?;
            self.code.jump(Self::WORD, distance)?;
        }
        Ok(())
    }

    /// Calls a procedure.
    #[inline(always)]
    fn call(&mut self) -> Result<(), Exception> {
        let distance = self.code.word(Self::WORD)?;
        if self.depth >= CALL_DEPTH {
            return Err(Exception::new(Exception::CALL_STACK_OVERFLOW, CALL_DEPTH as u64, 0));
        }
        if self.calls == 0 {
            return Err(Exception::new(Exception::CALL_STACK_OVERFLOW, CALL_LIMIT.into(), 0));
        }
        let back = self.code.next();
        self.code.jump(Self::WORD, distance)?;
        self.returns[self.depth] = back;
        self.depth += 1;
        self.calls -= 1;
        Ok(())
    }

    /// Goes on after a record that the log took whole or in part; a full log matters only where it is not masked.
    #[inline(always)]
    fn logged(&mut self, result: Result<(), Failure>) -> Result<(), Exception> {
        match result {
            Ok(()) => Ok(()),
            Err(Failure::Overflow) if self.mask & Exception::LOG_OVERFLOW == 0 => Ok(()),
            Err(Failure::Overflow) => Err(self.log.overflow()),
            Err(Failure::Fault(fault)) => Err(self.log_fault(fault)),
        }
    }

    /// Logs a fault record. Where it does not fit, that is the exception to raise, unless it is masked.
    #[cold]
    fn log_fault(&mut self, fault: Fault) -> Exception {
        match self.log.fault(Self::WORD, fault) {
            Err(_) if self.mask & Exception::LOG_OVERFLOW != 0 => self.log.overflow(),
            _ => invalid_address(Self::WORD, fault),
        }
    }

    /// Pops `count` elements and logs them, top first. They are popped whether they fit or not.
    #[inline]
    fn log_elements(&mut self, token: Option<Token>, count: u64) -> Result<(), Exception> {
        let (words, top) = (self.stack.words(), self.stack.slot());
        let element = |place| Ok(words[top.wrapping_add(place as usize) % words.len()]);
        let logged = self.log.words::<Exception>(Self::WORD, token, count, element)?;
        self.stack.discard(count);
        self.logged(logged)
    }

    /// Pops a count, then an index, and logs that many variables from there on.
    #[inline]
    fn log_variables(&mut self, token: Token, variables: Variables<'_>) -> Result<(), Exception> {
        let (count, first) = (self.stack.pop(), self.stack.pop());
        let element = |place| {
            // Past the last index of a word there is no variable either.
            let variable = variables.at(first.saturating_add(place))?;
            Ok(variable.load(Ordering::Relaxed))
        };
        let logged = self.log.words(Self::WORD, Some(token), count, element)?;
        self.logged(logged)
    }

    /// Pushes the variable at an index.
    #[inline(always)]
    fn push_variable(&mut self, variables: Variables<'_>, index: u64) -> Result<(), Exception> {
        let value = variables.at(index)?.load(Ordering::Relaxed);
        self.stack.push(Self::WORD.truncate(value));
        Ok(())
    }

    /// Puts `operation` of the top in its place.
    #[inline(always)]
    fn unary(&mut self, operation: impl Fn(u64) -> u64) {
        let value = self.stack.pop();
        self.stack.push(operation(value));
    }

    /// Pops two elements and pushes `operation` of the first popped and the second.
    #[inline(always)]
    fn binary(&mut self, operation: impl Fn(u64, u64) -> u64) {
        let (first, second) = (self.stack.pop(), self.stack.pop());
        self.stack.push(Self::WORD.truncate(operation(first, second)));
    }

    /// Rotates or shifts the top by the operand.
    #[inline(always)]
    fn by_operand(&mut self, operation: impl Fn(Word, u64, u64) -> u64) -> Result<(), Exception> {
        let count = self.code.u8()?;
        self.unary(|value| operation(Self::WORD, value, count));
        Ok(())
    }

    /// Pops a divisor, then a dividend, and pushes the remainder, then the quotient.
    #[inline(always)]
    fn divide(&mut self, operation: impl Fn(u64, u64) -> Option<(u64, u64)>) -> Result<(), Exception> {
        let (divisor, dividend) = (self.stack.pop(), self.stack.pop());
        let Some((quotient, remainder)) = operation(dividend, divisor) else {
            return Err(Exception::new(Exception::DIVIDE_BY_ZERO, 0, 0));
        };
        self.stack.push(remainder);
        self.stack.push(quotient);
        Ok(())
    }

    /// Changes the top at the bit position in the operand.
    #[inline(always)]
    fn at_operand(&mut self, operation: impl Fn(Word, u64, u64) -> Option<u64>) -> Result<(), Exception> {
        let position = self.code.u8()?;
        self.at_position(position, operation)
    }

    /// Pops a bit position and changes the top there.
    #[inline(always)]
    fn at_popped(&mut self, operation: impl Fn(Word, u64, u64) -> Option<u64>) -> Result<(), Exception> {
        let position = self.stack.pop();
        self.at_position(position, operation)
    }

    /// Changes the top at a bit position; where the word has none such, the top stays.
    #[inline(always)]
    fn at_position(
        &mut self,
        position: u64,
        operation: impl Fn(Word, u64, u64) -> Option<u64>,
    ) -> Result<(), Exception> {
        match operation(Self::WORD, self.stack.top(), position) {
            Some(value) => {
                self.stack.set_top(value);
                Ok(())
            }
            None => Err(Exception::operand(POSITION, position)),
        }
    }

    /// The register in the operand, if the program's processor has it.
    #[inline(always)]
    fn register(&mut self) -> Result<Register, Exception> {
        match Register::from_index(self.code.u16()?) {
            Some(register) if WIDE || register.set() == RegisterSet::Both => Ok(register),
            _ => Err(self.code.invalid()),
        }
    }

    /// Pushes a register.
    fn push_register(&mut self) -> Result<(), Exception> {
        let register = self.register()?;
        let value = self.machine.register(register);
        self.stack.push(cut(register, value));
        Ok(())
    }

    /// Pops a register, if a handler may change it.
    fn pop_register(&mut self) -> Result<(), Exception> {
        let register = self.register()?;
        if !register.can_pop() {
            return Err(self.code.invalid());
        }
        let value = self.stack.pop();
        self.machine.set_register(register, cut(register, value));
        Ok(())
    }

    /// Pops an address and pushes the `N` bytes there: a word, zero-extended, or two, the low one on top.
    #[inline(always)]
    fn push_memory<const N: usize>(&mut self) -> Result<(), Exception> {
        let address = self.stack.pop();
        let mut bytes = [0; 8];
        match machine::read(self.machine, Self::WORD, address, 0, &mut bytes[..N]) {
            Ok(()) => {}
            Err(fault) => return Err(invalid_address(Self::WORD, fault)),
        }
        let value = u64::from_le_bytes(bytes);
        if N > Self::WORD.bytes() {
            self.stack.push(value >> Self::WORD.bits());
        }
        self.stack.push(Self::WORD.truncate(value));
        Ok(())
    }

    /// Pops a value (a word, or two, the low one first), then an address, and stores `N` bytes there.
    #[inline(always)]
    fn pop_memory<const N: usize>(&mut self) -> Result<(), Exception> {
        let mut value = self.stack.pop();
        if N > Self::WORD.bytes() {
            value |= self.stack.pop() << Self::WORD.bits();
        }
        let address = self.stack.pop();
        let bytes = &value.to_le_bytes()[..N];
        match machine::write(self.machine, Self::WORD, address, bytes) {
            Ok(()) => Ok(()),
            Err(fault) => Err(invalid_address(Self::WORD, fault)),
        }
    }

    /// Pops an address and pushes 0 if the byte there can be read (and written), else 1.
    fn verify(&mut self, write: bool) {
        let address = self.stack.pop();
        let valid = self.machine.verify(address, write);
        self.stack.push(u64::from(!valid));
    }
}

/// A value cut to what a register's name carries: 32 bits of an i386 name.
#[inline(always)]
fn cut(register: Register, value: u64) -> u64 {
    match register.set() {
        RegisterSet::Both => Word::W4.truncate(value),
        RegisterSet::Long => value,
    }
}

/// The exception of a memory access that faulted.
#[cold]
fn invalid_address(word: Word, fault: Fault) -> Exception {
    Exception::new(Exception::INVALID_ADDR, word.truncate(fault.address), 0)
}
