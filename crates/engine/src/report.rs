//! What a session has counted.

use std::rc::Rc;

use crate::hold::HoldTimes;
use crate::jump::{Domain, Trust};
use crate::places::PlaceReport;
use crate::program::{Counts, Probe, Program, SiteCounts, State};
use crate::tracer::Tracer;

/// The counts and variables at the end of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One line for each probepoint, in the order of the programs.
    pub probes: Vec<ProbeReport>,
    /// The local variables, program after program.
    pub locals: Vec<u64>,
    /// The global variables.
    pub globals: Vec<u64>,
    /// How long processes were held while jumps were put in and taken out.
    pub holds: HoldTimes,
    /// What each of several users' processes has counted; empty where all are of one.
    pub users: Vec<OfUser>,
    /// How often a ring was emptied since its process had written there what no handler writes.
    pub nonsense: u64,
    /// How often a module was armed in a process as it had been in another one, without its being planned anew.
    pub copied: u64,
}

/// What the processes of one trust domain have counted by jumps, and the values of their variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfUser {
    /// Who they are.
    pub name: String,
    /// Hits by jumps, a number for each probe, program after program.
    pub hits: Vec<u64>,
    /// The local variables, program after program.
    pub locals: Vec<u64>,
    /// The global variables.
    pub globals: Vec<u64>,
}

/// What was counted at one probepoint, in all processes together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeReport {
    /// The module, as the program names it.
    pub module: String,
    /// The probepoint, as the program writes it.
    pub point: String,
    /// Where it was placed first.
    pub address: Option<u64>,
    /// Its major code.
    pub major: u32,
    /// Its minor code.
    pub minor: u32,
    /// The engine that served it: `jump`, `trap`, or `jump+trap` where one site of it was the one and one the other.
    pub engine: &'static str,
    /// How its jump was made to fit, where it has one.
    pub tactic: Option<&'static str>,
    /// Why a site of it traps, where a jump was thought of.
    pub why_trapped: Option<String>,
    /// How many of its sites fire how, and why.
    pub sites: SiteCounts,
    /// Its counts.
    pub counts: Counts,
    /// What became of it.
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

    /// What each of several users' processes has counted at the probes of these programs, by number; nothing where all are of one.
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

    /// Tells the counts so far, if they are wanted.
    pub(crate) fn tell_counts(&mut self) {
        if self.observer.wants_counts() {
            let report = self.report(&self.states());
            self.observer.counted(&report);
        }
    }

    /// The counts so far, with the probes' states given by program and probe.
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
