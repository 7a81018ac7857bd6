//! Frees removed programs that are no longer needed.
//!
//! A handler has the addresses of its program's counters in its instructions, so a thread that is
//! still in it counts there. Each compiled handler therefore keeps its program alive
//! ([`Program::alive`]), and trampolines keep their handlers until no thread can be in them. When
//! no handler is left, rings may still contain records with numbers of the program's probes: they
//! are read first.

use std::rc::Rc;

use crate::jump::{Cells, Mark};
use crate::program::Program;
use crate::tracer::Tracer;
use crate::tracked::Tracked;
use crate::variables::Variables;

/// A program to be forgotten.
#[derive(Debug)]
pub(crate) struct Forgotten {
    number: usize,
    /// The positions in the rings when its last handler was gone.
    mark: Option<Mark>,
}

impl Tracer<'_> {
    /// Frees everything of a removed program as soon as possible. Its number is never used again.
    pub fn forget(&mut self, number: usize) {
        if self.programs.get(number).is_some_and(|program| !program.inserted) {
            self.sharing.forgotten.push(Forgotten { number, mark: None });
            self.forget_programs();
        }
    }

    /// Frees the programs to be forgotten that nothing refers to any more.
    pub(crate) fn forget_programs(&mut self) {
        if self.sharing.forgotten.is_empty() || self.threads.values().any(Tracked::has_records) {
            return;
        }
        let mut forgotten = std::mem::take(&mut self.sharing.forgotten);
        forgotten.retain_mut(|Forgotten { number, mark }| {
            let Some(program) = self.programs.get(*number) else { return false };
            if Rc::strong_count(&program.alive) > 1 {
                return true;
            }
            let mark = mark.get_or_insert_with(|| self.mark());
            if !self.is_past(mark) {
                return true;
            }
            let Some(program) = self.programs.remove(*number) else { return false };
            self.sharing.mortal.retain(|(of, _)| of != number);
            self.told.forget(*number);
            for space in self.spaces.values_mut() {
                // The plan contains a copy of the handlers' descriptions.
                space.foreseen = None;
                space.ground.iter_mut().for_each(|ground| ground.forget(*number));
            }
            if let Some(cells) = &mut self.sharing.cells {
                give_back(program, cells);
            }
            false
        });
        self.sharing.forgotten = forgotten;
    }
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
