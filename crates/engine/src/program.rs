//! A program as it is used: its variables, and what has become of each of its probepoints.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agent::layout::Over;
use process::Image;
use rpn::{Location, Object};
use trace::Items;
use vm::Op;

use crate::coverage::general;
use crate::jump::{Cells, Counter, Words, has_limits};
use crate::places::{PlaceReport, Places};
use crate::versions::Versions;

/// What makes probes fire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// A jump wherever one can stand, a trap elsewhere.
    Auto,
    /// A jump, or the probe is refused.
    Jump,
    /// A trap.
    #[default]
    Trap,
}

/// How a program is used.
#[derive(Clone, Debug)]
pub struct Options {
    /// What makes its probes fire.
    pub engine: Engine,
    /// Whether opcodes and instruction boundaries are verified.
    pub verify_opcodes: bool,
    /// The header items of records.
    pub items: Items,
    /// Whether a thread that finds no room for its record waits until there is some, in place of dropping it.
    pub lossless: bool,
    /// The file whose symbols are meant, if that is not the module's own: a debug file, or the module before it was
    /// stripped. It has to be of the module's build.
    pub symbols: Option<Arc<Image>>,
}

/// A compiled program with its variables and counters. All processes share them.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) versions: Versions,
    pub(crate) options: Options,
    pub(crate) locals: Variables,
    /// The local variables that are counted for each processor, once that was looked for.
    pub(crate) counters: Option<HashMap<u16, Counter>>,
    /// Whether an instruction of it removes a probe.
    pub(crate) removes: bool,
    /// Whether an instruction of it calls a facility: a core dump, which shows all threads.
    pub(crate) calls: bool,
    /// Whether an instruction of it is `callk`, which calls plugins: they are in the tracer's process.
    pub(crate) calls_plugins: bool,
    pub(crate) probes: Vec<Probe>,
    /// The sites of the probes that have many. They are noted while the program is only looked at.
    pub(crate) places: RefCell<Places>,
    /// The processes it is for, with their descendants; `None`: all that are followed.
    pub(crate) only: Option<HashSet<i32>>,
    /// Whether it is inserted; a program that was removed keeps its number and its counts.
    pub(crate) inserted: bool,
    /// Each of its handlers that is anywhere has this.
    pub(crate) alive: Rc<()>,
}

/// Variables: in memory that is shared with the probed processes, or, where there is none, in the tracer's own.
#[derive(Debug)]
pub(crate) enum Variables {
    Shared(Words),
    Own(Box<[AtomicU64]>),
}

impl Variables {
    /// This many, all 0.
    fn new(count: usize, cells: Option<&mut Cells>) -> Variables {
        match cells.and_then(|cells| cells.words(count)) {
            Some(words) => Variables::Shared(words),
            None => Variables::Own((0..count).map(|_| AtomicU64::new(0)).collect()),
        }
    }

    /// Where one is in the shared memory; none if they are not shared.
    pub(crate) fn offset(&self, number: u16) -> Option<usize> {
        match self {
            Variables::Shared(words) => Some(words.offset() + usize::from(number) * size_of::<u64>()),
            Variables::Own(_) => None,
        }
    }

    /// The address of the first, in a process that has the shared memory at `base`.
    pub(crate) fn address(&self, base: u64) -> Option<u32> {
        match self {
            Variables::Shared(words) => Some(words.address(base)),
            Variables::Own(_) => None,
        }
    }
}

impl Deref for Variables {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        match self {
            Variables::Shared(words) => words,
            Variables::Own(words) => words,
        }
    }
}

/// The values of variables now.
pub(crate) fn values_of(variables: &[AtomicU64]) -> Vec<u64> {
    variables.iter().map(|variable| variable.load(Ordering::Relaxed)).collect()
}

/// The global variables: one array for all programs. It grows to the largest number that a program has asked for
/// and keeps its values as long as the tracer lives.
#[derive(Debug)]
pub(crate) struct Globals {
    values: Variables,
    count: usize,
}

impl Globals {
    /// None yet.
    pub(crate) fn new(cells: Option<&mut Cells>) -> Globals {
        /// The most that a program can ask for.
        const MOST: usize = u16::MAX as usize;
        let values = match cells {
            Some(cells) => Variables::Shared(cells.globals(MOST)),
            None => Variables::new(MOST, None),
        };
        Globals { values, count: 0 }
    }

    /// Makes sure that there are this many.
    pub(crate) fn grow(&mut self, count: u16) {
        self.count = self.count.max(usize::from(count)).min(self.values.len());
    }

