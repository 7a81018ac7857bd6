//! Finds likely instructions: evidence instead of proof. In a function with an unresolved jump,
//! code that is not proven to be reached may be one of the jump's cases, or data.
//!
//! A gap between two proven instructions counts as likely instructions if all of it decodes, if
//! something in it leads to a proven instruction or to the file's data, and if nothing refers to it
//! as data. A likely instruction may be probed with its own bytes alone: it is not moved for the
//! sake of another site. Everything else is refused.

use std::ops::Range;

use iced_x86::{Instruction, Mnemonic, OpKind};

use super::super::Image;
use super::super::region::{branch_target, ends_flow, is_privileged};
use super::piece::Piece;
use super::walk::FlowAnalysis;

/// A reference of an instruction to an address, other than by a jump.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reference {
    pub(super) to: u64,
    pub(super) from: u64,
    /// Whether the instruction only takes the address.
    pub(super) is_address: bool,
}

/// How many instructions after one that takes an address are checked for reading through it.
const FOLLOWING: usize = 12;

/// Addresses of code stored in data: in relocations, or directly in a file that is not
/// relocated.
fn code_pointers(image: &Image) -> Vec<u64> {
    /// The most bytes of a data segment that are searched.
    const DATA: u64 = 16 << 20;
    let mut found: Vec<u64> =
        image.relocations().values().copied().filter(|it| image.headers.is_executable(*it)).collect();
    if image.is_position_independent() {
        return found;
    }
    for segment in image.headers.segments.iter().filter(|it| !it.executable && it.file_size <= DATA) {
        let bytes = image.data(segment.vaddr, segment.file_size).unwrap_or_default();
        let skipped = (segment.vaddr.wrapping_neg() & 7) as usize;
        let words = bytes.get(skipped..).unwrap_or_default().chunks_exact(8);
        let words = words.map(|word| word.try_into().map_or(0, u64::from_le_bytes));
        found.extend(words.filter(|it| image.headers.is_executable(*it)));
    }
    found
}

impl FlowAnalysis<'_> {
    /// The addresses of likely instructions, ascending.
    pub(super) fn likely(&self) -> Vec<u64> {
        let mut found = Vec::new();
        let mut pointers = code_pointers(self.image());
        pointers.sort_unstable();
        for piece in self.pieces() {
            let mut ends = piece.gaps();
            let last = ends.last().map_or(0, |gap| gap.end);
            let tail = (last..piece.bytes.len()).rev().find(|&at| piece.lengths[at] > 0);
            let tail = tail.map(|at| at + usize::from(piece.lengths[at]));
            ends.extend(tail.map(|tail| tail..piece.bytes.len()).filter(|tail| !tail.is_empty()));
            for gap in ends {
                self.read_gap(piece, gap, &pointers, &mut found);
            }
        }
        found.sort_unstable();
        found
    }

    fn read_gap(&self, piece: &Piece, gap: Range<usize>, pointers: &[u64], found: &mut Vec<u64>) {
        // A gap ends at the end of its area at the latest.
        let from = piece.start + gap.start as u64;
        let limit = self.image().starts().area(from).map_or(from, |area| area.range.end);
        let end = piece.at(limit).map_or(gap.end, |limit| gap.end.min(limit));
        let address = from..piece.start + end as u64;
        // After a call that may not return there can be anything.
        if self.is_lost(from) || !self.is_open(from) || self.has_data(&address) {
            return;
        }
        let first = found.len();
        let (mut at, mut leads) = (gap.start, false);
        while at < end {
            let likely = piece.decode(at).filter(|it| at + it.len() <= end && !is_privileged(it));
            let Some(instruction) = likely.filter(|it| self.leads_well(piece, it)) else {
                found.truncate(first);
                return;
            };
            leads |= branch_target(&instruction).is_some()
                || self.refers_well(&instruction)
                || pointers.binary_search(&instruction.ip()).is_ok();
            found.push(instruction.ip());
            at += instruction.len();
            if at == end
                && !ends_flow(&instruction)
                && piece.lengths.get(end).is_none_or(|length| *length == 0)
            {
                break;
            }
        }
        if !leads {
            found.truncate(first);
        }
    }

    /// Whether a direct jump's target may be an instruction.
    fn leads_well(&self, piece: &Piece, instruction: &Instruction) -> bool {
        let Some(target) = branch_target(instruction) else { return true };
        match piece.at(target) {
            Some(at) => piece.lengths[at] > 0 || !piece.is_inside(at),
            None => self.image().starts().area(target).is_some(),
        }
    }

    /// Whether an instruction refers to the file's data.
    fn refers_well(&self, instruction: &Instruction) -> bool {
        let segments = &self.image().headers.segments;
        instruction.is_ip_rel_memory_operand()
            && segments.iter().any(|it| {
                it.vaddr <= instruction.ip_rel_memory_address()
                    && instruction.ip_rel_memory_address() < it.file_end()
            })
    }

    /// Whether anything refers to some addresses as data.
    fn has_data(&self, range: &Range<u64>) -> bool {
        let refs = self.references();
        let from = refs.partition_point(|reference| reference.to < range.start);
        let mut refs = refs[from..].iter().take_while(|reference| reference.to < range.end);
        let table = |place: &u64| range.contains(place);
        self.image().starts().data_at(range.start).is_some()
            || self.table_places().iter().any(table)
            || refs.any(|it| {
                !it.is_address
                    || self.stretch(it.from) != self.stretch(it.to)
                    || self.is_read_through(it.from)
            })
    }

    /// Whether the register that gets the address at `from` is the base or index of a memory
    /// operand soon after.
    fn is_read_through(&self, from: u64) -> bool {
        let Some(taking) = self.decode(from) else { return true };
        if taking.op0_kind() != OpKind::Register {
            return true;
        }
        let register = taking.op0_register().full_register();
        let mut at = taking.next_ip();
        for _ in 0..FOLLOWING {
            let Some(instruction) = self.decode(at) else { return false };
            let base = instruction.memory_base().full_register();
            if instruction.mnemonic() != Mnemonic::Lea
                && (base == register || instruction.memory_index().full_register() == register)
            {
                return true;
            }
            at = instruction.next_ip();
        }
        false
    }
}
