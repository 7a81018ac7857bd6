//! Programs that were removed, and that nobody asks for any more: what they have taken is given back.
//!
//! A handler has the addresses of its program's counters in its instructions, so a thread that is still in one counts there. Each
//! handler that was compiled therefore holds on to its program ([`Program::alive`]), and trampolines hold on to their handlers until no thread can be in
//! them. When none is left, records may still wait in rings, with the numbers of the program's probes: they are read first.

use std::rc::Rc;

use rpn::Object;

use crate::jump::{Cells, Mark};
use crate::program::Program;
use crate::tracer::Tracer;
use crate::tracked::Tracked;
use crate::variables::Variables;
use crate::versions::Versions;

/// The probes, by program and number in it, by their numbers in records.
#[derive(Debug, Default)]
pub(crate) struct ProbeNames {
    all: Vec<Option<(usize, usize)>>,
    free: Vec<u32>,
}

impl ProbeNames {
    /// A number for a probe.
    pub(crate) fn take(&mut self, probe: (usize, usize)) -> u32 {
        if let Some(number) = self.free.pop() {
            self.all[number as usize] = Some(probe);
            return number;
        }
        self.all.push(Some(probe));
        (self.all.len() - 1) as u32
    }

    /// The probe of a number. It comes from a process's memory: there may be none.
    pub(crate) fn get(&self, number: u32) -> Option<(usize, usize)> {
        *self.all.get(usize::try_from(number).ok()?)?
    }

    fn give_back(&mut self, number: u32) {
        if let Some(probe) = self.all.get_mut(number as usize)
            && probe.take().is_some()
        {
            self.free.push(number);
        }
    }
}

/// A program that is to be forgotten.
#[derive(Debug)]
pub(crate) struct Forgotten {
    number: usize,
    /// What was in the rings when no handler of it was left.
    mark: Option<Mark>,
}

impl Tracer<'_> {
    /// Nobody asks for a program any more that was removed: all that it has taken is given back as soon as that can be. Its number stays its
    /// own.
    pub fn forget(&mut self, number: usize) {
        if self.programs.get(number).is_some_and(|program| !program.inserted) {
            self.forgotten.push(Forgotten { number, mark: None });
            self.forget_programs();
        }
    }

    /// Gives back what programs have taken that are to be forgotten, of which nothing is left anywhere.
    pub(crate) fn forget_programs(&mut self) {
        if self.forgotten.is_empty() || self.threads.values().any(Tracked::has_records) {
            return;
        }
        let mut forgotten = std::mem::take(&mut self.forgotten);
        forgotten.retain_mut(|Forgotten { number, mark }| {
            if Rc::strong_count(&self.programs[*number].alive) > 1 {
                return true;
            }
            let mark = mark.get_or_insert_with(|| self.mark());
            if !self.is_past(mark) {
                return true;
            }
            let program = std::mem::replace(&mut self.programs[*number], gone());
            self.mortal.retain(|(of, _)| of != number);
            for space in self.spaces.values_mut() {
                // What was worked out for it has a copy of what is described.
                space.foreseen = None;
                space.ground.iter_mut().for_each(|ground| ground.forget(*number));
            }
            for name in program.probes.iter().filter_map(|probe| probe.name) {
                self.probe_names.give_back(name);
            }
            if let Some(cells) = &mut self.cells {
                give_back(program, cells);
            }
            false
        });
        self.forgotten = forgotten;
    }
}

/// What is left of a program that is forgotten.
fn gone() -> Program {
    let options = crate::program::Options {
        engine: crate::program::Engine::Trap,
        verify_opcodes: false,
        items: trace::Items::default(),
        lossless: false,
        symbols: None,
    };
    let mut program = Program::new(Versions::only(Object::default(), "it was removed"), options, None, None);
    program.inserted = false;
    program
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

#[cfg(test)]
mod tests {
    use super::ProbeNames;

    #[test]
    fn numbers_are_used_again_and_one_that_nobody_has_is_nobodys() {
        let mut names = ProbeNames::default();
        let [first, second] = [names.take((0, 0)), names.take((0, 1))];
        assert_eq!((names.get(first), names.get(second), names.get(7)), (Some((0, 0)), Some((0, 1)), None));
        names.give_back(first);
        names.give_back(first);
        assert_eq!(names.get(first), None);
        assert_eq!(names.take((3, 4)), first);
        assert_eq!(names.get(first), Some((3, 4)));
        assert!(![first, second].contains(&names.take((3, 5))));
    }
}
