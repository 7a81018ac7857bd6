//! Where a run is in its code and on its stacks.

use crate::code::Code;
use crate::frame::{CALL_DEPTH, Frame, Frames, slot};
use crate::resume::Middle;
use crate::stack::Stack;
use crate::{CALL_LIMIT, Exception, INSTRUCTION_LIMIT, JUMP_LIMIT, Program, Register, RegisterSet, Word};

/// `parm1` of INVALID_OPERAND: a bit position.
const POSITION: u64 = 3;

/// The code, the stack and the call stack of a run. All of it is inlined into the loop, and none of it is lent to
/// what is not, so that it can stay in registers; to what is seldom needed it is moved, and moved back.
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

    /// A run at its start or in its middle.
    #[inline(always)]
    pub(crate) fn new(
        program: &Program<'a>,
        middle: &Middle<'_>,
        stack: Stack<'s>,
        frames: &'s mut Frames,
    ) -> Flow<'a, 's, WIDE> {
        let jmpmax = program.jmpmax.min(JUMP_LIMIT);
        let insmax = program.insmax.min(INSTRUCTION_LIMIT);
        // Stack traces show nothing else of the outermost level.
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

    /// Jumps that were taken, and calls that were made.
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

    /// Jumps if the top, as a signed number, is as `condition` says.
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

    /// Returns from calls until one has an exception handler, takes it away and goes there. Whether there was one.
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

    /// The operand that counts elements from a stack register, as a word.
    #[inline(always)]
    pub(crate) fn index(&mut self) -> Result<u64, Exception> {
        self.code.u16().map(|index| Self::WORD.truncate(index as i16 as u64))
    }

    /// Puts `operation` of the top in its place.
    #[inline(always)]
    pub(crate) fn unary(&mut self, operation: impl Fn(u64) -> u64) {
        let value = self.stack.pop();
        self.stack.push(operation(value));
    }

    /// Pops two elements and pushes `operation` of the first popped and the second.
    #[inline(always)]
    pub(crate) fn binary(&mut self, operation: impl Fn(u64, u64) -> u64) {
        let (first, second) = (self.stack.pop(), self.stack.pop());
        self.stack.push(Self::WORD.truncate(operation(first, second)));
    }

    /// Rotates or shifts the top by the operand.
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

    /// Changes the top at the bit position in the operand.
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

    /// Changes the top at a bit position; where the word has none such, the top stays.
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

    /// The register in the operand, if the program's processor has it.
    #[inline(always)]
    pub(crate) fn register(&mut self) -> Result<Register, Exception> {
        match Register::from_index(self.code.u16()?) {
            Some(register) if WIDE || register.set() == RegisterSet::Both => Ok(register),
            _ => Err(self.code.invalid()),
        }
    }
}
