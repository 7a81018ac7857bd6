//! Disassembles one stretch of code, and tells which of its bytes start instructions.
//!
//! x86 instructions have no alignment, and compilers and assembly authors put data between them:
//! decoding one table entry as an instruction misaligns everything after it (the pid provider's
//! "disassembly pitfalls"). So a stretch ends at the next known start, and inside it two kinds of
//! instructions are distinguished:
//!
//! 1. *Proven*: control reaches them from the start by fallthrough and direct branches.
//! 2. *Swept*: found by decoding the gaps between proven instructions from front to end: padding
//!    and the cases of a `switch`. If the sweep meets bytes that start no instruction, or none that
//!    a compiler would write there, it has met data, and everything after the last `ret` or `jmp`
//!    counts as spoiled.
//!
//! ```text
//! start                 table                case 1        ret  padding     next start
//!   | proven ... jmp *%rax | swept: spoiled ... | proven ...  |  swept ...  |
//! ```
//!
//! If proven code jumps past the `lock` prefix of an instruction, its target still counts as inside
//! that instruction.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

/// An instruction starts here.
const START: u8 = 1;
/// Control provably reaches this start.
const PROVEN: u8 = 2;
/// A byte of an instruction other than its first.
const INSIDE: u8 = 4;
/// It is unknown whether an instruction starts here.
const SPOILED: u8 = 8;
/// A run of zero bytes between functions, or data.
const ZERO: u8 = 16;

/// The length of the longest x86 instruction in bytes.
pub(crate) const LONGEST: usize = 15;

/// What a byte of a region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Byte {
    /// The first byte of an instruction.
    Start,
    /// Inside the instruction that starts and ends at these addresses.
    Inside(u64, u64),
    /// Unknown, because the bytes at this address are no instruction.
    Spoiled(u64),
    /// One of a run of zeros.
    Zero,
}

/// A disassembled stretch of code.
#[derive(Debug)]
pub(crate) struct Region {
    range: Range<u64>,
    bytes: Vec<u8>,
    bitness: u32,
    marks: Vec<u8>,
    lengths: Vec<u8>,
    /// Spoiled ranges with the address of the bytes that spoiled each, by address.
    spoiled: Vec<(Range<usize>, u64)>,
}

/// What is known of the code around a region.
pub(crate) struct RegionContext<'a> {
    /// Whether control provably reaches the region's first byte.
    pub(crate) proven: bool,
    /// The end of what a symbol or unwinding entry claims to be code.
    pub(crate) claimed: u64,
    /// Labels in the region, by address.
    pub(crate) labels: &'a [u64],
    /// Whether an address may be code at all.
    pub(crate) is_code: &'a dyn Fn(u64) -> bool,
}

impl Region {
    /// Disassembles `bytes`, which are at `start`.
    pub(crate) fn analyze(start: u64, bytes: Vec<u8>, bitness: u32, around: &RegionContext<'_>) -> Region {
        let range = start..start + bytes.len() as u64;
        let len = bytes.len();
        let mut region =
            Region { range, bytes, bitness, marks: vec![0; len], lengths: vec![0; len], spoiled: Vec::new() };
        if around.proven {
            region.follow(0);
        }
        region.sweep(around);
        region
    }

    pub(crate) fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// What the byte at an address of the region is.
    pub(crate) fn byte(&self, vaddr: u64) -> Byte {
        let at = (vaddr - self.range.start) as usize;
        let mark = self.marks[at];
        if mark & INSIDE != 0 {
            let covers = |first: &usize| {
                self.marks[*first] & START != 0 && first + usize::from(self.lengths[*first]) > at
            };
            if let Some(first) = (at.saturating_sub(LONGEST - 1)..at).find(covers) {
                let start = self.range.start + first as u64;
                return Byte::Inside(start, start + u64::from(self.lengths[first]));
            }
        }
        if mark & START != 0 {
            Byte::Start
        } else if mark & ZERO != 0 {
            Byte::Zero
        } else {
            let index = self.spoiled.partition_point(|(range, _)| range.end <= at);
            Byte::Spoiled(self.spoiled.get(index).map_or(vaddr, |(_, by)| *by))
        }
    }

    /// An address inside the instruction at `vaddr` that control reaches by a direct branch.
    pub(crate) fn entered_inside(&self, vaddr: u64) -> Option<u64> {
        let at = (vaddr - self.range.start) as usize;
        let inside = at + 1..at + usize::from(self.lengths[at]).max(1);
        inside.filter(|inner| self.marks[*inner] & PROVEN != 0).map(|at| self.range.start + at as u64).next()
    }

    /// The instruction at an address of the region, whatever its byte is.
    pub(crate) fn instruction(&self, vaddr: u64) -> Option<Instruction> {
        self.decode((vaddr - self.range.start) as usize, self.bytes.len())
    }

