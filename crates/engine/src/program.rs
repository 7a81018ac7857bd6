//! A program in use: its variables, and the state of each of its probepoints.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use image::Image;
use layout::ProbeEnd;
use rpn::Location;
use trace::Items;
use vm::Effects;

use crate::coverage::general;
use crate::jump::{Cells, Counter, Domain, Words, has_limits};
use crate::site_hits::{PlaceReport, Places};
use crate::variables::Variables;
use crate::versions::Versions;

/// How probes fire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// A jump where possible, else a trap.
    Auto,
    /// A jump; where none is possible the probe is refused.
    Jump,
    /// A trap.
    #[default]
    Trap,
}

/// How a program is used.
#[derive(Clone, Debug)]
pub struct Options {
    /// How its probes fire.
    pub engine: Engine,
    /// Whether opcodes and instruction boundaries are verified.
    pub verify_opcodes: bool,
    /// The header items of records.
    pub items: Items,
    /// Whether a thread waits if there is no room for its record, instead of dropping the record.
    pub lossless: bool,
    /// The file with the symbols, if it is not the module itself: a debug file, or the unstripped
    /// module. It must be of the same build.
    pub symbols: Option<Arc<Image>>,
}

/// A compiled program with its variables and counters. The processes of a trust domain share the
/// variables.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) versions: Versions,
    pub(crate) options: Options,
    pub(crate) locals: Variables,
    /// The local variables that are only counted, with a counter for each processor; `None` until
    /// determined.
    pub(crate) counters: Option<HashMap<u16, Counter>>,
    /// Whether its code can remove a probe.
    pub(crate) removes: bool,
    /// Whether its code can call a facility: a core dump, which shows all threads.
    pub(crate) calls: bool,
    /// Whether its code contains `callk`, which calls plugins in the tracer's process.
    pub(crate) calls_plugins: bool,
    pub(crate) probes: Vec<Probe>,
    /// The sites of probes that have many. They are noted during planning, which has only a shared
    /// reference.
    pub(crate) places: RefCell<Places>,
    /// The processes it is for, with their descendants; `None`: all followed processes.
    pub(crate) only: Option<HashSet<i32>>,
    /// Whether it is inserted. A removed program keeps its number and its counts.
    pub(crate) inserted: bool,
    /// Every handler of it that still exists holds a clone.
    pub(crate) alive: Rc<()>,
}

/// One probepoint of a program, in all processes together.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    /// The state in all domains.
    pub(crate) state: State,
    /// The domains in which a handler or `maxhits` has ended it.
    pub(crate) ended: BTreeMap<Domain, State>,
    /// Of domains that have ended: hits ignored by `ignore`, and all hits.
    left: (u64, u64),
    /// The domains in which it was placed.
    pub(crate) placed: BTreeSet<Domain>,
    /// What the tracer has counted.
    pub(crate) counts: Counts,
    /// What its jumps have counted.
    pub(crate) counted: Option<JumpCounters>,
    /// Whether its handler was compiled for any site.
    pub(crate) is_compiled: bool,
    /// The tactic of its first jump, and why its first trap is not a jump.
    pub(crate) tactic: Option<&'static str>,
    pub(crate) why_trapped: Option<String>,
    /// The same for all its sites.
    pub(crate) sites: SiteCounts,
    /// The first address where it was placed.
    pub(crate) address: Option<u64>,
    /// The offset in the module's file of that address.
    pub(crate) offset: Option<u64>,
}

/// How the sites of a probe fire. A site in two processes counts twice, unless one process was
/// forked from the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteCounts {
    /// Jumps, by the name of the tactic.
    pub jumps: BTreeMap<&'static str, usize>,
    /// Traps, by the reason why they are not jumps.
    pub traps: BTreeMap<String, usize>,
}

impl SiteCounts {
    /// Counts a site that became a jump; `before` is the tactic of its former jump.
    pub(crate) fn jump(&mut self, tactic: &'static str, before: Option<&'static str>) {
        self.no_jump(before);
        *self.jumps.entry(tactic).or_insert(0) += 1;
    }

    /// Counts more sites that are jumps by a tactic.
    pub(crate) fn jumps_more(&mut self, tactic: &'static str, count: usize) {
        *self.jumps.entry(tactic).or_insert(0) += count;
    }

    /// A site is no longer a jump by this tactic.
    fn no_jump(&mut self, before: Option<&'static str>) {
        if let Some(count) = before.and_then(|before| self.jumps.get_mut(before)) {
            *count = count.saturating_sub(1);
            self.jumps.retain(|_, count| *count > 0);
        }
    }

    /// Counts a site that traps; `before` is the tactic of its former jump.
    pub(crate) fn trap(&mut self, reason: &str, before: Option<&'static str>) {
        self.no_jump(before);
        *self.traps.entry(general(reason)).or_insert(0) += 1;
    }
}

/// What a probe's jumps have counted, in all processes together.
#[derive(Debug)]
pub(crate) struct JumpCounters {
    /// Hits: runs, misses and ignored hits.
    pub(crate) hits: Counter,
    /// The words [`MISSED`] to [`OVER`].
    pub(crate) words: Words,
}

