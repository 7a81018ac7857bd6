//! What is known of a store as a whole.

use super::block::{Header, Kind};
use super::facts::{
    About, Counts, Fact, Gap, Loss, Module, Note, Probe, Program, Site, Source, Template, Thread, Variables,
};
use super::index::Index;

/// Bytes of memory that facts take, about and at most. What is beyond is counted and passed over.
const MOST_MEMORY: usize = 64 << 20;

/// How long before it was noted a record may have been lost, in nanoseconds: the writer looks at its counts every second.
const KNOWN_WITHIN: u64 = 2_000_000_000;

/// What is known of a store: its facts, and sums over its records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// Where and how the trace was made; all empty if that was lost.
    pub about: About,
    /// The programs.
    pub programs: Vec<Program>,
    /// The probepoints.
    pub probes: Vec<Probe>,
    /// The files that probes were placed in.
    pub modules: Vec<Module>,
    /// The instructions that were probed.
    pub sites: Vec<Site>,
    /// The threads that have logged, each once for each name that it had, the newest last.
    pub threads: Vec<Thread>,
    /// The losses as they were told.
    pub losses: Vec<Loss>,
    /// Between which moments records were lost. [`Info::gaps`] knows more.
    pub gaps_told: Vec<Gap>,
    /// What was counted; empty unless the trace came to a clean end.
    pub counts: Vec<Counts>,
    /// The variables; empty unless the trace came to a clean end.
    pub variables: Vec<Variables>,
    /// The messages to the user.
    pub notes: Vec<Note>,
    /// How records are shown.
    pub templates: Vec<Template>,
    /// The lines of sources that sites are of; empty unless the trace came to a clean end.
    pub sources: Vec<Source>,
    /// Records in the file.
    pub records: u64,
    /// The least and the greatest time of a record, in nanoseconds since 1970; none if there is no record.
    pub times: Option<(u64, u64)>,
    /// How far a record's time may be before that of one that stands before it, in nanoseconds. Whoever wants records in the
    /// order of time has to keep as many as come in this time.
    pub disorder: u64,
    /// Whether the trace came to a clean end.
    pub complete: bool,
    /// Facts that were passed over, because they are more than can be kept.
    pub omitted: u64,
    /// About how much memory the facts take.
    pub(super) memory: usize,
}

impl Info {
    /// Records that were dropped, all in all, as far as it is known.
    pub fn dropped(&self) -> u64 {
        let counted: u64 = self.counts.iter().fold(0, |sum, counts| sum.saturating_add(counts.dropped));
        let told: u64 = self.losses.iter().fold(0, |sum, loss| sum.saturating_add(loss.dropped));
        counted.max(told)
    }

    /// Between which moments records were lost, in the order in which these times end. Where not all that were lost have such a time, as in a
    /// store of version 1, it is all the time before the loss of a probe was known in which it may have been.
    pub fn gaps(&self) -> Vec<Gap> {
        let told: u64 = self.gaps_told.iter().fold(0, |sum, gap| sum.saturating_add(gap.dropped));
        let mut gaps = self.gaps_told.clone();
        if told < self.dropped() {
            // These are among the others.
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

    /// Takes a fact.
    pub(super) fn take(&mut self, fact: Fact) {
        let memory = self.memory.saturating_add(fact.memory());
        if memory > MOST_MEMORY {
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

    /// Counts a block of which the header was read.
    pub(super) fn count(&mut self, header: &Header) {
        self.disorder = self.disorder.max(header.disorder);
        if header.kind == Kind::Records {
            self.add(header.records.into(), header.least, header.greatest);
        }
    }

    /// Counts what an index lists.
    pub(super) fn count_all(&mut self, index: &Index) {
        index.runs.iter().for_each(|run| self.add(run.records, run.least, run.greatest));
    }

    fn add(&mut self, records: u64, least: u64, greatest: u64) {
        self.records = self.records.saturating_add(records);
        let (before, after) = self.times.unwrap_or((least, greatest));
        self.times = Some((before.min(least), after.max(greatest)));
    }
}
