//! The counts and variables that a session reports.

use std::rc::Rc;

use crate::hold::HoldTimes;
use crate::jump::{Domain, Trust};
use crate::program::{Counts, Probe, Program, SiteCounts, State};
use crate::site_hits::PlaceReport;
use crate::tracer::Tracer;

/// The counts and variables at the end of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One entry for each probepoint, in the order of the programs.
    pub probes: Vec<ProbeReport>,
    /// The local variables, program after program.
    pub locals: Vec<u64>,
    /// The global variables.
    pub globals: Vec<u64>,
    /// How long processes were held to arm and disarm jumps.
    pub holds: HoldTimes,
    /// The counts of each user's processes; empty if all are of one domain.
    pub users: Vec<OfUser>,
    /// How often a ring was emptied because its process had written something that no handler
    /// writes.
    pub nonsense: u64,
    /// How often an arming was copied from another process, without planning it anew.
    pub copied: u64,
}

/// What the processes of one trust domain have counted by jumps, and the values of their variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfUser {
    /// The name of the domain.
    pub name: String,
    /// Hits by jumps, one number for each probe, program after program.
    pub hits: Vec<u64>,
    /// The local variables, program after program.
    pub locals: Vec<u64>,
    /// The global variables.
    pub globals: Vec<u64>,
}

/// The counts of one probepoint, in all processes together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeReport {
    /// The module, as the program names it.
    pub module: String,
    /// The probepoint, as the program writes it.
    pub point: String,
    /// The first address where it was placed.
    pub address: Option<u64>,
    /// Its major code.
    pub major: u32,
    /// Its minor code.
    pub minor: u32,
    /// The engine of its sites: `jump`, `trap`, or `jump+trap` if it has both.
    pub engine: &'static str,
    /// The tactic of its jump, if it has one.
    pub tactic: Option<&'static str>,
    /// Why a site of it traps, if a jump was tried.
    pub why_trapped: Option<String>,
    /// How its sites fire: how many, and why.
    pub sites: SiteCounts,
    /// Its counts.
    pub counts: Counts,
    /// Its state.
    pub state: State,
    /// For points of functions: where it was placed, and the hits there, the most hits first.
    pub places: Option<Vec<PlaceReport>>,
}

impl Tracer<'_> {
    /// The states of the probes, by program and probe.
    pub(crate) fn states(&self) -> Vec<Vec<State>> {
        let of = |program: &Program| program.probes.iter().map(Probe::state).collect();
        self.programs.values().map(of).collect()
    }

    /// The counts of each domain's processes at the probes of these programs; empty if there is
    /// only one domain.
    pub(crate) fn of_users(&self, programs: &[usize]) -> Vec<OfUser> {
        let domains =
            self.sharing.cells.as_ref().map(|cells| cells.domains()).filter(|domains| domains.len() > 1);
        let programs = || programs.iter().filter_map(|&number| self.programs.get(number));
        let of = |(domain, trust): &(Domain, Rc<Trust>)| OfUser {
            name: trust.name(),
            hits: programs().flat_map(|program| program.hits_of(*domain)).collect(),
            locals: programs().flat_map(|program| program.values(Some(*domain))).collect(),
            globals: self.sharing.globals.values(Some(*domain)),
        };
        domains.into_iter().flatten().map(of).collect()
    }

    /// Reports the counts so far, if they are wanted.
    pub(crate) fn tell_counts(&mut self) {
        if self.observer.wants_counts() {
            let report = self.report(&self.states());
            self.observer.counted(&report);
        }
    }

    /// The counts so far, with the given states of the probes, by program and probe.
    pub(crate) fn report(&self, states: &[Vec<State>]) -> Report {
        let mut report = Report::default();
        for ((of, program), states) in self.programs.iter().zip(states) {
            let object = program.versions.main();
            let mut places = program.places().into_iter();
            for (number, &state) in states.iter().enumerate() {
                let (probe, definition) = (&program.probes[number], &object.probes[number]);
                report.probes.push(ProbeReport {
                    module: object.module.clone(),
                    point: definition.point.clone(),
                    address: probe.address,
                    major: object.major,
                    minor: definition.minor,
                    engine: probe.engine(),
                    tactic: probe.tactic,
                    why_trapped: probe.why_trapped.clone(),
                    sites: self.cache.armings.with_copies(of, number, probe.sites.clone()),
                    counts: program.counts(number),
                    state,
                    places: places.next().flatten(),
                });
            }
            report.locals.extend(program.values(None));
        }
        report.holds = self.holds.times();
        report.nonsense = self.reader.drain.nonsense();
        report.copied = self.cache.armings.copied;
        report.globals = self.sharing.globals.values(None);
        report.users = self.of_users(self.programs.numbers());
        report
    }
}
