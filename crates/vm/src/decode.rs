//! Decodes bytecode into instructions, for code that reads it without running it.
//!
//! ```text
//!     opcode, 1 byte | operand, 0 to 8 bytes, little-endian: see [`crate::Operand::size`]
//! ```

use crate::{Effects, Op, Operand, Register, Row, Word};

/// One decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Which instruction.
    pub op: Op,
    /// Its operand; 0 if it has none. A distance is sign-extended to 64 bits, all else
    /// zero-extended.
    pub operand: u64,
    /// The offset of its opcode.
    pub offset: usize,
    /// The offset of the next instruction.
    pub next: usize,
}

impl Instruction {
    /// The instruction at an offset; `None` if no instruction has that opcode or the operand is cut
    /// off.
    #[inline]
    pub fn at(code: &[u8], offset: usize, word: Word) -> Option<Instruction> {
        let (&opcode, operands) = code.get(offset..)?.split_first()?;
        let op = Op::from_byte(opcode)?;
        let kind = op.row().operand;
        let size = kind.size(word.bytes());
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(operands.get(..size)?);
        let operand = u64::from_le_bytes(bytes);
        let operand = match kind {
            Operand::Label | Operand::Proc => word.signed(operand) as u64,
            _ => operand,
        };
        Some(Instruction { op, operand, offset, next: offset + 1 + size })
    }

    /// Its row in the table.
    pub const fn row(&self) -> &'static Row {
        self.op.row()
    }

    /// Its effects besides those on the stack.
    pub const fn effects(&self) -> Effects {
        self.row().effects
    }

    /// The target of its label or procedure operand, if it has one and that lies in the code.
    pub fn target(&self, code: &[u8]) -> Option<usize> {
        if !matches!(self.row().operand, Operand::Label | Operand::Proc) {
            return None;
        }
        let target = (self.next as u64).wrapping_add(self.operand);
        (target < code.len() as u64).then_some(target as usize)
    }

    /// The register that its operand names, if it has one and the index is valid.
    pub fn register(&self) -> Option<Register> {
        match self.row().operand {
            Operand::Register => Register::from_index(self.operand as u16),
            _ => None,
        }
    }

    /// The index of the variable that its operand names.
    pub fn variable(&self) -> Option<u16> {
        matches!(self.row().operand, Operand::Local | Operand::Global).then_some(self.operand as u16)
    }
}

/// An instruction, or a byte that begins none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// A whole instruction.
    Instruction(Instruction),
    /// The offset of a byte that begins no instruction, or one whose operand is cut off.
    Unknown(usize),
}

impl Decoded {
    /// The instruction, if it is one.
    pub fn instruction(self) -> Option<Instruction> {
        match self {
            Decoded::Instruction(instruction) => Some(instruction),
            Decoded::Unknown(_) => None,
        }
    }

    /// Its bytes, as a range of offsets.
    pub fn range(self) -> core::ops::Range<usize> {
        match self {
            Decoded::Instruction(instruction) => instruction.offset..instruction.next,
            Decoded::Unknown(offset) => offset..offset + 1,
        }
    }
}

/// Decodes all of a bytecode in order. After a byte that begins no instruction it continues at the
/// next byte, so the items cover every byte once.
pub fn instructions(code: &[u8], word: Word) -> Instructions<'_> {
    Instructions { code, word, offset: 0 }
}

/// Whether a bytecode may have one of these effects: one of its instructions has it, or some byte
/// is no instruction.
pub fn may(code: &[u8], word: Word, effects: Effects) -> bool {
    instructions(code, word)
        .any(|it| it.instruction().is_none_or(|instruction| instruction.effects().intersects(effects)))
}

/// The iterator that [`instructions`] returns.
#[derive(Clone, Debug)]
pub struct Instructions<'a> {
    code: &'a [u8],
    word: Word,
    offset: usize,
}

impl<'a> Instructions<'a> {
    /// Continues from another offset of the code.
    pub fn from(self, offset: usize) -> Instructions<'a> {
        Instructions { offset, ..self }
    }
}

