//! The position of a run: in its code, on the RPN stack and on the call stack.

use crate::code::Code;
use crate::frame::{CALL_DEPTH, Frame, Frames, slot};
use crate::partial_run::PartialRun;
use crate::stack::Stack;
use crate::{CALL_LIMIT, Exception, INSTRUCTION_LIMIT, JUMP_LIMIT, Program, Register, RegisterSet, Word};

/// `parm1` of INVALID_OPERAND: a bit position.
const POSITION: u64 = 3;

/// The code, the stack and the call stack of a run. All methods are inlined into the main loop, and
/// no reference to it is passed to functions that are not, so that the compiler can keep it in
/// registers; for rare instructions it is moved out and back.
pub(crate) struct Flow<'a, 's, const WIDE: bool> {
    pub(crate) code: Code<'a>,
    pub(crate) stack: Stack<'s>,
    pub(crate) frames: &'s mut Frames,
    /// Calls that have not returned.
    depth: usize,
    /// The slot that the stack base pointer points at.
    base: usize,
    /// Calls that may still be made.
    calls: u32,
    /// Jumps that may still be taken.
    jumps: u32,
    /// Jumps that a run may take.
    jmpmax: u32,
}

impl<'a, 's, const WIDE: bool> Flow<'a, 's, WIDE> {
    /// The program's word.
    pub(crate) const WORD: Word = if WIDE { Word::W8 } else { Word::W4 };

    /// Begins a run, or continues one.
    #[inline(always)]
    pub(crate) fn new(
        program: &Program<'a>,
        middle: &PartialRun<'_>,
        stack: Stack<'s>,
        frames: &'s mut Frames,
    ) -> Flow<'a, 's, WIDE> {
        let jmpmax = program.jmpmax.min(JUMP_LIMIT);
        let insmax = program.insmax.min(INSTRUCTION_LIMIT);
        // Of the outermost frame only the handler matters: stack traces do not show that level.
        frames[0].set_handler(None);
        let calls = middle.calls();
        for (frame, call) in frames[1..].iter_mut().zip(calls) {
            *frame = Frame::new(call.callee as usize, call.back as usize, 0);
        }
        Flow {
            code: Code::new(program.code, middle.offset, insmax.saturating_sub(middle.instructions)),
            stack,
            frames,
            depth: calls.len(),
            base: 0,
            calls: CALL_LIMIT.saturating_sub(middle.calls_made),
            jumps: jmpmax.saturating_sub(middle.jumps),
            jmpmax,
        }
    }

