//! Frees removed programs that are no longer needed.
//!
//! A handler has the addresses of its program's counters in its instructions, so a thread that is
//! still in it counts there. Each compiled handler therefore keeps its program alive
//! ([`Program::alive`]), and trampolines keep their handlers until no thread can be in them. When
//! no handler is left, rings may still contain records with numbers of the program's probes: they
//! are read first.

use crate::jump::{Cells, Mark};
use crate::program::Program;
use crate::variables::Variables;

mod drainer;

/// A program to be forgotten.
#[derive(Debug)]
pub(crate) struct Forgotten {
    number: usize,
    /// The positions in the rings when its last handler was gone.
    mark: Option<Mark>,
}

/// Frees all shared words of a program.
fn give_back(program: Program, cells: &mut Cells) {
    let Program { locals, counters, probes, places, .. } = program;
    // The locals are the words of these counters.
    counters.into_iter().flatten().for_each(|(_, counter)| cells.give_back_shared(counter));
    if let Variables::Shared(words) = locals {
        cells.give_back_words(words);
    }
    for counted in probes.into_iter().filter_map(|probe| probe.counted) {
        cells.give_back(counted.hits);
        cells.give_back_words(counted.words);
    }
    places.into_inner().into_counters().for_each(|counter| cells.give_back(counter));
}
