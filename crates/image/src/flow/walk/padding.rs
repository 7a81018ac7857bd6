//! Padding between proven instructions, and the functions whose jumps are all known.
//!
//! In: a completed pass. Out: [`ControlFlow::padding`], `closed` and `likely`; and the padding's
//! `nop`s as instructions.
//!
//! [`ControlFlow::padding`]: super::super::ControlFlow

use std::collections::HashSet;
use std::ops::Range;

use iced_x86::Mnemonic;

use super::super::super::frames::Stack;
use super::super::super::functions::Binding;
use super::FlowAnalysis;

/// The most bytes of padding between two functions.
const PADDING: usize = 256;

impl FlowAnalysis<'_> {
    /// Finds the padding between proven instructions.
    pub(in crate::flow) fn pad(&mut self) {
        self.references.sort_unstable_by_key(|reference| reference.to);
        self.flow.lost.sort_unstable();
        self.places = self
            .flow
            .tables
            .iter()
            .map(|(jump, _)| *jump)
            .chain(self.flow.unresolved.iter().map(|(jump, _)| *jump))
            .filter_map(|jump| self.place_of(jump))
            .collect();
        let (open, entered) = self.open_stretches();
        self.open_stretches.clone_from(&open);
        self.flow.likely = self.likely();
        let closed =
            (0..self.stretches.len()).filter(|stretch| !open.contains(stretch) && entered.contains(stretch));
        let closed = closed.map(|stretch| self.stretches[stretch].0..self.stretches[stretch].1);
        self.flow.closed = closed.filter(|range| range.start < range.end && range.end < u64::MAX).collect();
        let (mut dead, mut fillers) = (Vec::new(), Vec::new());
        for (number, piece) in self.flow.code.iter().enumerate() {
            for gap in piece.gaps() {
                let range = piece.start + gap.start as u64..piece.start + gap.end as u64;
                if gap.len() > PADDING || !piece.is_padding(gap.clone()) || self.is_referred_to(&range) {
                    continue;
                }
                // If a function has unresolved jumps, one of its `switch` cases may begin with
                // alignment.
                let is_closed = self.stretch_of(range.start).is_none_or(|stretch| {
                    self.stretches[stretch].1 <= range.start || !open.contains(&stretch)
                });
                if is_closed && piece.is_left_before(gap.start) {
                    dead.push(range);
                }
                fillers.push((number, gap));
            }
        }
        dead.sort_by_key(|range| range.start);
        self.flow.padding = dead;
        // Padding consists of instructions, too.
        for (number, gap) in fillers {
            let piece = &mut self.flow.code[number];
            let mut at = gap.start;
            while at < gap.end
                && let Some(filler) = piece.decode(at)
            {
                if filler.mnemonic() == Mnemonic::Nop {
                    piece.lengths[at] = filler.len() as u8;
                }
                at += filler.len();
            }
        }
    }

    /// Two sets of stretches, by number. The open ones: of functions with unresolved jumps or
    /// landing pads of exceptions, and those that jumps connect with them. The entered ones:
    /// connected with the entry of a function, which has the unwinding state of an entry and is
    /// called or has a non-local symbol. Any other may be a part of another function, which reaches
    /// it by unknown jumps.
    fn open_stretches(&self) -> (HashSet<usize>, HashSet<usize>) {
        let mut joined: Vec<usize> = (0..self.stretches.len()).collect();
        fn root(joined: &mut [usize], mut at: usize) -> usize {
            while joined[at] != at {
                joined[at] = joined[joined[at]];
                at = joined[at];
            }
            at
        }
        for &(from, to) in &self.jumps {
            if let (Some(from), Some(to)) = (self.stretch_of(from), self.stretch_of(to)) {
                let (from, to) = (root(&mut joined, from), root(&mut joined, to));
                joined[from] = to;
            }
        }
        let unresolved = self.flow.unresolved.iter().map(|&(jump, _)| jump);
        let open = unresolved.chain(self.image.frames().with_landing_pads());
        let open: Vec<usize> = open.filter_map(|vaddr| self.stretch_of(vaddr)).collect();
        let open: HashSet<usize> = open.into_iter().map(|stretch| root(&mut joined, stretch)).collect();
        // A part of a function without a frame of its own looks like an entry, too, but nothing
        // calls it.
        let named = self.image.functions().iter().filter(|function| function.binding != Binding::Local);
        let named: HashSet<u64> = named.map(|function| function.vaddr).collect();
        let entered = (0..self.stretches.len()).filter(|&stretch| {
            let start = self.stretches[stretch].0;
            (self.calls.contains(&start) || named.contains(&start))
                && self.image.frames().stack_at(start) == Some(Stack::AtEntry)
        });
        let entered: HashSet<usize> = entered.map(|stretch| root(&mut joined, stretch)).collect();
        let mut with = |roots: &HashSet<usize>| -> HashSet<usize> {
            (0..self.stretches.len()).filter(|&stretch| roots.contains(&root(&mut joined, stretch))).collect()
        };
        (with(&open), with(&entered))
    }

    /// Whether any instruction refers to these addresses other than by a jump.
    fn is_referred_to(&self, range: &Range<u64>) -> bool {
        let from = self.references.partition_point(|reference| reference.to < range.start);
        self.references.get(from).is_some_and(|reference| reference.to < range.end)
    }
}
