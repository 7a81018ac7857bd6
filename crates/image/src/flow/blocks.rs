//! Basic blocks: stretches of proven instructions that control enters at their first and leaves
//! behind their last.
//!
//! In: proven instructions and the targets of known jumps. Out: the blocks, by address. A call ends
//! a block too, since it may not come back: by `exit`, `longjmp` or an exception.

use std::ops::Range;

use iced_x86::{FlowControl, Instruction};

use super::super::region::branch_target;
use super::piece::Piece;
use super::proven::ControlFlow;

/// A basic block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The address of its first instruction.
    pub start: u64,
    /// The address behind its last instruction.
    pub end: u64,
    /// The address of its last instruction.
    pub last: u64,
    /// Whether control is proven to enter at its first instruction only. It is not in functions
    /// that have jumps with unknown targets.
    pub is_closed: bool,
    /// How control leaves it.
    pub leaves: Leaves,
}

/// How control leaves a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// To the instruction behind it: that one is jumped to, or a call comes back there.
    Falls,
    /// By a jump to an address.
    Jumps(u64),
    /// By a conditional jump: to its target, or to the instruction behind it.
    Branches(u64),
    /// To an address that the instruction does not have, or nowhere.
    Elsewhere,
}

impl ControlFlow {
    /// The basic blocks of the instructions that control is proven to reach, by address.
    pub fn blocks(&self) -> Vec<Block> {
        self.code.iter().flat_map(|piece| self.blocks_of(piece)).collect()
    }

    fn blocks_of(&self, piece: &Piece) -> Vec<Block> {
        let mut found: Vec<Block> = Vec::new();
        // Where the next instruction would continue the last block.
        let mut open = None;
        let (mut at, mut closed) = (0, Closed { all: &self.closed, next: 0 });
        while at < piece.bytes.len() {
            let (length, start) = (usize::from(piece.lengths[at]), piece.start + at as u64);
            let instruction = (length > 0).then(|| piece.decode(at)).flatten();
            let Some(instruction) = instruction else {
                at += 1;
                continue;
            };
            let end = instruction.next_ip();
            match found.last_mut() {
                Some(block) if open == Some(start) && !piece.is_jumped_to(at) => {
                    (block.end, block.last) = (end, start);
                }
                _ => {
                    let (is_closed, leaves) = (closed.has(start), Leaves::Falls);
                    found.push(Block { start, end, last: start, is_closed, leaves });
                }
            }
            let leaves = leaves(&instruction);
            open = leaves.is_none().then_some(end);
            if let (Some(block), Some(leaves)) = (found.last_mut(), leaves) {
                block.leaves = leaves;
            }
            at += length;
        }
        found
    }
}

/// How control leaves a block that ends with this instruction; `None` if it ends none.
fn leaves(instruction: &Instruction) -> Option<Leaves> {
    match instruction.flow_control() {
        FlowControl::Next => None,
        FlowControl::Call | FlowControl::IndirectCall => Some(Leaves::Falls),
        flow => Some(match (flow, branch_target(instruction)) {
            (FlowControl::UnconditionalBranch, Some(target)) => Leaves::Jumps(target),
            (FlowControl::ConditionalBranch, Some(target)) => Leaves::Branches(target),
            _ => Leaves::Elsewhere,
        }),
    }
}

/// Tells, for ascending addresses, whether they are in a function all of whose jumps are known.
struct Closed<'a> {
    all: &'a [Range<u64>],
    next: usize,
}

impl Closed<'_> {
    fn has(&mut self, address: u64) -> bool {
        while self.all.get(self.next).is_some_and(|range| range.end <= address) {
            self.next += 1;
        }
        self.all.get(self.next).is_some_and(|range| range.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves these instructions, of the given lengths, at 0x1000.
    fn flow(code: &[&[u8]], targets: &[usize], is_closed: bool) -> ControlFlow {
        let mut piece = Piece::new(0x1000, code.concat());
        let mut at = 0;
        for instruction in code {
            piece.lengths[at] = instruction.len() as u8;
            at += instruction.len();
        }
        targets.iter().for_each(|target| piece.jump_to(*target));
        let all = 0x1000..0x1000 + at as u64;
        let closed = if is_closed { vec![all] } else { Vec::new() };
        ControlFlow { code: vec![piece], closed, ..ControlFlow::default() }
    }

    #[test]
    fn blocks_begin_where_control_comes_from_elsewhere_and_end_where_it_leaves() {
        // test %edi,%edi; je 1009; nop; call 1009; nop; ret
        let code: &[&[u8]] =
            &[&[0x85, 0xff], &[0x74, 0x07], &[0x90], &[0xe8, 1, 0, 0, 0], &[0x90], &[0x90], &[0xc3]];
        let blocks = flow(code, &[11], true).blocks();
        let short = |block: &Block| (block.start, block.end, block.last, block.leaves);
        assert_eq!(
            blocks.iter().map(short).collect::<Vec<_>>(),
            [
                (0x1000, 0x1004, 0x1002, Leaves::Branches(0x100b)),
                (0x1004, 0x100a, 0x1005, Leaves::Falls),
                (0x100a, 0x100b, 0x100a, Leaves::Falls),
                (0x100b, 0x100d, 0x100c, Leaves::Elsewhere),
            ]
        );
        assert!(blocks.iter().all(|block| block.is_closed));
        assert!(flow(code, &[11], false).blocks().iter().all(|block| !block.is_closed));
    }

    #[test]
    fn what_is_not_proven_is_in_no_block() {
        // jmp 1003; a byte of data; ret
        let mut flow = flow(&[&[0xeb, 0x01], &[0xcc], &[0xc3]], &[3], true);
        flow.code[0].lengths[2] = 0;
        let short: Vec<_> = flow.blocks().iter().map(|block| (block.start, block.leaves)).collect();
        assert_eq!(short, [(0x1000, Leaves::Jumps(0x1003)), (0x1003, Leaves::Elsewhere)]);
    }
}
