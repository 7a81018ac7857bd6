//! Makes the report of all programs.

use std::rc::Rc;

use super::{OfUser, ProbeReport, Report};
use crate::cache::Cache;
use crate::counts::State;
use crate::followed::Followed;
use crate::jump::{Domain, Trust};
use crate::programs::Programs;
use crate::reader::Reader;
use crate::reason::NoJump;
use crate::sharing::Sharing;

/// What a report is made from.
pub(crate) struct ReportSources<'t> {
    pub(crate) programs: &'t Programs,
    pub(crate) followed: &'t Followed,
    pub(crate) sharing: &'t Sharing,
    pub(crate) reader: &'t Reader,
    pub(crate) cache: &'t Cache,
}

impl ReportSources<'_> {
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
                    why_trapped: probe.why_trapped.as_ref().map(NoJump::to_string),
                    sites: self.cache.armings.with_copies(of, number, probe.sites.clone()),
                    counts: program.counts(number),
                    state,
                    places: places.next().flatten(),
                });
            }
            report.locals.extend(program.values(None));
        }
        report.holds = self.followed.holds.times();
        report.nonsense = self.reader.drain.nonsense();
        report.copied = self.cache.armings.copied;
        report.globals = self.sharing.globals.values(None);
        report.users = self.of_users(self.programs.numbers());
        report
    }
}