    /// Jumps taken and calls made so far.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> (u32, u32) {
        (self.jmpmax - self.jumps, CALL_LIMIT - self.calls)
    }

    /// Calls that have not returned.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// The frame of the current call, or of the outermost level.
    #[inline(always)]
    pub(crate) fn frame(&mut self) -> &mut Frame {
        &mut self.frames[self.depth % (CALL_DEPTH + 1)]
    }

    /// Counts a jump, if one more is allowed.
    #[inline(always)]
    pub(crate) fn count_jump(&mut self) -> Result<(), Exception> {
        match self.jumps.checked_sub(1) {
            Some(left) => {
                self.jumps = left;
                Ok(())
            }
            None => Err(Exception::new(Exception::JMP_MAX, self.jmpmax.into(), 0)),
        }
    }

    /// Jumps if the top, as a signed number, satisfies `condition`.
    #[inline(always)]
    pub(crate) fn jump_if(&mut self, condition: impl Fn(i64) -> bool) -> Result<(), Exception> {
        let distance = self.code.word(Self::WORD)?;
        if condition(Self::WORD.signed(self.stack.top())) {
            self.count_jump()?;
            self.code.jump(Self::WORD, distance)?;
        }
        Ok(())
    }

    /// Calls a procedure.
    #[inline(always)]
    pub(crate) fn call(&mut self) -> Result<(), Exception> {
        let distance = self.code.word(Self::WORD)?;
        if self.depth >= CALL_DEPTH {
            return Err(Exception::new(Exception::CALL_STACK_OVERFLOW, CALL_DEPTH as u64, 0));
        }
        if self.calls == 0 {
            return Err(Exception::new(Exception::CALL_STACK_OVERFLOW, CALL_LIMIT.into(), 0));
        }
        let back = self.code.next();
        self.code.jump(Self::WORD, distance)?;
        self.depth += 1;
        self.calls -= 1;
        *self.frame() = Frame::new(self.code.next(), back, self.base);
        Ok(())
    }

    /// Returns from a procedure.
    #[inline(always)]
    pub(crate) fn ret(&mut self) -> Result<(), Exception> {
        if self.depth == 0 {
            return Err(Exception::new(Exception::CALL_STACK_OVERFLOW, 0, 0));
        }
        let Frame { back, base, .. } = *self.frame();
        self.base = base;
        self.depth -= 1;
        self.code.resume(back);
        Ok(())
    }

    /// Sets the exception handler of the current call.
    #[inline(always)]
    pub(crate) fn set_handler(&mut self) -> Result<(), Exception> {
        let distance = self.code.word(Self::WORD)?;
        let handler = self.code.target(Self::WORD, distance)?;
        self.frame().set_handler(Some(handler));
        Ok(())
    }

    /// Returns from calls until one has an exception handler, clears that handler and jumps to it.
    /// Returns whether there was one.
    pub(crate) fn go_to_handler(&mut self) -> bool {
        loop {
            if let Some(handler) = self.frame().handler() {
                self.frame().set_handler(None);
                self.code.resume(handler);
                return true;
            }
            if self.ret().is_err() {
                return false;
            }
        }
    }

    /// The stack base pointer.
    #[inline(always)]
    pub(crate) fn base(&self) -> usize {
        self.base
    }

    /// Sets the stack base pointer to a slot, modulo 1024.
    #[inline(always)]
    pub(crate) fn set_base(&mut self, value: u64) {
        self.base = slot(0, value);
    }

    /// The operand that is an element's distance from a stack register, as a word.
    #[inline(always)]
    pub(crate) fn index(&mut self) -> Result<u64, Exception> {
        self.code.u16().map(|index| Self::WORD.truncate(index as i16 as u64))
    }

    /// Replaces the top by `operation` of it.
    #[inline(always)]
    pub(crate) fn unary(&mut self, operation: impl Fn(u64) -> u64) {
        let value = self.stack.pop();
        self.stack.push(operation(value));
    }

    /// Pops two elements and pushes `operation(first popped, second popped)`.
    #[inline(always)]
    pub(crate) fn binary(&mut self, operation: impl Fn(u64, u64) -> u64) {
        let (first, second) = (self.stack.pop(), self.stack.pop());
        self.stack.push(Self::WORD.truncate(operation(first, second)));
    }

    /// Rotates or shifts the top by the operand's count.
    #[inline(always)]
    pub(crate) fn by_operand(&mut self, operation: impl Fn(Word, u64, u64) -> u64) -> Result<(), Exception> {
        let count = self.code.u8()?;
        self.unary(|value| operation(Self::WORD, value, count));
        Ok(())
    }

    /// Pops a divisor, then a dividend, and pushes the remainder, then the quotient.
    #[inline(always)]
    pub(crate) fn divide(
        &mut self,
        operation: impl Fn(u64, u64) -> Option<(u64, u64)>,
    ) -> Result<(), Exception> {
        let (divisor, dividend) = (self.stack.pop(), self.stack.pop());
        let Some((quotient, remainder)) = operation(dividend, divisor) else {
            return Err(Exception::new(Exception::DIVIDE_BY_ZERO, 0, 0));
        };
        self.stack.push(remainder);
        self.stack.push(quotient);
        Ok(())
    }

    /// Changes the top at the bit position given by the operand.
    #[inline(always)]
    pub(crate) fn at_operand(
        &mut self,
        operation: impl Fn(Word, u64, u64) -> Option<u64>,
    ) -> Result<(), Exception> {
        let position = self.code.u8()?;
        self.at_position(position, operation)
    }

    /// Pops a bit position and changes the top there.
    #[inline(always)]
    pub(crate) fn at_popped(
        &mut self,
        operation: impl Fn(Word, u64, u64) -> Option<u64>,
    ) -> Result<(), Exception> {
        let position = self.stack.pop();
        self.at_position(position, operation)
    }

    /// Changes the top at a bit position. Raises INVALID_OPERAND for a position that the word does
    /// not have.
    #[inline(always)]
    pub(crate) fn at_position(
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

    /// The register that the operand names, if the program's processor has it.
    #[inline(always)]
    pub(crate) fn register(&mut self) -> Result<Register, Exception> {
        match Register::from_index(self.code.u16()?) {
            Some(register) if WIDE || register.set() == RegisterSet::Both => Ok(register),
            _ => Err(self.code.invalid()),
        }
    }
}
