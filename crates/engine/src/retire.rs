//! Disarms probes that are over.

use std::collections::HashSet;

use crate::cache::Cache;
use crate::counts::State;
use crate::followed::Followed;
use crate::jump::Domain;
use crate::messages::Messages;
use crate::program::Probe;
use crate::programs::Programs;
use crate::sharing::Sharing;
use crate::site_use::Use;
use crate::space::Space;

/// Disarms probes that are over.
pub(crate) struct Disarmer<'t, 'a> {
    pub(crate) programs: &'t mut Programs,
    pub(crate) followed: &'t mut Followed,
    pub(crate) sharing: &'t mut Sharing,
    pub(crate) cache: &'t mut Cache,
    pub(crate) messages: &'t mut Messages<'a>,
}

impl Disarmer<'_, '_> {
    /// Disarms probes that are over, in all processes or in those of one domain. Each process is
    /// held once, however many probes there are.
    pub(crate) fn retire(&mut self, over: &HashSet<Use>, only: Option<Domain>) {
        if over.is_empty() {
            return;
        }
        for wanted in over {
            if let Use::Probe { program, probe } = *wanted
                && let Probe { state, ended, counted: Some(counted), .. } =
                    &self.programs[program].probes[probe]
            {
                let state = only.and_then(|domain| ended.get(&domain)).unwrap_or(state);
                // No handler of the probe starts from now on, even where a jump still leads to one.
                // The last run due to `maxhits` may complete.
                if *state == State::Disabled { counted.close(only) } else { counted.take_out(only) }
            }
        }
        let programs: HashSet<usize> = over.iter().filter_map(Use::program).collect();
        programs.into_iter().for_each(|program| self.cache.armings.forget_armings(self.programs, program));
        let mut disarmed = Vec::new();
        let mut jumps = Vec::new();
        let concerned = |space: &Space| only.is_none_or(|only| space.trust.domain == only);
        for (&number, space) in self.followed.spaces.iter_mut().filter(|(_, space)| concerned(space)) {
            // A plan for the space may contain this probe.
            space.modules.foreseen = None;
            space.changed();
            let mut empty = Vec::new();
            let planned = !space.plans.planners.is_empty();
            space.sites.make_own(|copied| over.iter().any(|wanted| wanted.is_of(copied.program())));
            for (&address, armed) in space.sites.own_mut() {
                let is_jump = planned || armed.jump().is_some();
                let uses = armed.uses_mut();
                uses.retain(|other| !over.contains(other));
                if uses.is_empty() {
                    let list = if is_jump { &mut jumps } else { &mut empty };
                    list.push((number, address));
                }
            }
            let lending = space.blocks_for_nobody().into_iter().map(|address| (number, address));
            let list = if planned { &mut jumps } else { &mut empty };
            list.extend(lending);
            for &(_, address) in &empty {
                space.disarm(address);
            }
            disarmed.extend(empty);
        }
        for of_space in jumps.chunk_by(|one, other| one.0 == other.0) {
            let addresses: Vec<u64> = of_space.iter().map(|&(_, address)| address).collect();
            self.followed.take_out_jumps(of_space[0].0, &addresses);
        }
        // Threads that a signal kept from executing the instruction will execute it at its own
        // address.
        let mut records = Vec::new();
        for (&number, space) in self.followed.spaces.iter_mut() {
            let gone = space.interrupted.of_sites(|site| disarmed.contains(&(number, site)));
            records.extend(gone.into_iter().flat_map(|waiting| waiting.records));
        }
        self.messages.commit(self.programs, records);
    }
}
