//! All open targets, and the programs whose records each of them gets.
//!
//! In: a record and the number of its program. Out: the record to each target of that program.

use std::collections::HashMap;
use std::io;

use engine::{Lost, Placed};
use trace::{Record, Records};

use super::open::{Open, TargetCounts};

/// The targets of an observer.
#[derive(Default)]
pub(crate) struct Targets {
    /// The open targets by position; `None` where one has ended.
    open: Vec<Option<Open>>,
    /// The targets of each program, by program number.
    programs: Vec<Option<ProgramTargets>>,
    refused: Refused,
}

/// The targets of a program.
struct ProgramTargets {
    places: Vec<usize>,
    /// Whether none of its records may be lost.
    lossless: bool,
}

impl Targets {
    /// Adds a target and returns its position.
    pub(crate) fn add(&mut self, open: Open) -> usize {
        let place = self.open.iter().position(Option::is_none).unwrap_or_else(|| {
            self.open.push(None);
            self.open.len() - 1
        });
        self.open[place] = Some(open);
        place
    }

    /// The position of the first target that satisfies a condition.
    pub(crate) fn position(&self, is_it: impl Fn(&Open) -> bool) -> Option<usize> {
        self.open.iter().position(|open| open.as_ref().is_some_and(&is_it))
    }

    /// Closes a target that was opened in vain.
    pub(crate) fn abandon(&mut self, place: usize) {
        self.open[place] = None;
    }

