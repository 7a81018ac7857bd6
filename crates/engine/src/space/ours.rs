//! Lists the memory of an address space that is ours, and its traps.

use std::ops::Range;

use super::Space;
use crate::guard::Guard;
use crate::jump::{HandlerMemory, Hidden};
use crate::site::Disarmed;

impl Space {
    /// Whether threads may arrive from an `int3` at an address.
    pub(crate) fn has_trapped(&self, address: u64) -> bool {
        self.sites.get(&address).is_some_and(|armed| armed.jump().is_none())
            || self.disarmed.get(&address).is_some_and(Disarmed::trapped)
    }

    /// The addresses of the sites in a range that trap, ascending.
    pub(crate) fn traps_in(&self, code: Range<u64>) -> impl Iterator<Item = u64> {
        self.sites.traps_in(code)
    }

    /// The addresses of the sites that trap.
    pub(crate) fn traps(&self) -> Vec<u64> {
        self.sites.traps_in(0..u64::MAX).collect()
    }

    /// The memory mapped in it for probes: addresses and sizes.
    pub(crate) fn mapped(&self) -> Vec<(u64, u64)> {
        self.each_mapped().collect()
    }

    /// As [`Space::mapped`], one by one.
    pub(crate) fn each_mapped(&self) -> impl Iterator<Item = (u64, u64)> {
        let slots =
            self.mapped.areas.iter().chain(&self.mapped.spare_slots).map(|area| (area.base(), area.size()));
        let handler_memory = self
            .shared
            .handler_memory
            .iter()
            .flat_map(|handler_memory| handler_memory.mapped(self.shared.cells));
        let contexts = self
            .shared
            .handler_memory
            .as_ref()
            .filter(|_| self.shared.rings.is_some() || self.shared.lacks_rings);
        let rings = contexts.into_iter().flat_map(HandlerMemory::claimed);
        let rings = rings.chain(self.shared.rings.as_ref().map(|rings| rings.span()));
        let hidden = self.shared.hidden.iter().map(Hidden::mapped);
        let own = slots.chain(self.jumps.mapped()).chain(handler_memory).chain(rings).chain(hidden);
        own.chain(self.shared.unwinding.mapped())
    }

    /// As [`Space::mapped`], with the guard: all memory of dprobes in the process.
    pub(crate) fn each_ours(&self) -> impl Iterator<Item = (u64, u64)> {
        self.each_mapped().chain(self.calls.guard.iter().flat_map(Guard::mapped))
    }
}
