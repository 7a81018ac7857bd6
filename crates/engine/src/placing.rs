//! Places the probes of one module: as jumps where possible, else as traps.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use process::Module;

use crate::counts::State;
use crate::jump::{Copied, Domain, Draft};
use crate::placed_report::{About, probes_of};
use crate::program::Engine;
use crate::programs::Programs;
use crate::reason::NoJump;
use crate::site::Planned;
use crate::site_plans::{Checks, Plan};
use crate::site_use::Use;

pub(crate) mod placer;

/// What to arm in one module.
pub(crate) struct Work {
    pub(crate) module: Module,
    pub(crate) program: Option<usize>,
    pub(crate) plan: Plan,
    /// The draft, if it was made before.
    pub(crate) draft: Option<Box<Draft>>,
    /// Armings of the module in other processes, and the checks for planning if none of them can be
    /// copied.
    pub(crate) copies: Vec<Copied>,
    pub(crate) checks: Option<Checks>,
    /// The number of planned sites, and their probes.
    pub(crate) count: usize,
    pub(crate) probes: Vec<About>,
}

impl Work {
    pub(crate) fn new(module: &Module, program: Option<usize>, plan: Plan) -> Work {
        let (count, probes) = (plan.planned.len(), probes_of(&plan.planned));
        Work {
            module: module.clone(),
            program,
            plan,
            draft: None,
            copies: Vec::new(),
            checks: None,
            count,
            probes,
        }
    }
}

/// Adds uses to those of a site, each once. `Neighbour` stays only if there is no other use.
fn add_uses(there: &mut Vec<Use>, new: Vec<Use>) {
    for wanted in new {
        if !there.contains(&wanted) {
            there.push(wanted);
        }
    }
    if there.iter().any(|wanted| *wanted != Use::Neighbour) {
        there.retain(|wanted| *wanted != Use::Neighbour);
    }
}

/// Merges sites with the same address, with all their uses.
pub(crate) fn join(planned: Vec<Planned>) -> Vec<Planned> {
    let mut joined: Vec<Planned> = Vec::with_capacity(planned.len());
    let mut places: HashMap<u64, usize> = HashMap::new();
    for site in planned {
        match places.entry(site.0.address) {
            Entry::Occupied(place) => joined[*place.get()].0.uses.extend(site.0.uses),
            Entry::Vacant(place) => {
                place.insert(joined.len());
                joined.push(site);
            }
        }
    }
    joined
}

/// Notes the offsets in the module's file of probes that are about to be placed.
pub(crate) fn note_offsets(programs: &mut Programs, module: &Module, planned: &[Planned]) {
    for Planned(site) in planned {
        let offset = module.image.offset_of_address(site.address.wrapping_sub(module.bias));
        for wanted in &site.uses {
            if let Use::Probe { program, probe } = *wanted {
                let probe = &mut programs[program].probes[probe];
                probe.offset = probe.offset.or(offset);
            }
        }
    }
}

/// Notes that the probes among a site's uses are armed in a domain: by a jump with a tactic, or by
/// a trap.
pub(crate) fn set_armed(
    programs: &mut Programs,
    domain: Domain,
    uses: &[Use],
    address: u64,
    tactic: Option<&'static str>,
) {
    for wanted in uses {
        if let Use::Probe { program, probe } = *wanted {
            let probe = &mut programs[program].probes[probe];
            probe.address.get_or_insert(address);
            probe.tactic = probe.tactic.or(tactic);
            probe.placed.insert(domain);
            if !probe.state.is_over() {
                probe.state = State::Armed;
            }
        }
    }
}

/// Notes that the probes among a site's uses trap at a site that was a jump before.
fn note_trapped(programs: &mut Programs, uses: &[Use], reason: &NoJump, was: Option<&'static str>) {
    for wanted in uses {
        if let Use::Probe { program, probe } = *wanted {
            programs[program].probes[probe].trapped(reason, was);
        }
    }
}

/// Counts a site that traps because its program's engine is `trap`.
fn count_asked(programs: &mut Programs, uses: &[Use]) {
    for wanted in uses {
        if let Use::Probe { program, probe } = *wanted
            && programs[program].options.engine == Engine::Trap
        {
            programs[program].probes[probe].sites.trap(&NoJump::Asked, None);
        }
    }
}
