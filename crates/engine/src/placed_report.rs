//! Reports to the observer where probes were armed.

use crate::site::Planned;
use crate::site_use::Use;

mod messages;

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
