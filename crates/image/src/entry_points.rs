//! Finds every address that control may reach other than by fallthrough or a call's return, for
//! moving several instructions together.
//!
//! This is the opposite of [`ControlFlow`], which says what *is* reached: this omits nothing that
//! *may* be. So bytes that are not proven to be instructions are decoded from each byte on, and
//! every number in code or data that is an address of code counts as a jump's target.
//!
//! It cannot see an address that is computed by a jump whose table cannot be read. Such a jump
//! leads into its own function or the function's other parts, which are then not
//! [closed](ControlFlow::closed).

use std::ops::Range;

use iced_x86::{Instruction, OpKind};

use super::Image;
use super::flow::{ControlFlow, control_flow, decode_with, decoder};
use super::possible_targets::PossibleTargets;
use super::region::branch_target;

/// The most bytes of data that are searched for addresses of code.
const DATA: u64 = 64 << 20;

/// Answers [`Image::possible_targets`].
pub(crate) fn possible_targets(image: &Image) -> &PossibleTargets {
    image.possible_targets.get_or_init(|| {
        let flow = control_flow(image);
        if flow.problem().is_some() {
            return PossibleTargets::default();
        }
        let mut found = Found { code: ranges(flow), all: flow.table_targets().to_vec() };
        let starts = image.starts();
        found.all.extend(starts.starts.iter().map(|start| start.vaddr));
        found.all.extend(&starts.labels);
        found.add(image.entry());
        for (start, bytes, lengths) in flow.pieces() {
            found.read(start, bytes, lengths);
        }
        image.relocations().values().for_each(|&address| found.add(address));
        let complete = add_data(image, &mut found);
        let mut all = found.all;
        all.sort_unstable();
        all.dedup();
        PossibleTargets { all, complete }
    })
}

/// Adds the addresses of code that are stored in data. Returns false if there is too much data.
fn add_data(image: &Image, found: &mut Found) -> bool {
    // Some files have their tables among the code.
    let data = &image.headers.segments;
    if data.iter().map(|segment| segment.file_size).sum::<u64>() > DATA {
        return false;
    }
    for segment in data {
        let Some(bytes) = image.data(segment.vaddr, segment.file_size) else { return false };
        // At multiples of four: not all addresses are aligned to their size.
        let first = (segment.vaddr.wrapping_neg() & 3) as usize;
        for at in (first..bytes.len().saturating_sub(7)).step_by(4) {
            let word = bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
            found.add(word);
        }
    }
    true
}

/// The ranges of code, ascending and disjoint.
fn ranges(flow: &ControlFlow) -> Vec<Range<u64>> {
    let mut pieces: Vec<Range<u64>> =
        flow.pieces().map(|(start, bytes, _)| start..start.saturating_add(bytes.len() as u64)).collect();
    pieces.sort_unstable_by_key(|piece| piece.start);
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for piece in pieces {
        match ranges.last_mut().filter(|last| last.end >= piece.start) {
            Some(last) => last.end = last.end.max(piece.end),
            None => ranges.push(piece),
        }
    }
    ranges
}

/// The addresses found so far.
struct Found {
    code: Vec<Range<u64>>,
    all: Vec<u64>,
}

impl Found {
    fn add(&mut self, address: u64) {
        let at = self.code.partition_point(|range| range.end <= address);
        if self.code.get(at).is_some_and(|range| range.contains(&address)) {
            self.all.push(address);
        }
    }

    /// Decodes proven instructions at their starts, and everything else at each byte, since
    /// instructions may begin anywhere in it. `lengths` has the lengths of the proven ones.
    fn read(&mut self, start: u64, bytes: &[u8], lengths: &[u8]) {
        let mut proven = 0;
        let mut decoder = decoder(bytes);
        for (at, length) in lengths.iter().copied().map(usize::from).enumerate() {
            proven = proven.max(at + length);
            if length > 0 || at >= proven {
                self.read_one(decode_with(&mut decoder, start, at));
            }
        }
    }

    /// Adds an instruction's target and numbers, if there is one.
    fn read_one(&mut self, instruction: Option<Instruction>) {
        let Some(instruction) = instruction else { return };
        branch_target(&instruction).into_iter().for_each(|target| self.add(target));
        numbers(&instruction).for_each(|number| self.add(number));
    }
}

/// The numbers in an instruction that may be addresses.
fn numbers(instruction: &Instruction) -> impl Iterator<Item = u64> {
    let memory = (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
    let displacement = memory.then(|| match instruction.is_ip_rel_memory_operand() {
        true => instruction.ip_rel_memory_address(),
        false => instruction.memory_displacement64(),
    });
    let immediates =
        (0..instruction.op_count()).filter_map(|operand| instruction.try_immediate(operand).ok());
    displacement.into_iter().chain(immediates)
}
