//! A summary of a store.

use super::block::{Header, Kind};
use super::facts::{
    About, Counts, Fact, Gap, Loss, Module, Note, Probe, Program, Site, Source, Template, Thread, Variables,
};
use super::index::Index;

/// The approximate greatest memory of the facts, in bytes. Further facts are counted and dropped.
const MAX_MEMORY: usize = 64 << 20;

/// How long before a loss was noticed its records may have been lost, in nanoseconds. The writer
/// checks its counts every second.
const KNOWN_WITHIN: u64 = 2_000_000_000;

/// A summary of a store: its facts, and sums over its records. It has this many fields since
/// each kind of fact that a store has is one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// Where and how the trace was made; all empty if this fact was lost.
    pub about: About,
    /// The programs.
    pub programs: Vec<Program>,
    /// The probepoints.
    pub probes: Vec<Probe>,
    /// The files that were probed.
    pub modules: Vec<Module>,
    /// The instructions that were probed.
    pub sites: Vec<Site>,
    /// The threads that have logged, once for each name, in the order of the file.
    pub threads: Vec<Thread>,
    /// The losses.
    pub losses: Vec<Loss>,
    /// The time spans with losses that the store names; [`Info::gaps`] adds others.
    pub gaps_told: Vec<Gap>,
    /// The final counts; empty without a clean end.
    pub counts: Vec<Counts>,
    /// The final values of variables; empty without a clean end.
    pub variables: Vec<Variables>,
    /// The messages to the user.
    pub notes: Vec<Note>,
    /// The templates.
    pub templates: Vec<Template>,
    /// The source lines of sites; empty without a clean end.
    pub sources: Vec<Source>,
    /// The number of records in the file.
    pub records: u64,
    /// The least and the greatest time of a record, in nanoseconds since 1970; none without
    /// records.
    pub times: Option<(u64, u64)>,
    /// The greatest step back in time: by how much a record may be older than one before it, in
    /// nanoseconds. To sort records by time, a reader must buffer those of such a time span.
    pub disorder: u64,
    /// Whether the trace ended cleanly.
    pub complete: bool,
    /// How many facts were dropped for lack of memory.
    pub omitted: u64,
    /// The approximate memory of the facts, in bytes.
    pub(super) memory: usize,
}

impl Info {
    /// How many records were dropped in all, as far as is known.
    pub fn dropped(&self) -> u64 {
        let counted: u64 = self.counts.iter().fold(0, |sum, counts| sum.saturating_add(counts.dropped));
        let told: u64 = self.losses.iter().fold(0, |sum, loss| sum.saturating_add(loss.dropped));
        counted.max(told)
    }

    /// The time spans in which records were lost, ordered by their ends. If the store does not name
    /// them for all losses (version 1 does not), each loss of a probe adds the whole span in which
    /// it may have happened.
    pub fn gaps(&self) -> Vec<Gap> {
        let told: u64 = self.gaps_told.iter().fold(0, |sum, gap| sum.saturating_add(gap.dropped));
        let mut gaps = self.gaps_told.clone();
        if told < self.dropped() {
            // The losses include these records.
            gaps.iter_mut().for_each(|gap| gap.dropped = 0);
            gaps.extend(self.losses.iter().filter(|loss| loss.dropped > 0).map(|loss| Gap {
                from: loss.time.saturating_sub(KNOWN_WITHIN),
                to: loss.time,
                pid: 0,
                dropped: loss.dropped,
            }));
        }
        gaps.sort_by_key(|gap| (gap.to, gap.from));
        gaps
    }

    /// Adds a fact.
    pub(super) fn take(&mut self, fact: Fact) {
        let memory = self.memory.saturating_add(fact.memory());
        if memory > MAX_MEMORY {
            self.omitted += 1;
            return;
        }
        self.memory = memory;
        match fact {
            Fact::About(about) => self.about = about,
            Fact::Program(program) => self.programs.push(program),
            Fact::Probe(probe) => self.probes.push(probe),
            Fact::Module(module) => self.modules.push(module),
            Fact::Site(site) => self.sites.push(site),
            Fact::Thread(thread) => self.threads.push(thread),
            Fact::Loss(loss) => self.losses.push(loss),
            Fact::Counts(counts) => self.counts.push(counts),
            Fact::Variables(variables) => self.variables.push(variables),
            Fact::Note(note) => self.notes.push(note),
            Fact::Template(template) => self.templates.push(template),
            Fact::Gap(gap) => self.gaps_told.push(gap),
            Fact::Source(source) => self.sources.push(source),
        }
    }

    /// Adds the counts of a block, from its header.
    pub(super) fn count(&mut self, header: &Header) {
        self.disorder = self.disorder.max(header.disorder);
        if header.kind == Kind::Records {
            self.add(header.records.into(), header.least, header.greatest);
        }
    }

    /// Adds the counts of an index.
    pub(super) fn count_all(&mut self, index: &Index) {
        index.runs.iter().for_each(|run| self.add(run.records, run.least, run.greatest));
    }

    fn add(&mut self, records: u64, least: u64, greatest: u64) {
        self.records = self.records.saturating_add(records);
        let (before, after) = self.times.unwrap_or((least, greatest));
        self.times = Some((before.min(least), after.max(greatest)));
    }
}
