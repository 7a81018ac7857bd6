//! A program in use: its variables, and the state of each of its probepoints.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use image::Image;
use rpn::Location;
use trace::Items;
use vm::{Effects, Op};

use crate::counts::{Counts, SiteCounts, State};
use crate::jump::{Cells, Counter, Domain};
use crate::jump_counters::{COUNTED, DROPPED, JumpCounters, LIMITED_HITS, MISSED, OVER};
use crate::reason::NoJump;
use crate::site_hits::{ManySites, PlaceReport};
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
    /// How many core dumps (`exit 3`) each of its probes may write.
    pub max_dumps: u32,
    /// The file with the symbols, if it is not the module itself: a debug file, or the unstripped
    /// module. It must be of the same build.
    pub symbols: Option<Arc<Image>>,
    /// The maps and constants that it uses, by the number from
    /// [`Tracer::add_tables`](crate::Tracer::add_tables).
    pub tables: Option<usize>,
    /// Counters in the data of its module, by their addresses in the file: two bytes each. They are
    /// counted up while its probes are in a process, since the module's static probes are skipped
    /// otherwise.
    pub semaphores: Vec<u64>,
    /// Whether probes that cannot be placed are left out silently. Otherwise they are refused: if
    /// there are any in the first process, nothing is probed.
    pub lenient: bool,
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
    /// For each probe, whether its handler sends signals, or has its function return.
    pub(crate) acts: Vec<bool>,
    /// Whether its code contains `callk`, which calls plugins in the tracer's process.
    pub(crate) calls_plugins: bool,
    /// Whether its code takes stacks of threads.
    pub(crate) takes_stacks: bool,
    pub(crate) probes: Vec<Probe>,
    /// The sites of probes that have many. They are noted during planning, which has only a shared
    /// reference.
    pub(crate) places: RefCell<ManySites>,
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
    pub(crate) why_trapped: Option<NoJump>,
    /// The same for all its sites.
    pub(crate) sites: SiteCounts,
    /// The first address where it was placed.
    pub(crate) address: Option<u64>,
    /// The offset in the module's file of that address.
    pub(crate) offset: Option<u64>,
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
    pub(crate) fn end_domain(&mut self, definition: &rpn::Probe, domain: Domain) {
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

    /// All counts so far. `definition` is the probe; `site_hits` are the hits by jumps, if it may
    /// have many sites.
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
    pub(crate) fn trapped(&mut self, reason: &NoJump, before: Option<&'static str>) {
        self.why_trapped.get_or_insert_with(|| reason.clone());
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
            acts: object
                .probes
                .iter()
                .map(|probe| reaches(&object.code, probe.entry, object.word(), Effects::ACTS))
                .collect(),
            calls_plugins: vm::may(&object.code, object.word(), Effects::CALLS_PLUGINS),
            takes_stacks: vm::instructions(&object.code, object.word())
                .any(|it| it.instruction().is_none_or(|instruction| instruction.op == Op::StackOf)),
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

/// Whether a run that begins at an offset may reach an instruction with one of these effects.
fn reaches(code: &[u8], entry: usize, word: vm::Word, effects: Effects) -> bool {
    let mut seen = HashSet::new();
    let mut places = vec![entry];
    while let Some(offset) = places.pop() {
        let Some(instruction) = vm::Instruction::at(code, offset, word).filter(|_| seen.insert(offset))
        else {
            continue;
        };
        if instruction.effects().intersects(effects) {
            return true;
        }
        let transfer = instruction.row().transfer;
        if transfer.falls_through() || transfer == vm::ControlFlow::Call {
            places.push(instruction.next);
        }
        places.extend(instruction.target(code));
    }
    false
}

/// Whether hits of a probe must be counted one by one, because `ignore` or `maxhits` is set. The
/// greatest `maxhits` means no limit.
pub fn has_limits(definition: &rpn::Probe) -> bool {
    const UNLIMITED: u64 = 0x7fff_ffff;
    definition.ignore > 0 || definition.maxhits < UNLIMITED
}

#[cfg(test)]
mod tests;
