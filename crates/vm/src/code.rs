//! Reads bytecode: opcodes, operands and jumps, all checked against the end of the code.

use crate::{Exception, Op, Word};

/// Pseudo-exception that leaves the main loop before an instruction, to check whether the run may
/// continue. No program can raise it: codes that the interpreter raises have a zero upper half, and
/// `rx` does not use this path.
pub(crate) const PAUSE: Exception = Exception { code: u64::MAX, parm1: 1, parm2: 0 };

/// Instructions between two pauses.
const PAUSE_EVERY: u32 = 4096;

/// The bytecode of a program and the current position in it.
pub(crate) struct Code<'a> {
    bytes: &'a [u8],
    /// The offset of the next byte to be read.
    next: usize,
    /// The offset of the current instruction.
    start: usize,
    /// Instructions that may be executed before the next pause.
    left: u32,
    /// Instructions that may be executed after that pause.
    later: u32,
    /// Instructions begun.
    #[cfg(test)]
    pub(crate) count: u64,
}

impl<'a> Code<'a> {
    /// Starts at `entry` in `bytes`, with a budget of `instructions`.
    pub(crate) fn new(bytes: &'a [u8], entry: usize, instructions: u32) -> Code<'a> {
        let left = instructions.min(PAUSE_EVERY);
        Code {
            bytes,
            next: entry,
            start: entry,
            left,
            later: instructions - left,
            #[cfg(test)]
            count: 0,
        }
    }

    /// The offset of the next byte to be read.
    #[inline(always)]
    pub(crate) fn next(&self) -> usize {
        self.next
    }

    /// The exception of an invalid instruction: its opcode, or 0 past the end, and its offset.
    #[inline(always)]
    pub(crate) fn invalid(&self) -> Exception {
        invalid(self.bytes, self.start)
    }

    /// Reads the opcode of the next instruction.
    #[inline(always)]
    pub(crate) fn op(&mut self) -> Result<Op, Exception> {
        self.start = self.next;
        #[cfg(test)]
        if crate::resume_tests::is_due(self.count) {
            return Err(crate::resume_tests::STOPPED);
        }
        self.left = self.left.checked_sub(1).ok_or(PAUSE)?;
        let [byte] = self.bytes()?;
        let op = Op::from_byte(byte).ok_or_else(|| self.invalid())?;
        #[cfg(test)]
        (self.count += 1);
        Ok(op)
    }

    /// After a pause: refills the budget. Returns whether any instruction may still be executed.
    pub(crate) fn refill_budget(&mut self) -> bool {
        self.left = self.later.min(PAUSE_EVERY);
        self.later -= self.left;
        self.left > 0
    }

    /// Reads `N` bytes.
    #[inline(always)]
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Exception> {
        match self.bytes.get(self.next..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) => {
                self.next += N;
                Ok(*bytes)
            }
            None => Err(self.invalid()),
        }
    }

    /// Reads an operand of one byte.
    #[inline(always)]
    pub(crate) fn u8(&mut self) -> Result<u64, Exception> {
        self.bytes::<1>().map(|[byte]| u64::from(byte))
    }

    /// Reads an operand of two bytes.
    #[inline(always)]
    pub(crate) fn u16(&mut self) -> Result<u16, Exception> {
        self.bytes().map(u16::from_le_bytes)
    }

    /// Reads an operand of a word.
    #[inline(always)]
    pub(crate) fn word(&mut self, word: Word) -> Result<u64, Exception> {
        match word {
            Word::W4 => self.bytes().map(|bytes| u64::from(u32::from_le_bytes(bytes))),
            Word::W8 => self.bytes().map(u64::from_le_bytes),
        }
    }

    /// Jumps by `distance`, a signed word, from the end of the operand just read. If the target is
    /// outside the code the instruction is invalid.
    #[inline(always)]
    pub(crate) fn jump(&mut self, word: Word, distance: u64) -> Result<(), Exception> {
        self.next = self.target(word, distance)?;
        Ok(())
    }

    /// The target of [`Code::jump`].
    #[inline(always)]
    pub(crate) fn target(&self, word: Word, distance: u64) -> Result<usize, Exception> {
        let target = (self.next as u64).wrapping_add(word.signed(distance) as u64);
        if target >= self.bytes.len() as u64 {
            return Err(self.invalid());
        }
        Ok(target as usize)
    }

    /// Continues at `offset`, which [`Code::next`] or [`Code::target`] returned.
    #[inline(always)]
    pub(crate) fn resume(&mut self, offset: usize) {
        self.next = offset;
    }
}

/// The exception of the invalid instruction at `start`. Takes its arguments by value: see
/// [`crate::flow`].
#[cold]
fn invalid(code: &[u8], start: usize) -> Exception {
    let opcode = code.get(start).copied().unwrap_or(0);
    Exception::new(Exception::INVALID_OPCODE, u64::from(opcode), start as u64)
}
