//! Emits bytecode: instructions, jumps to labels, and the notes of a listing.
//!
//! An operand follows its opcode, little-endian. A label is the distance from the byte after the
//! operand, 8 bytes, signed; it is written when its place is known.

use source::Span;
use vm::Op;

/// The maximum size of the code of a script. A script within its limits of size stays far below;
/// the addresses of a longer one would not fit what the engines share.
pub(super) const MAX_CODE: usize = 1 << 20;

/// Literals up to this size are numbers in the code.
pub(super) const SHORT: usize = 32;

/// A place in the code that may not be known yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label(usize);

/// What the assembler has made.
#[derive(Debug, Default)]
pub(super) struct Finished {
    pub(super) code: Vec<u8>,
    /// Texts of statements, by code offset.
    pub(super) notes: Vec<(usize, String)>,
    /// Places in the text, by the code offset from which on they count.
    pub(super) lines: Vec<(usize, Span)>,
}

/// The code so far.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    code: Vec<u8>,
    /// The places of labels.
    labels: Vec<Option<usize>>,
    /// Where an operand is, and the label that it names.
    uses: Vec<(usize, usize)>,
    /// Code offsets at which a statement begins, and its text.
    notes: Vec<(usize, String)>,
    /// Code offsets from which on the code is that of a place in the text.
    lines: Vec<(usize, Span)>,
}

impl Assembler {
    /// The offset of the next instruction.
    pub(super) fn here(&self) -> usize {
        self.code.len()
    }

    /// Whether the code is larger than it may be.
    pub(super) fn is_full(&self) -> bool {
        self.code.len() > MAX_CODE
    }

    /// A comment for the next instruction in a listing.
    pub(super) fn note(&mut self, text: String) {
        self.notes.push((self.code.len(), text));
    }

    /// What comes next is the code of this place.
    pub(super) fn line(&mut self, span: Span) {
        match self.lines.last_mut() {
            Some((at, last)) if *at == self.code.len() => *last = span,
            Some((_, last)) if *last == span => {}
            _ => self.lines.push((self.code.len(), span)),
        }
    }

    /// The code with all labels in place, the notes, and the places in the text.
    pub(super) fn finish(mut self) -> Finished {
        for (at, label) in self.uses {
            let target = self.labels[label].expect("a label that is jumped to is placed");
            let distance = target as i64 - (at as i64 + 8);
            self.code[at..at + 8].copy_from_slice(&distance.to_le_bytes());
        }
        Finished { code: self.code, notes: self.notes, lines: self.lines }
    }

    /// An instruction without an operand.
    pub(super) fn op(&mut self, op: Op) {
        self.code.push(op as u8);
    }

    /// Several of them.
    pub(super) fn ops(&mut self, ops: &[Op]) {
        ops.iter().for_each(|op| self.op(*op));
    }

    /// An instruction with an operand of one byte.
    pub(super) fn byte(&mut self, op: Op, operand: u8) {
        self.code.extend([op as u8, operand]);
    }

    /// An instruction with an operand of two bytes.
    pub(super) fn short(&mut self, op: Op, operand: u16) {
        self.code.push(op as u8);
        self.code.extend(operand.to_le_bytes());
    }

    /// `push VALUE`.
    pub(super) fn push(&mut self, value: u64) {
        self.code.push(Op::Push as u8);
        self.code.extend(value.to_le_bytes());
    }

    /// `push fr OFFSET`.
    pub(super) fn get(&mut self, offset: u16) {
        self.short(Op::PushF, offset);
    }

    /// `pop fr OFFSET`.
    pub(super) fn set(&mut self, offset: u16) {
        self.short(Op::PopF, offset);
    }

    /// `ros 1`.
    pub(super) fn drop(&mut self) {
        self.byte(Op::Ros, 1);
    }

    /// A new label.
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places a label here.
    pub(super) fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// A jump.
    pub(super) fn jump(&mut self, op: Op, label: Label) {
        self.code.push(op as u8);
        self.uses.push((self.code.len(), label.0));
        self.code.extend([0; 8]);
    }

    /// Extends the low bytes of the top by their sign or by zeros.
    pub(super) fn extend(&mut self, bytes: u8, signed: bool) {
        if bytes < 8 {
            self.byte(if signed { Op::PblImm } else { Op::PzlImm }, bytes * 8);
        }
    }

    /// Adds a constant to the top.
    pub(super) fn plus(&mut self, value: u64) {
        if value != 0 {
            self.push(value);
            self.op(Op::Add);
        }
    }

    /// The top becomes 0 if it is -1: the length of a string that cannot be read.
    pub(super) fn no_less_than_zero(&mut self) {
        self.byte(Op::DupImm, 1);
        self.byte(Op::ShrImm, 63);
        self.op(Op::Add);
    }

    /// Rounds the top up to a multiple of 8.
    pub(super) fn round_up(&mut self) {
        self.plus(7);
        self.push(!7);
        self.op(Op::And);
    }

    /// The top becomes the lesser of itself and a limit, unsigned.
    pub(super) fn at_most(&mut self, limit: u64) {
        // x; x, x, limit -> x, limit < x
        let fits = self.label();
        self.byte(Op::DupImm, 1);
        self.push(limit);
        self.op(Op::Ult);
        self.jump(Op::Jz, fits);
        self.byte(Op::Ros, 2);
        self.push(limit);
        self.push(0);
        self.bind(fits);
        self.drop();
    }

    /// `1` if the top is `0`, else `0`.
    pub(super) fn not(&mut self) {
        self.push(0);
        self.op(Op::Eq);
    }

    /// Fills bytes of the frame with zeros.
    pub(super) fn clear(&mut self, offset: u16, count: u64) {
        self.push(count);
        self.push(u64::from(offset));
        self.op(Op::FillF);
    }

    /// Writes a short literal to the frame, with zeros up to a multiple of 8.
    pub(super) fn words(&mut self, at: u16, literal: &[u8]) {
        for (bytes, offset) in literal.chunks(8).zip((at..).step_by(8)) {
            self.push(word(bytes));
            self.set(offset);
        }
    }

    /// Copies bytes of the frame.
    pub(super) fn copy(&mut self, from: u16, to: u16, count: u64) {
        if count == 8 && from != to {
            self.get(from);
            return self.set(to);
        }
        self.copy_bytes(from, to, count);
    }

    /// The same for any number of bytes.
    pub(super) fn copy_bytes(&mut self, from: u16, to: u16, count: u64) {
        if from == to || count == 0 {
            return;
        }
        self.push(count);
        self.push(u64::from(from));
        self.push(u64::from(to));
        self.op(Op::MoveF);
    }
}

/// At most 8 bytes as the word that they are in the frame.
pub(super) fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_a_distance_from_behind_its_operand() {
        let mut asm = Assembler::default();
        let (back, on) = (asm.label(), asm.label());
        asm.bind(back);
        asm.jump(Op::Jz, on);
        asm.jump(Op::Jmp, back);
        asm.bind(on);
        let Finished { code, .. } = asm.finish();
        let mut expected = vec![Op::Jz as u8];
        expected.extend(9i64.to_le_bytes());
        expected.push(Op::Jmp as u8);
        expected.extend((-18i64).to_le_bytes());
        assert_eq!(code, expected);
    }
}