    /// The address of the first, in a process that has the shared memory at `base`.
    pub(crate) fn address(&self, base: u64) -> Option<u32> {
        self.values.address(base)
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[AtomicU64] {
        &self.values[..self.count]
    }

    /// Those that a program can use.
    pub(crate) fn of(&self, program: &Object) -> &[AtomicU64] {
        &self.values[..usize::from(program.gvars).min(self.count)]
    }
}

/// One probepoint of a program, in all processes together.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    pub(crate) state: State,
    /// What the tracer has counted.
    pub(crate) counts: Counts,
    /// What its jumps count.
    pub(crate) counted: Option<Counted>,
    /// Its number in records of jumps, once it has one.
    pub(crate) name: Option<u32>,
    /// How the jumps were made to fit at the sites that are jumps, and why others are traps; the first of each.
    pub(crate) tactic: Option<&'static str>,
    pub(crate) why_trapped: Option<String>,
    /// The same of all its sites.
    pub(crate) sites: SiteCounts,
    /// Where it was placed first.
    pub(crate) address: Option<u64>,
    /// The place in the module's file of where it was placed first.
    pub(crate) offset: Option<u64>,
}

/// How the sites of a probe fire, as they were placed: one that is in two processes counts twice, unless the one is a copy of the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteCounts {
    /// Jumps, by the name of the tactic.
    pub jumps: BTreeMap<&'static str, usize>,
    /// Traps, by the reason for which they are no jumps.
    pub traps: BTreeMap<String, usize>,
}

impl SiteCounts {
    /// A site has become a jump; `before` is the tactic of the jump that it was.
    pub(crate) fn jump(&mut self, tactic: &'static str, before: Option<&'static str>) {
        self.no_jump(before);
        *self.jumps.entry(tactic).or_insert(0) += 1;
    }

    /// A site is no jump by this tactic any more.
    fn no_jump(&mut self, before: Option<&'static str>) {
        if let Some(count) = before.and_then(|before| self.jumps.get_mut(before)) {
            *count = count.saturating_sub(1);
            self.jumps.retain(|_, count| *count > 0);
        }
    }

    /// A site traps; `before` is the tactic of the jump that it was.
    pub(crate) fn trap(&mut self, reason: &str, before: Option<&'static str>) {
        self.no_jump(before);
        *self.traps.entry(general(reason)).or_insert(0) += 1;
    }
}

/// What the jumps of a probe count, in all processes together.
#[derive(Debug)]
pub(crate) struct Counted {
    /// Hits: runs, misses and hits passed over.
    pub(crate) hits: Counter,
    /// [`MISSED`] and so on.
    pub(crate) words: Words,
}

/// The words of [`Counted`]: hits whose handler did not run for want of something.
pub(crate) const MISSED: usize = 0;
/// Records that were dropped.
pub(crate) const DROPPED: usize = 1;
/// Hits of a probe that has `ignore` or `maxhits`.
pub(crate) const TURNS: usize = 2;
/// An [`agent::layout::Over`]: the lower half is not 0 once no run begins any more, the upper half once the probe is
/// removed.
pub(crate) const OVER: usize = 3;
/// The probe is closed, in the word of [`OVER`].
const CLOSED: u64 = 1;
/// In its upper half: a handler has removed it, or the tracer takes it out.
const BY_HANDLER: u64 = (Over::BY_HANDLER as u64) << 32;
const BY_TRACER: u64 = (Over::BY_TRACER as u64) << 32;
/// How many words there are.
const COUNTED: usize = 4;

