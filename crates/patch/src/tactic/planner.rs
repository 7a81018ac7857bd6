//! The planner: makes plans for one process, one after another.

use super::placed::Placed;
use super::search::Search;
use super::{Code, Limits, Plan, Site, Space};

/// The moved instructions of one process.
///
/// Plans build on each other: apply each before making the next. If a plan cannot be applied
/// (memory is no longer free), discard the planner and use a clone from before that plan, with the
/// current free memory.
#[derive(Clone, Debug)]
pub struct Planner {
    pub(super) placed: Placed,
    pub(super) limits: Limits,
}

impl Planner {
    /// A planner for one process in which nothing is moved.
    pub fn new(limits: Limits) -> Planner {
        Planner { placed: Placed::new(&limits), limits }
    }

    /// Sets the limits from now on.
    pub fn allow(&mut self, limits: Limits) {
        self.limits = limits;
        self.placed.pads.allow(&limits);
    }

    /// The planner of a process after all code with moved instructions was unmapped. Its pages for
    /// landing pads remain usable.
    #[must_use]
    pub fn emptied(&self) -> Planner {
        let placed = Placed { pads: self.placed.pads.emptied(), ..Placed::new(&self.limits) };
        Planner { placed, limits: self.limits }
    }

    /// Takes over the landing pad pages of another planner of the same process.
    pub fn adopt(&mut self, emptied: Planner) {
        self.placed.pads.adopt(emptied.placed.pads);
    }

    /// Whether the instruction at an address is moved or trapped.
    pub fn has(&self, address: u64) -> bool {
        self.placed.entries.contains_key(&address)
    }

    /// An upper bound of the mappings for the landing pads of all plans.
    pub fn mappings(&self) -> usize {
        self.placed.pads.mappings()
    }

    /// Plans jumps for `sites`, in any order. Each site ends up in one of the plan's lists, even if
    /// it was planned before.
    pub fn plan(&mut self, code: &Code<'_>, space: &Space<'_>, sites: &[Site]) -> Plan {
        self.placed.begin(space.free);
        let mut sorted = sites.to_vec();
        sorted.sort_unstable_by_key(|site| site.address);
        sorted.dedup_by_key(|site| site.address);
        let refused = Search::new(&mut self.placed, code, space, self.limits, sites.len()).run(&sorted);
        self.placed.drop_unneeded_neighbours();
        let mut plan = Plan { refused, ..Plan::default() };
        self.placed.conclude(&sorted, &mut plan);
        plan
    }
}
