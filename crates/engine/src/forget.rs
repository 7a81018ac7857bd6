//! Programs that were removed, and that nobody asks for any more: what they have taken is given back.
//!
//! A handler has the addresses of its program's counters in its instructions, so a thread that is still in one counts there. Each
//! handler that was compiled therefore holds on to its program ([`Program::alive`]), and trampolines hold on to their handlers until no thread can be in
//! them. When none is left, records may still wait in rings, with numbers that stand for the program's probes: they are read first.

use std::rc::Rc;

use crate::jump::{Cells, Mark};
use crate::program::Program;
use crate::tracer::Tracer;
use crate::tracked::Tracked;
use crate::variables::Variables;

/// A program that is to be forgotten.
#[derive(Debug)]
pub(crate) struct Forgotten {
    number: usize,
    /// What was in the rings when no handler of it was left.
    mark: Option<Mark>,
}

impl Tracer<'_> {
    /// Nobody asks for a program any more that was removed: all that it has taken is given back as soon as that can be. Its number is
    /// never another one's.
    pub fn forget(&mut self, number: usize) {
        if self.programs.get(number).is_some_and(|program| !program.inserted) {
            self.sharing.forgotten.push(Forgotten { number, mark: None });
            self.forget_programs();
        }
    }

    /// Gives back what programs have taken that are to be forgotten, of which nothing is left anywhere.
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
                // What was worked out for it has a copy of what is described.
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

/// Gives all words of a program back.
fn give_back(program: Program, cells: &mut Cells) {
    let Program { locals, counters, probes, places, .. } = program;
    // The locals are these counters' own words.
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