/// Index in [`JumpCounters::words`]: hits whose handler could not run.
pub(crate) const MISSED: usize = 0;
/// Index: records that were dropped.
pub(crate) const DROPPED: usize = 1;
/// Index: hits of a probe with `ignore` or `maxhits`.
pub(crate) const LIMITED_HITS: usize = 2;
/// Index: a [`layout::ProbeEnd`]. Its lower half is not 0 once no run may start any more, its upper
/// half once the probe is removed.
pub(crate) const OVER: usize = 3;
/// In the lower half of the word [`OVER`]: no run may start.
const CLOSED: u64 = 1;
/// In its upper half: a handler has removed the probe, or the tracer disarms it.
const BY_HANDLER: u64 = (ProbeEnd::BY_HANDLER as u64) << 32;
const BY_TRACER: u64 = (ProbeEnd::BY_TRACER as u64) << 32;
/// The number of words.
const COUNTED: usize = 4;

impl JumpCounters {
    /// The sum of one kind of word over all domains.
    fn sum(&self, which: usize) -> u64 {
        let mut sum = 0u64;
        self.words.each(which, |_, word| sum = sum.saturating_add(word.load(Ordering::Relaxed)));
        sum
    }

    fn word(&self, which: usize, domain: Domain) -> u64 {
        self.words.with(domain, which, |word| word.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// For a probe with `ignore` or `maxhits`: the ignored hits, and all hits that count. Each
    /// domain has its own limits.
    fn turns(&self, definition: &rpn::Probe) -> (u64, u64) {
        let last = definition.ignore.saturating_add(definition.maxhits);
        let (mut ignored, mut hits) = (0u64, 0u64);
        self.words.each(LIMITED_HITS, |_, word| {
            let turns = word.load(Ordering::Relaxed);
            ignored = ignored.saturating_add(turns.min(definition.ignore));
            hits = hits.saturating_add(turns.min(last));
        });
        (ignored, hits)
    }

    /// Whether the probe is over in a domain.
    pub(crate) fn is_over(&self, domain: Domain) -> bool {
        self.word(OVER, domain) as u32 != 0
    }

    /// The domains in which a handler, not the tracer, has ended the probe.
    pub(crate) fn each_over(&self, mut action: impl FnMut(Domain)) {
        self.words.each(OVER, |domain, word| {
            let word = word.load(Ordering::Relaxed);
            if word as u32 != 0 && (word & BY_HANDLER != 0 || word & BY_TRACER == 0) {
                action(domain);
            }
        });
    }

    /// Whether a handler in a domain has removed the probe.
    pub(crate) fn is_removed_by_handler(&self, domain: Domain) -> bool {
        self.word(OVER, domain) & BY_HANDLER != 0
    }

    /// No run of the handler starts from now on: in one domain, or in all.
    pub(crate) fn close(&self, domain: Option<Domain>) {
        self.end(domain, CLOSED);
    }

    /// As [`JumpCounters::close`]; long runs end soon, too.
    pub(crate) fn take_out(&self, domain: Option<Domain>) {
        self.end(domain, CLOSED | BY_TRACER);
    }

    fn end(&self, only: Option<Domain>, how: u64) {
        self.words.each(OVER, |domain, word| {
            if only.is_none_or(|only| only == domain) {
                word.fetch_or(how, Ordering::Relaxed);
            }
        });
    }

    /// Counts a hit of a probe with `ignore` or `maxhits` in a domain. Returns its number, from 1.
    pub(crate) fn turn(&self, domain: Domain) -> u64 {
        self.words.with(domain, LIMITED_HITS, |word| word.fetch_add(1, Ordering::Relaxed) + 1).unwrap_or(1)
    }

    /// Adds one to a word, on behalf of the tracer.
    pub(crate) fn count(&self, which: usize) {
        self.words.with(Domain::OWN, which, |word| word.fetch_add(1, Ordering::Relaxed));
    }

    /// The hits counted by jumps in a domain.
    pub(crate) fn hits_of(&self, definition: &rpn::Probe, domain: Domain) -> u64 {
        let last = definition.ignore.saturating_add(definition.maxhits);
        if has_limits(definition) {
            self.word(LIMITED_HITS, domain).min(last)
        } else {
            self.hits.value_of(domain)
        }
    }
}

impl Probe {
    /// The counters of its jumps; `None` if there is no room for counters.
    pub(crate) fn counted(&mut self, cells: &mut Cells) -> Option<&JumpCounters> {
        if self.counted.is_none() {
            self.counted = Some(JumpCounters { hits: cells.counter(None)?, words: cells.words(COUNTED)? });
        }
        self.counted.as_ref()
    }

    /// Whether it is over for the processes of a domain.
    pub(crate) fn is_over_in(&self, domain: Domain) -> bool {
        self.state.is_over() || self.ended.contains_key(&domain)
    }

    /// Its state. It is over once it is over in all domains in which it was placed.
    pub(crate) fn state(&self) -> State {
        let last = self.ended.last_key_value().map(|(_, state)| *state);
        let is_over = self.placed.iter().all(|domain| self.ended.contains_key(domain));
        if self.state.is_over() { self.state } else { last.filter(|_| is_over).unwrap_or(self.state) }
    }

    /// Handles the end of a domain, of which no process is left: keeps its counts.
    pub(crate) fn leave(&mut self, definition: &rpn::Probe, domain: Domain) {
        if let Some(counted) = &self.counted {
            let turns =
                counted.words.with(domain, LIMITED_HITS, |word| word.swap(0, Ordering::Relaxed)).unwrap_or(0);
            let last = definition.ignore.saturating_add(definition.maxhits);
            self.left.0 = self.left.0.saturating_add(turns.min(definition.ignore));
            self.left.1 = self.left.1.saturating_add(turns.min(last));
            counted.words.with(domain, OVER, |word| word.store(0, Ordering::Relaxed));
        }
        self.ended.remove(&domain);
        self.placed.remove(&domain);
    }

    /// All counts so far. `definition` is the probe; `site_hits` are the hits by jumps, if it may have
    /// many sites.
    fn counts(&self, definition: &rpn::Probe, places: Option<u64>) -> Counts {
        let mut counts = self.counts;
        if let Some(counted) = &self.counted {
            if has_limits(definition) {
                // Hits by jumps and traps are numbered in one sequence. Those after the last
                // allowed one do not count.
                let (ignored, hits) = counted.turns(definition);
                counts.ignored = self.left.0.saturating_add(ignored);
                counts.hits = self.left.1.saturating_add(hits);
            } else {
                counts.hits = counts.hits.saturating_add(places.unwrap_or_else(|| counted.hits.value()));
            }
            // The counts of processes are untrusted input. Whatever they are,
            // `hits = runs + ignored + missed` holds.
            let due = counts.hits.saturating_sub(counts.ignored);
            counts.missed = counts.missed.saturating_add(counted.sum(MISSED)).min(due);
            counts.runs = due - counts.missed;
            counts.dropped = counts.dropped.saturating_add(counted.sum(DROPPED));
        }
        counts
    }

    /// Notes that a site of it traps, and why; `before` is the tactic of its former jump.
    pub(crate) fn trapped(&mut self, reason: &str, before: Option<&'static str>) {
        self.why_trapped.get_or_insert_with(|| reason.to_owned());
        self.sites.trap(reason, before);
    }

    /// Records that were dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.counts.dropped.saturating_add(self.counted.as_ref().map_or(0, |counted| counted.sum(DROPPED)))
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

/// The state of a probepoint.
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

/// What has been counted at a probepoint. `hits = runs + ignored + missed`; of the runs that ended
/// with a record, `logged` records were written and `dropped` were not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times the probepoint was reached.
    pub hits: u64,
    /// Times its handler ran.
    pub runs: u64,
    /// Hits passed over by `ignore`.
    pub ignored: u64,
    /// Hits whose handler could not run.
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
            removes: vm::may(&object.code, object.word(), Effects::REMOVES),
            calls: vm::may(&object.code, object.word(), Effects::CALLS_FACILITY),
            calls_plugins: vm::may(&object.code, object.word(), Effects::CALLS_PLUGINS),
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

    /// For each probe with points of functions: where it was placed, and the hits there.
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

    /// The counts of one of its probes so far.
    pub(crate) fn counts(&self, probe: usize) -> Counts {
        match (self.probes.get(probe), self.versions.main().probes.get(probe)) {
            (Some(state), Some(definition)) => {
                let is_points = matches!(definition.location, Location::Points { .. });
                let places = is_points.then(|| self.places.borrow().jump_hits(probe));
                state.counts(definition, places)
            }
            _ => Counts::default(),
        }
    }

    /// For each of its probes: the hits counted by jumps in a domain.
    pub(crate) fn hits_of(&self, domain: Domain) -> Vec<u64> {
        let places = self.places.borrow();
        let of = |(number, definition): (usize, &rpn::Probe)| {
            if matches!(definition.location, Location::Points { .. }) && !has_limits(definition) {
                return places.jump_hits_of(number, domain);
            }
            let counted = self.probes[number].counted.as_ref();
            counted.map_or(0, |counted| counted.hits_of(definition, domain))
        };
        self.versions.main().probes.iter().enumerate().map(of).collect()
    }

    /// The current values of its local variables: in a domain, or summed over all.
    pub(crate) fn values(&self, domain: Option<Domain>) -> Vec<u64> {
        let word = self.versions.widest_word();
        let value = |number: usize| match (self.counted(number), domain) {
            (Some(counter), None) => counter.value(),
            (Some(counter), Some(domain)) => counter.value_of(domain),
            (None, _) => self.locals.value(number, domain),
        };
        (0..self.locals.len()).map(|number| word.truncate(value(number))).collect()
    }

    /// Sets a local variable to zero.
    pub(crate) fn reset(&self, number: usize) {
        match self.counted(number) {
            Some(counter) => counter.reset(),
            None => self.locals.reset(number),
        }
    }
}

#[cfg(test)]
mod tests;
