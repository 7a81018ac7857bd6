//! The code of one segment, and which of its bytes are proven instructions.

use std::ops::Range;
use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use super::super::region::{LONGEST, ends_flow};

/// The code of one executable segment.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) start: u64,
    pub(super) bytes: Arc<[u8]>,
    /// For each byte the length of the proven instruction that begins there, or 0.
    pub(super) lengths: Vec<u8>,
    /// One bit for each byte: whether a jump leads there.
    jumped_to: Bits,
    /// One bit for each byte: whether a known start is there.
    starts: Bits,
}

/// A bit for each byte of code.
#[derive(Debug)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(count: usize) -> Bits {
        Bits(vec![0; count.div_ceil(64)])
    }

    fn set(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    fn is_set(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 != 0
    }
}

impl Piece {
    /// Creates it with nothing proven.
    pub(super) fn new(start: u64, bytes: Vec<u8>) -> Piece {
        Piece::of(start, bytes.into())
    }

    fn of(start: u64, bytes: Arc<[u8]>) -> Piece {
        let (jumped_to, starts) = (Bits::new(bytes.len()), Bits::new(bytes.len()));
        Piece { start, lengths: vec![0; bytes.len()], jumped_to, starts, bytes }
    }

    /// The same code with nothing proven.
    pub(super) fn anew(&self) -> Piece {
        Piece::of(self.start, Arc::clone(&self.bytes))
    }

    pub(super) fn at(&self, vaddr: u64) -> Option<usize> {
        usize::try_from(vaddr.checked_sub(self.start)?).ok().filter(|at| *at < self.bytes.len())
    }

    pub(super) fn decode(&self, at: usize) -> Option<Instruction> {
        decode_with(&mut decoder(&self.bytes), self.start, at)
    }

    /// Notes that a jump leads to a byte.
    pub(super) fn jump_to(&mut self, at: usize) {
        self.jumped_to.set(at);
    }

    /// Whether a known jump leads to a byte.
    pub(super) fn is_jumped_to(&self, at: usize) -> bool {
        self.jumped_to.is_set(at)
    }

    /// Notes that a known start is at a byte.
    pub(super) fn start_at(&mut self, at: usize) {
        self.starts.set(at);
    }

    /// Whether a known start is at a byte.
    pub(super) fn is_start(&self, at: usize) -> bool {
        self.starts.is_set(at)
    }

    /// Whether a byte is inside a proven instruction, but not its first byte.
    pub(super) fn is_inside(&self, at: usize) -> bool {
        self.reaching_into(at).is_some()
    }

    /// The start of the first proven instruction that contains a byte other than as its first.
    pub(super) fn reaching_into(&self, at: usize) -> Option<usize> {
        (at.saturating_sub(LONGEST - 1)..at).find(|&first| first + usize::from(self.lengths[first]) > at)
    }

    /// The gaps between proven instructions.
    pub(super) fn gaps(&self) -> Vec<Range<usize>> {
        let mut gaps = Vec::new();
        let (mut at, mut end) = (0, 0);
        while at < self.bytes.len() {
            let length = usize::from(self.lengths[at]);
            if length > 0 {
                if at > end && end > 0 {
                    gaps.push(end..at);
                }
                end = end.max(at + length);
            }
            at += 1;
        }
        gaps
    }

    /// Whether the proven instruction before a place does not fall through to it.
    pub(super) fn is_left_before(&self, at: usize) -> bool {
        let before = self.before(at).and_then(|before| self.decode(before));
        before.is_some_and(|before| ends_flow(&before))
    }

    /// Whether bytes are only instructions that do nothing and that no known control reaches.
    pub(super) fn is_padding(&self, range: Range<usize>) -> bool {
        let mut at = range.start;
        while at < range.end {
            let fills = |it: &Instruction| matches!(it.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
            let Some(instruction) = self.decode(at).filter(fills) else { return false };
            let end = at + instruction.len();
            if (at..end.min(range.end)).any(|byte| self.lengths[byte] > 0 || self.is_jumped_to(byte)) {
                return false;
            }
            at = end;
        }
        at == range.end
    }

    /// The proven instruction that ends at `at`, if there is exactly one.
    pub(super) fn before(&self, at: usize) -> Option<usize> {
        let mut ending = self.all_before(at);
        ending.next().filter(|_| ending.next().is_none())
    }

    /// All proven instructions that end at `at`.
    pub(super) fn all_before(&self, at: usize) -> impl Iterator<Item = usize> {
        (at.saturating_sub(LONGEST)..at)
            .filter(move |first| self.lengths[*first] > 0 && first + usize::from(self.lengths[*first]) == at)
    }

    /// Whether the return at `at` goes to an address that was just stored and not to the caller: a
    /// jump that the processor must not speculate about (`mov %rax, (%rsp); ret`).
    pub(super) fn is_jump_by_return(&self, at: usize) -> bool {
        /// The most instructions that do nothing between the two.
        const MOST: usize = 8;
        let mut open = vec![at];
        for _ in 0..MOST {
            let ends = open.iter().flat_map(|&at| self.all_before(at));
            let before: Vec<(usize, Instruction)> =
                ends.filter_map(|before| Some((before, self.decode(before)?))).collect();
            if before.iter().any(|(_, instruction)| sets_return(instruction)) {
                return true;
            }
            let idle = |it: &Instruction| {
                matches!(it.mnemonic(), Mnemonic::Nop | Mnemonic::Lfence | Mnemonic::Pause)
            };
            open = before.into_iter().filter(|(_, it)| idle(it)).map(|(before, _)| before).collect();
        }
        false
    }
}

/// A decoder of code, for [`decode_with`]. Making one takes longer than decoding an instruction.
pub(crate) fn decoder(bytes: &[u8]) -> Decoder<'_> {
    Decoder::new(64, bytes, DecoderOptions::NONE)
}

/// Decodes the instruction that begins at an offset of code that is at `start`.
pub(crate) fn decode_with(decoder: &mut Decoder<'_>, start: u64, at: usize) -> Option<Instruction> {
    decoder.set_position(at).ok()?;
    decoder.set_ip(start + at as u64);
    let instruction = decoder.decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// Whether an instruction other than a call writes the word that the following return jumps to.
fn sets_return(instruction: &Instruction) -> bool {
    let is_top = |operand| {
        instruction.op_kind(operand) == OpKind::Memory
            && instruction.memory_base() == Register::RSP
            && instruction.memory_index() == Register::None
            && instruction.memory_displacement64() == 0
    };
    match instruction.mnemonic() {
        Mnemonic::Push => true,
        Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Call => false,
        // The first operand is written; of an exchange both are.
        Mnemonic::Xchg => (0..instruction.op_count()).any(is_top),
        _ => instruction.op_count() > 0 && is_top(0),
    }
}

#[cfg(test)]
mod tests {
    use super::Piece;

    #[test]
    fn what_is_jumped_to_is_no_padding() {
        // nopw 0(%rax,%rax,1): another instruction begins in its middle and continues after it.
        let mut piece = Piece::new(0x1000, vec![0x66, 0x0f, 0x1f, 0x44, 0, 0]);
        assert!(piece.is_padding(0..6));
        piece.jump_to(3);
        assert!(!piece.is_padding(0..6));
    }
}