    /// Decodes the instruction that starts at `at` and ends at or before `end`.
    fn decode(&self, at: usize, end: usize) -> Option<Instruction> {
        let bytes = &self.bytes[at..end.min(at + LONGEST)];
        let address = self.range.start + at as u64;
        let instruction = Decoder::with_ip(self.bitness, bytes, address, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    /// Marks the instructions that control reaches from `first`.
    fn follow(&mut self, first: usize) {
        let mut open = vec![first];
        while let Some(mut at) = open.pop() {
            while at < self.bytes.len() && self.marks[at] & PROVEN == 0 {
                let Some(instruction) = self.decode(at, self.bytes.len()) else { break };
                self.mark(at, instruction.len(), START | PROVEN);
                if let Some(target) = branch_target(&instruction)
                    && self.range.contains(&target)
                {
                    open.push((target - self.range.start) as usize);
                }
                if ends_flow(&instruction) {
                    break;
                }
                at += instruction.len();
            }
        }
    }

    fn mark(&mut self, at: usize, len: usize, mark: u8) {
        self.marks[at] |= mark;
        self.lengths[at] = len as u8;
        for inside in &mut self.marks[at + 1..at + len] {
            *inside |= INSIDE;
        }
    }

    /// Decodes the gaps between the proven instructions.
    fn sweep(&mut self, around: &RegionContext<'_>) {
        let claimed = around.claimed.saturating_sub(self.range.start).min(self.bytes.len() as u64) as usize;
        let mut labels: Vec<usize> =
            around.labels.iter().map(|label| (label - self.range.start) as usize).collect();
        labels.push(claimed);
        labels.sort_unstable();
        let mut labels = labels.into_iter().peekable();
        let mut at = 0;
        while at < self.bytes.len() {
            if self.marks[at] & PROVEN != 0 {
                at += usize::from(self.lengths[at]);
                continue;
            }
            while labels.next_if(|label| *label <= at).is_some() {}
            let mut end = labels.peek().copied().unwrap_or(self.bytes.len());
            if let Some(proven) = self.marks[at..end].iter().position(|mark| mark & PROVEN != 0) {
                end = at + proven;
            }
            self.sweep_gap(at..end, at >= claimed, around.is_code);
            at = end;
        }
    }

    /// Decodes one gap. If nothing claims it to be code (`doubtful`), one undecodable byte spoils
    /// all of it.
    fn sweep_gap(&mut self, gap: Range<usize>, doubtful: bool, is_code: &dyn Fn(u64) -> bool) {
        let mut at = gap.start;
        let mut block = gap.start;
        while at < gap.end {
            let zeros = self.bytes[at..gap.end].iter().take_while(|byte| **byte == 0).count();
            if zeros >= 2 || zeros == gap.end - at {
                for mark in &mut self.marks[at..at + zeros] {
                    *mark |= ZERO;
                }
                // Zeros that control would run into, or that something follows, are not padding.
                if block < at || at + zeros < gap.end {
                    let from = if doubtful { gap.start } else { block };
                    self.spoil(from..gap.end, at);
                }
                return;
            }
            match self.decode(at, gap.end).filter(|instruction| self.is_likely(instruction, is_code)) {
                None => {
                    let from = if doubtful { gap.start } else { block };
                    self.spoil(from..gap.end, at);
                    return;
                }
                Some(instruction) => {
                    self.mark(at, instruction.len(), START);
                    at += instruction.len();
                    if ends_flow(&instruction) {
                        block = at;
                    }
                }
            }
        }
    }

    fn spoil(&mut self, range: Range<usize>, by: usize) {
        // Padding before the data, after the function's end, remains padding.
        let padding = range.clone().take_while(|at| {
            self.marks[*at] & INSIDE != 0
                || self.marks[*at] & START != 0
                    && self.decode(*at, range.end).is_some_and(|instruction| is_padding(&instruction))
        });
        let range = range.start + padding.count()..range.end;
        for mark in &mut self.marks[range.clone()] {
            if *mark & ZERO == 0 {
                *mark = SPOILED;
            }
        }
        self.spoiled.push((range, self.range.start + by as u64));
    }

    /// Whether a swept instruction is one that occurs in programs: not privileged, and not a branch
    /// to an address without code or into the middle of a proven instruction.
    fn is_likely(&self, instruction: &Instruction, is_code: &dyn Fn(u64) -> bool) -> bool {
        if is_privileged(instruction) {
            return false;
        }
        let Some(target) = branch_target(instruction) else { return true };
        if !self.range.contains(&target) {
            return is_code(target);
        }
        let mark = self.marks[(target - self.range.start) as usize];
        mark & PROVEN != 0 || mark & INSIDE == 0 || !self.is_inside_proven(target)
    }

    fn is_inside_proven(&self, vaddr: u64) -> bool {
        let at = (vaddr - self.range.start) as usize;
        (at.saturating_sub(LONGEST - 1)..at)
            .any(|first| self.marks[first] & PROVEN != 0 && first + usize::from(self.lengths[first]) > at)
    }
}

/// The target of a direct near branch or call.
pub(crate) fn branch_target(instruction: &Instruction) -> Option<u64> {
    if instruction.op_count() == 0 {
        return None;
    }
    match instruction.op0_kind() {
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
            Some(instruction.near_branch_target())
        }
        _ => None,
    }
}

/// Whether control never continues at the next instruction.
pub(crate) fn ends_flow(instruction: &Instruction) -> bool {
    match instruction.flow_control() {
        FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::Return
        | FlowControl::Exception => true,
        // int3 is padding; int 0x80 is a system call and returns.
        FlowControl::Interrupt => instruction.mnemonic() == Mnemonic::Int3,
        _ => instruction.mnemonic() == Mnemonic::Hlt,
    }
}

fn is_padding(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3 | Mnemonic::Fnop)
        || instruction.mnemonic() == Mnemonic::Xchg
            && instruction.op0_register() == instruction.op1_register()
}

/// Instructions that fault in ordinary programs, and far transfers: text and tables decode to
/// these. `hlt` is excluded, since many an `abort` ends in it.
pub(crate) fn is_privileged(instruction: &Instruction) -> bool {
    let far = matches!(instruction.op0_kind(), OpKind::FarBranch16 | OpKind::FarBranch32);
    let mnemonic = instruction.mnemonic();
    far || matches!(mnemonic, Mnemonic::Retf | Mnemonic::Into | Mnemonic::Int1)
        || instruction.is_privileged() && mnemonic != Mnemonic::Hlt
}
