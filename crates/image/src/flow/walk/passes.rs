//! The second and the third pass over the code of a file.
//!
//! In: the analysis that the pass before has completed. Out: for the second pass a new one, which
//! knows which calls return; for the third the instructions that are only likely.

use super::super::super::frames::Stack;
use super::super::piece::Piece;
use super::super::returns::Returns;
use super::FlowAnalysis;

impl<'a> FlowAnalysis<'a> {
    /// The second pass, which continues after a call only if it is proven to return. It analyzes
    /// all functions that the first pass found to be called, which are too many rather than too
    /// few.
    pub(in crate::flow) fn again(self, code: Vec<Piece>) -> FlowAnalysis<'a> {
        // Code that begins with the stack in use is a part of a function, and followed with it.
        let is_function = |start: u64| {
            let stack = self.image.frames().stack_at(start);
            self.is_reached(start) && stack.is_none_or(|stack| stack == Stack::AtEntry)
        };
        let functions = self.stretches.iter().map(|(start, _)| *start).filter(|&start| is_function(start));
        let functions: Vec<u64> = functions.chain(self.calls.iter().copied()).collect();
        let returns = Returns::of(&self, functions.into_iter());
        let mut walk = FlowAnalysis::new(self.image, code);
        walk.returns = Some(returns);
        walk
    }

    /// Finds likely instructions in a third pass, which also continues after calls that may return.
    pub(in crate::flow) fn guess(&mut self) {
        if !self.is_unknown {
            return;
        }
        let pieces = self.flow.code.iter().map(Piece::anew).collect();
        let mut walk = FlowAnalysis::new(self.image, pieces);
        walk.returns = self.returns.take();
        walk.returns.iter_mut().for_each(|returns| returns.is_lenient = true);
        walk.all();
        walk.pad();
        let mut likely = std::mem::take(&mut walk.flow.likely);
        for (piece, more) in self.flow.code.iter().zip(&walk.flow.code) {
            let found = more.lengths.iter().zip(&piece.lengths).enumerate();
            likely.extend(
                found
                    .filter(|(_, (more, proven))| **more > 0 && **proven == 0)
                    .map(|(at, _)| piece.start + at as u64),
            );
        }
        likely.sort_unstable();
        self.flow.likely = likely;
    }
}