    /// All open targets.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut Open> {
        self.open.iter_mut().flatten()
    }

    /// Sets the targets of a program, and whether none of its records may be lost.
    pub(crate) fn set_targets(&mut self, program: usize, places: Vec<usize>, lossless: bool) {
        if self.programs.len() <= program {
            self.programs.resize_with(program + 1, || None);
        }
        self.programs[program] = Some(ProgramTargets { places, lossless });
        self.wait_where_asked();
    }

    /// Makes a target wait when it is slow, as long as one of its programs may lose nothing.
    fn wait_where_asked(&mut self) {
        for (place, open) in self.open.iter_mut().enumerate() {
            let mut programs = self.programs.iter().flatten();
            let lossless = programs.any(|program| program.lossless && program.places.contains(&place));
            open.iter_mut().for_each(|open| open.set_lossless(lossless));
        }
    }

    /// The positions of a program's targets.
    fn places_of(&self, program: usize) -> &[usize] {
        self.programs.get(program).and_then(Option::as_ref).map_or(&[], |program| &program.places)
    }

    /// Calls a function for each target of a program.
    pub(crate) fn each_of(&mut self, program: usize, mut with: impl FnMut(&mut Open)) {
        for place in self.places_of(program).to_vec() {
            self.open[place].iter_mut().for_each(&mut with);
        }
    }

    /// What became of the records of a program's targets so far, including records of other
    /// programs.
    pub(crate) fn taken(&self, program: usize) -> Vec<TargetCounts> {
        let open = self.places_of(program).iter().filter_map(|&place| self.open[place].as_ref());
        open.map(Open::taken).collect()
    }

    /// Passes a record of a program to its targets. It counts as taken if one target takes it;
    /// failures of others are reported.
    ///
    /// # Errors
    /// No target has taken it: the last failure.
    #[inline]
    pub(crate) fn record(
        &mut self,
        program: usize,
        record: &Record,
        mut tell: impl FnMut(&str),
    ) -> io::Result<()> {
        let (mut taken, mut refusal) = (false, None);
        let directed = self.programs.get(program).and_then(Option::as_ref);
        for &place in directed.map_or(&[][..], |directed| &directed.places) {
            let Some(open) = &mut self.open[place] else { continue };
            match open.record(program, record, &mut tell) {
                Ok(()) => taken = true,
                Err(error) => refusal = Some(error),
            }
        }
        if taken { Ok(()) } else { Err(self.refuse(program, record.probe, refusal)) }
    }

    /// Passes records of a program to its targets; those are refused that no target takes.
    pub(crate) fn records(&mut self, program: usize, records: &mut Records, mut tell: impl FnMut(&str)) {
        let Some(open) = self.only_target(program) else {
            return records.each(|record| self.record(program, record, &mut tell));
        };
        open.records(program, records, &mut tell);
        for (_, head) in records.refused() {
            self.refused.note(program, head.probe);
        }
    }

    /// The target of a program that has one.
    fn only_target(&mut self, program: usize) -> Option<&mut Open> {
        let &[place] = self.places_of(program) else { return None };
        self.open.get_mut(place)?.as_mut()
    }

    /// Counts a record that no target has taken; returns why.
    #[cold]
    fn refuse(&mut self, program: usize, probe: u32, refusal: Option<io::Error>) -> io::Error {
        self.refused.note(program, probe);
        refusal.unwrap_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Passes on a message.
    pub(crate) fn note(&mut self, text: &str) {
        self.all().for_each(|open| open.note(text));
    }

    /// Passes on a site at which a probe was armed.
    pub(crate) fn placed(&mut self, placed: &Placed<'_>) {
        self.each_of(placed.program, |open| open.placed(placed));
    }

    /// Whether a target uses such sites.
    pub(crate) fn wants_placed(&self) -> bool {
        self.open.iter().flatten().any(Open::keeps_facts)
    }

    /// Passes on when records were lost.
    pub(crate) fn gap(&mut self, lost: &Lost) {
        self.all().for_each(|open| open.gap(lost));
    }

    /// Passes on the number of further dropped records of a probe.
    pub(crate) fn dropped(&mut self, program: usize, probe: usize, count: u64) {
        let refused = self.refused.take(program, probe, count);
        self.each_of(program, |open| open.dropped(program, probe, count, refused));
    }

    /// Lets the targets write buffered data. What cannot be written is lost, which is reported once
    /// per target.
    pub(crate) fn idle(&mut self, mut tell: impl FnMut(&str)) {
        self.all().for_each(|open| open.idle(&mut tell));
    }

    /// Whether all targets can take records now: a slow target holds up all, since their records
    /// come from the same memory.
    pub(crate) fn are_ready(&mut self) -> bool {
        self.all().all(Open::is_ready)
    }

    /// Whether a target has data that is not written yet.
    pub(crate) fn wait(&self) -> bool {
        self.open.iter().flatten().any(Open::waits)
    }

    /// Forgets a program whose records are all written. A target that no other program uses and
    /// that is not `expected` ends; it gets the global variables last.
    pub(crate) fn forget(
        &mut self,
        program: usize,
        globals: &[u64],
        expected: &[usize],
        mut tell: impl FnMut(&str),
    ) {
        let places = self.places_of(program).to_vec();
        self.programs.get_mut(program).into_iter().for_each(|directed| *directed = None);
        self.refused.forget(program);
        for place in places {
            let others = self.programs.iter().flatten();
            let is_shared = others.flat_map(|other| &other.places).chain(expected).any(|&it| it == place);
            let Some(open) = &mut self.open[place] else { continue };
            open.forget(program);
            if is_shared {
                open.idle(&mut tell);
            } else {
                open.globals(globals);
                open.finish().iter().for_each(|text| tell(text));
                self.open[place] = None;
            }
        }
        self.wait_where_asked();
    }
}

/// Records that no target took, by program and probe. The engine counts them as dropped and reports
/// them later.
#[derive(Debug, Default)]
struct Refused(HashMap<(usize, usize), u64>);

impl Refused {
    /// Counts a refused record.
    fn note(&mut self, program: usize, probe: u32) {
        *self.0.entry((program, probe as usize)).or_default() += 1;
    }

    /// The number of refused records among `dropped` ones; they are no longer counted.
    fn take(&mut self, program: usize, probe: usize, dropped: u64) -> u64 {
        let Some(noted) = self.0.get_mut(&(program, probe)) else { return 0 };
        let taken = dropped.min(*noted);
        *noted -= taken;
        taken
    }

    /// No more records of this program will come.
    fn forget(&mut self, program: usize) {
        self.0.retain(|(of, _), _| *of != program);
    }
}
