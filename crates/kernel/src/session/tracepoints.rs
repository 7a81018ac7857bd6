//! Attaches to the kernel's tracepoints.

use bpf::{Program, Tracepoint};

use super::attached::Attached;
use super::halving;

/// A tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracepointSite {
    /// Its number: [`crate::tracepoints::Format::id`].
    pub id: u32,
    /// The cookie of the program there: [`crate::cookie`].
    pub cookie: u64,
}

/// Attaches a program of the kind [`bpf::ProgramKind::Tracepoint`] to tracepoints.
pub fn attach_tracepoints(program: &Program, sites: &[TracepointSite]) -> Attached {
    let mut attached = Attached::default();
    for place in 0..sites.len() {
        halving::attach(place..place + 1, &mut attached, &mut |range| {
            let site = sites[range.start];
            Tracepoint { id: site.id }.attach(program, site.cookie)
        });
    }
    attached
}