impl Counted {
    fn word(&self, which: usize) -> u64 {
        self.words.get(which).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Whether the probe is over.
    pub(crate) fn is_over(&self) -> bool {
        self.word(OVER) as u32 != 0
    }

    /// Whether a handler has removed the probe.
    pub(crate) fn is_removed_by_handler(&self) -> bool {
        self.word(OVER) & BY_HANDLER != 0
    }

    /// No run of the handler begins from now on.
    pub(crate) fn close(&self) {
        if let Some(word) = self.words.get(OVER) {
            word.fetch_or(CLOSED, Ordering::Relaxed);
        }
    }

    /// The same, and runs that take long end soon.
    pub(crate) fn take_out(&self) {
        if let Some(word) = self.words.get(OVER) {
            word.fetch_or(CLOSED | BY_TRACER, Ordering::Relaxed);
        }
    }

    /// Takes the next turn, from 1 on.
    pub(crate) fn turn(&self) -> u64 {
        self.words.get(TURNS).map_or(1, |word| word.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Counts one more of one kind.
    pub(crate) fn count(&self, which: usize) {
        if let Some(word) = self.words.get(which) {
            word.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Probe {
    /// What its jumps count; none if there is no more room to count in.
    pub(crate) fn counted(&mut self, cells: &mut Cells) -> Option<&Counted> {
        if self.counted.is_none() {
            let counted = Counted { hits: cells.counter(None)?, words: cells.words(COUNTED)? };
            // What was trapped so far has taken its turns, too.
            counted.words[TURNS].store(self.counts.hits, Ordering::Relaxed);
            self.counted = Some(counted);
        }
        self.counted.as_ref()
    }

    /// All that was counted so far; `definition` is the probe's, `places` are the hits of those of its many sites that are jumps.
    fn counts(&self, definition: &rpn::Probe, places: u64) -> Counts {
        let mut counts = self.counts;
        if let Some(counted) = &self.counted {
            if has_limits(definition) {
                // Whoever hits takes a turn, by a jump or a trap; those behind the last are none.
                let turns = counted.word(TURNS);
                counts.ignored = turns.min(definition.ignore);
                counts.hits = turns.min(definition.ignore.saturating_add(definition.maxhits));
            } else {
                counts.hits += counted.hits.value() + places;
            }
            counts.missed += counted.word(MISSED);
            counts.runs = counts.hits.saturating_sub(counts.missed + counts.ignored);
            counts.dropped += counted.word(DROPPED);
        }
        counts
    }

    /// A site of it traps, and why; `before` is the tactic of the jump that it was.
    pub(crate) fn trapped(&mut self, reason: &str, before: Option<&'static str>) {
        self.why_trapped.get_or_insert_with(|| reason.to_owned());
        self.sites.trap(reason, before);
    }

    /// Records that were dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.counts.dropped + self.counted.as_ref().map_or(0, |counted| counted.word(DROPPED))
    }

    /// The name of the engine that serves it.
    pub(crate) fn engine(&self) -> &'static str {
        match (self.tactic, &self.why_trapped) {
            (Some(_), Some(_)) => "jump+trap",
            (Some(_), None) => "jump",
            (None, _) => "trap",
        }
    }
}

/// What has become of a probepoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Its module is not mapped yet.
    #[default]
    Waiting,
    /// It fires.
    Armed,
    /// It has been hit `maxhits` times.
    Disabled,
    /// Its handler has removed it.
    Removed,
    /// It could not be placed.
    Refused,
}

impl State {
    /// The state's name, as reports show it.
    pub fn name(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Armed => "armed",
            State::Disabled => "disabled",
            State::Removed => "removed",
            State::Refused => "refused",
        }
    }

    /// Whether the probepoint will never fire again.
    pub fn is_over(self) -> bool {
        matches!(self, State::Disabled | State::Removed)
    }
}

/// What has been counted at a probepoint. `hits = runs + ignored + missed`; of the runs that ended with a
/// record, `logged` records were written and `dropped` were not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times the probepoint was reached.
    pub hits: u64,
    /// Times its handler ran.
    pub runs: u64,
    /// Hits passed over by `ignore`.
    pub ignored: u64,
    /// Hits passed over for want of something else.
    pub missed: u64,
    /// Records written.
    pub logged: u64,
    /// Records dropped: the probed instruction faulted, or the record could not be written.
    pub dropped: u64,
}

impl Program {
    pub(crate) fn new(
        versions: Versions,
        options: Options,
        only: Option<HashSet<i32>>,
        cells: Option<&mut Cells>,
    ) -> Program {
        let object = versions.main();
        Program {
            locals: Variables::new(usize::from(object.vars), cells),
            probes: object.probes.iter().map(|_| Probe::default()).collect(),
            counters: None,
            removes: crate::jump::has(&object.code, object.word().bytes(), &[Op::Remove]),
            calls: crate::jump::has(&object.code, object.word().bytes(), &[Op::ExitTo]),
            calls_plugins: crate::jump::has(&object.code, object.word().bytes(), &[Op::Callk]),
            places: RefCell::default(),
            versions,
            options,
            only,
            inserted: true,
            alive: Rc::default(),
        }
    }

    /// The name of its module.
    pub(crate) fn module(&self) -> &str {
        &self.versions.main().module
    }

    /// For each probe that has points of functions, where it was placed, and the hits there.
    pub(crate) fn places(&self) -> Vec<Option<Vec<PlaceReport>>> {
        let places = self.places.borrow();
        let probes = self.versions.main().probes.iter().enumerate();
        let is_points = |probe: &rpn::Probe| matches!(probe.location, Location::Points { .. });
        probes.map(|(number, probe)| is_points(probe).then(|| places.report(number))).collect()
    }

    /// Whether it is to be placed in a process.
    pub(crate) fn is_for(&self, pid: i32) -> bool {
        self.inserted && self.only.as_ref().is_none_or(|only| only.contains(&pid))
    }

    /// What was counted at one of its probes so far.
    pub(crate) fn counts(&self, probe: usize) -> Counts {
        match (self.probes.get(probe), self.versions.main().probes.get(probe)) {
            (Some(state), Some(definition)) => {
                let is_points = matches!(definition.location, Location::Points { .. });
                let places = if is_points { self.places.borrow().jump_hits(probe) } else { 0 };
                state.counts(definition, places)
            }
            _ => Counts::default(),
        }
    }

    /// The values of its local variables now.
    pub(crate) fn values(&self) -> Vec<u64> {
        let word = self.versions.widest_word();
        let value = |(number, variable): (usize, &AtomicU64)| match self.counted(number) {
            Some(counter) => counter.value(),
            None => variable.load(Ordering::Relaxed),
        };
        self.locals.iter().enumerate().map(|variable| word.truncate(value(variable))).collect()
    }

    /// Sets a local variable to zero.
    pub(crate) fn reset(&self, number: usize) {
        match (self.counted(number), self.locals.get(number)) {
            (Some(counter), _) => counter.reset(),
            (None, Some(variable)) => variable.store(0, Ordering::Relaxed),
            (None, None) => {}
        }
    }
}
