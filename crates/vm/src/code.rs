//! Reading bytecode: opcodes, operands and jumps, within the code whatever it holds.

use crate::{Exception, Op, Word};

/// What leaves the loop before an instruction when it is time to see whether the run may go on. No program can raise it:
/// codes that the interpreter raises have no upper half, and `rx` does not come this way.
pub(crate) const PAUSE: Exception = Exception { code: u64::MAX, parm1: 1, parm2: 0 };

/// Instructions between two pauses.
const PAUSE_EVERY: u32 = 4096;

/// The bytecode of a program and the place in it.
pub(crate) struct Code<'a> {
    bytes: &'a [u8],
    /// The offset of the next byte to be read.
    next: usize,
    /// The offset of the current instruction.
    start: usize,
    /// Instructions that may be executed before the next pause.
    left: u32,
    /// Instructions that may be executed after it.
    later: u32,
    /// Instructions read.
    #[cfg(test)]
    pub(crate) count: u64,
}

impl<'a> Code<'a> {
    /// The code `bytes`, to be run from `entry` on, for so many instructions.
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

    /// The exception of an instruction that is none: it has its opcode, or 0 past the end, and its offset.
    #[inline(always)]
    pub(crate) fn invalid(&self) -> Exception {
        invalid(self.bytes, self.start)
    }

    /// Reads the opcode of the next instruction.
    #[inline(always)]
    pub(crate) fn op(&mut self) -> Result<Op, Exception> {
        self.start = self.next;
        #[cfg(test)]
        if crate::stopped::is_due(self.count) {
            return Err(crate::stopped::STOPPED);
        }
        self.left = self.left.checked_sub(1).ok_or(PAUSE)?;
        let [byte] = self.bytes()?;
        let op = Op::from_byte(byte).ok_or_else(|| self.invalid())?;
        #[cfg(test)]
        (self.count += 1);
        Ok(op)
    }

    /// After a pause: whether any instruction may still be executed.
    pub(crate) fn go_on(&mut self) -> bool {
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

    /// Goes on `distance`, a signed word, behind the operand just read. A place that holds no byte of the code
    /// is not gone to: the instruction is invalid.
    #[inline(always)]
    pub(crate) fn jump(&mut self, word: Word, distance: u64) -> Result<(), Exception> {
        self.next = self.target(word, distance)?;
        Ok(())
    }

    /// Where [`Code::jump`] goes.
    #[inline(always)]
    pub(crate) fn target(&self, word: Word, distance: u64) -> Result<usize, Exception> {
        let target = (self.next as u64).wrapping_add(word.signed(distance) as u64);
        if target >= self.bytes.len() as u64 {
            return Err(self.invalid());
        }
        Ok(target as usize)
    }

    /// Goes on at `offset`, which [`Code::next`] or [`Code::target`] gave.
    #[inline(always)]
    pub(crate) fn resume(&mut self, offset: usize) {
        self.next = offset;
    }
}

/// The exception of the invalid instruction at `start`. It takes what it needs by value: see [`crate::flow`].
#[cold]
fn invalid(code: &[u8], start: usize) -> Exception {
    let opcode = code.get(start).copied().unwrap_or(0);
    Exception::new(Exception::INVALID_OPCODE, u64::from(opcode), start as u64)
}
