//! Disarms probes that are over.

use std::collections::HashSet;

use image::Pattern;
use rpn::Location;

use crate::cache::Cache;
use crate::counts::State;
use crate::followed::Followed;
use crate::jump::Domain;
use crate::messages::Messages;
use crate::module_key::ModuleKey;
use crate::program::{Engine, Probe, Program};
use crate::programs::Programs;
use crate::sharing::Sharing;
use crate::site_use::Use;
use crate::space::Space;

/// A site in one of the spaces that have it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trap {
    pub(crate) address: u64,
    pub(crate) module: ModuleKey,
}

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
        self.close(over, only);
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
        self.forget_interrupted(&disarmed);
    }

    /// As [`Disarmer::retire`], for probes of a site that is a trap, whatever the number of sites:
    /// with ten thousands of probes that end at their first hit, each such end must not go through
    /// all of them. Returns false, with nothing done, unless this is their only site in a module.
    pub(crate) fn retire_trap(&mut self, over: &HashSet<Use>, here: Trap, only: Domain) -> bool {
        let is_simple = |wanted: &Use| {
            let Use::Probe { program: number, probe } = *wanted else { return false };
            let Program { options, versions, .. } = &self.programs[number];
            let definition = versions.main().probes.get(probe);
            options.engine == Engine::Trap
                && !Pattern::is_one(&versions.main().module)
                && definition.is_some_and(|it| !matches!(it.location, Location::Points { .. }))
        };
        let has_planners = |space: &Space| !space.plans.planners.is_empty();
        let mut spaces = self.followed.spaces.values().filter(|space| space.trust.domain == only);
        if !over.iter().all(is_simple) || spaces.any(has_planners) {
            return false;
        }
        self.close(over, Some(only));
        let mut disarmed = Vec::new();
        let (device, inode, bias) = here.module;
        for (&number, space) in self.followed.spaces.iter_mut() {
            if space.trust.domain != only {
                continue;
            }
            space.modules.foreseen = None;
            let of_file = |module: &ModuleKey| (module.0, module.1) == (device, inode);
            let there: HashSet<u64> = space
                .modules
                .placed
                .iter()
                .filter(|(_, module)| of_file(module))
                .map(|(_, module)| module.2)
                .collect();
            for other in there {
                let address = here.address.wrapping_sub(bias).wrapping_add(other);
                let Some(armed) = space.sites.get_mut(&address) else { continue };
                armed.uses_mut().retain(|wanted| !over.contains(wanted));
                if armed.site().uses.is_empty() {
                    space.disarm(address);
                    disarmed.push((number, address));
                }
            }
            // Looks no further than the first probe.
            if !space.modules.blocking.is_empty() && !space.sites.any_is_probed() {
                for address in space.blocks_for_nobody() {
                    space.disarm(address);
                    disarmed.push((number, address));
                }
            }
        }
        self.forget_interrupted(&disarmed);
        true
    }

    /// No handler of these probes starts from now on, even where a jump still leads to one. The
    /// last run due to `maxhits` may complete.
    fn close(&mut self, over: &HashSet<Use>, only: Option<Domain>) {
        for wanted in over {
            if let Use::Probe { program, probe } = *wanted
                && let Probe { state, ended, counted: Some(counted), .. } =
                    &self.programs[program].probes[probe]
            {
                let state = only.and_then(|domain| ended.get(&domain)).unwrap_or(state);
                if *state == State::Disabled { counted.close(only) } else { counted.take_out(only) }
            }
        }
    }

    /// Threads that a signal kept from executing the instruction of a site will execute it at its
    /// own address.
    fn forget_interrupted(&mut self, disarmed: &[(u32, u64)]) {
        let mut records = Vec::new();
        for (&number, space) in self.followed.spaces.iter_mut() {
            let gone = space.interrupted.of_sites(|site| disarmed.contains(&(number, site)));
            records.extend(gone.into_iter().flat_map(|waiting| waiting.records));
        }
        self.messages.commit(self.programs, records);
    }
}