impl Iterator for Instructions<'_> {
    type Item = Decoded;

    fn next(&mut self) -> Option<Decoded> {
        if self.offset >= self.code.len() {
            return None;
        }
        let decoded = match Instruction::at(self.code, self.offset, self.word) {
            Some(instruction) => Decoded::Instruction(instruction),
            None => Decoded::Unknown(self.offset),
        };
        self.offset = decoded.range().end;
        Some(decoded)
    }
}

impl core::iter::FusedIterator for Instructions<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TABLE;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const WORDS: [Word; 2] = [Word::W4, Word::W8];

    #[test]
    fn every_row_is_read_as_it_is_written() {
        for word in WORDS {
            for row in TABLE {
                let size = row.operand.size(word.bytes());
                let code = [&[row.op as u8][..], &[0xfe; 8][..size]].concat();
                let read = Instruction::at(&code, 0, word).expect(row.name);
                let raw = u64::from_le_bytes([0xfe; 8]);
                let operand = match row.operand {
                    Operand::Label | Operand::Proc => word.signed(word.truncate(raw)) as u64,
                    _ if size == 0 => 0,
                    _ => raw >> (64 - 8 * size),
                };
                assert_eq!(read, Instruction { op: row.op, operand, offset: 0, next: 1 + size });
                // With one byte less it is none.
                let cut = &code[..size];
                assert_eq!(Instruction::at(cut, 0, word), None, "{}", row.name);
            }
        }
    }

    #[test]
    fn a_target_is_counted_from_behind_the_operand_and_lies_in_the_code() {
        for word in WORDS {
            let size = 1 + word.bytes();
            let jump = |distance: i64| {
                let mut code = [&[Op::Jmp as u8][..], &distance.to_le_bytes()[..word.bytes()]].concat();
                code.push(Op::Exit as u8);
                Instruction::at(&code, 0, word).and_then(|jump| jump.target(&code))
            };
            assert_eq!(jump(0), Some(size));
            assert_eq!(jump(-(size as i64)), Some(0));
            assert_eq!([jump(1), jump(-(size as i64) - 1), jump(1 << 31)], [None; 3]);
        }
    }

    #[test]
    fn only_operands_that_name_something_are_that() {
        let code = [Op::PushR as u8, 1, 0, Op::IncLvImm as u8, 2, 1, Op::LogImm as u8, 1, 0];
        let read: Vec<_> = instructions(&code, Word::W8).filter_map(Decoded::instruction).collect();
        let named = |it: &Instruction| (it.register(), it.variable(), it.target(&code));
        let named: Vec<_> = read.iter().map(named).collect();
        let register = Register::from_index(1);
        assert!(register.is_some());
        assert_eq!(named, [(register, None, None), (None, Some(0x102), None), (None, None, None)]);
    }

    #[test]
    fn a_byte_that_begins_no_instruction_may_do_anything() {
        assert!(!may(&[], Word::W8, Effects::LOGS));
        assert!(!may(&[Op::Exit as u8], Word::W8, Effects::LOGS));
        assert!(may(&[Op::Nop as u8, Op::LogStr as u8, Op::Exit as u8], Word::W8, Effects::LOGS));
        assert!(may(&[Op::Exit as u8, 0xff], Word::W8, Effects::LOGS));
        assert!(may(&[Op::Exit as u8, Op::Push as u8, 0], Word::W8, Effects::LOGS));
        // An operand is no opcode.
        assert!(!may(&[Op::LogImm as u8, Op::Remove as u8, 0], Word::W8, Effects::REMOVES));
    }

    proptest! {
        #[test]
        fn random_bytes_are_read_whole_and_once(code in vec(any::<u8>(), 0..200), from in 0..250_usize) {
            for word in WORDS {
                let mut offset = from;
                for decoded in instructions(&code, word).from(from) {
                    let range = decoded.range();
                    prop_assert_eq!(range.start, offset);
                    prop_assert!(range.end > offset && range.end <= code.len());
                    if let Decoded::Instruction(instruction) = decoded {
                        prop_assert_eq!(instruction.op as u8, code[offset]);
                        prop_assert!(instruction.target(&code).is_none_or(|target| target < code.len()));
                    }
                    offset = range.end;
                }
                prop_assert_eq!(offset, code.len().max(from));
            }
        }
    }
}
