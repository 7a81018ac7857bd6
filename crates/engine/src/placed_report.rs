//! Reports to the observer where probes were armed.

use process::Module;

use crate::observer::Placed;
use crate::site::{Planned, Use};
use crate::tracer::Tracer;

/// A probe at a planned site: address, program, probe.
pub(crate) type About = (u64, usize, usize);

/// The probes at planned sites.
pub(crate) fn probes_of(planned: &[Planned]) -> Vec<About> {
    let of = |site: &Planned| {
        let address = site.0.address;
        let probes = site.0.uses.iter().filter_map(move |wanted| match *wanted {
            Use::Probe { program, probe } => Some((address, program, probe)),
            _ => None,
        });
        probes.collect::<Vec<_>>()
    };
    planned.iter().flat_map(of).collect()
}

impl Tracer<'_> {
    /// Reports which of these probes are armed.
    pub(crate) fn tell_placed(&mut self, number: u32, pid: i32, module: &Module, probes: &[About]) {
        let Some(space) = self.spaces.get(&number) else { return };
        for &(address, program, probe) in probes {
            let Some(armed) = space.sites.get(&address) else { continue };
            let tactic = armed.jump().map(|jump| jump.tactic);
            self.observer.placed(&Placed { pid, program, probe, module, address, tactic });
        }
    }
}
