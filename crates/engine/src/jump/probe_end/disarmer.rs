//! Removes the probes that have ended in the processes of their domain.

use std::collections::{BTreeMap, HashSet};

use super::super::cells::Domain;
use crate::counts::State;
use crate::retire::Disarmer;
use crate::site_use::Use;

impl Disarmer<'_, '_> {
    /// Removes probes that handlers have ended, each in the domain where that happened: a process
    /// cannot end anything in another domain.
    pub(crate) fn look_for_over(&mut self) {
        let mut over: BTreeMap<Domain, Vec<(usize, usize)>> = BTreeMap::new();
        for &(program, number) in &self.sharing.mortal {
            let probe = &self.programs[program].probes[number];
            let Some(counted) = probe.counted.as_ref().filter(|_| !probe.state.is_over()) else { continue };
            counted.each_over(|domain| {
                if !probe.ended.contains_key(&domain) {
                    over.entry(domain).or_default().push((program, number));
                }
            });
        }
        for (domain, ended) in over {
            ended.iter().for_each(|&(program, probe)| self.note_over(program, probe, domain));
            let uses = ended.into_iter().map(|(program, probe)| Use::Probe { program, probe });
            self.retire(&uses.collect::<HashSet<Use>>(), Some(domain));
        }
    }

    /// Records why a probe is over in a domain.
    fn note_over(&mut self, program: usize, probe: usize, domain: Domain) {
        let probe = &mut self.programs[program].probes[probe];
        let removed = probe.counted.as_ref().is_some_and(|counted| counted.is_removed_by_handler(domain));
        probe.ended.insert(domain, if removed { State::Removed } else { State::Disabled });
    }
}
