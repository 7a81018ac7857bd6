//! Enters an address space's memory in the ledger, and takes it out.

use std::collections::BTreeSet;

use super::{MemoryEntries, State};
use crate::ledger::{Mapped, Piece};
use crate::space::Space;

impl Space {
    fn state(&self) -> State {
        State {
            generation: self.plans.generation,
            mappings: self.mapped.mappings,
            cells: self.shared.cells,
            areas: self.mapped.areas.len(),
            parts: [
                self.shared.handler_memory.is_some(),
                self.shared.rings.is_some(),
                self.shared.lacks_rings,
                self.shared.hidden.is_some(),
                self.mapped.spare_slots.is_some(),
            ],
            guard: self.calls.guard.iter().flat_map(|guard| guard.pieces()).count(),
        }
    }

    /// Updates the entries, if the mapped memory has changed.
    pub(crate) fn note_memory(&mut self) {
        let state = self.state();
        let Some(ledger) = self.code.ledger.as_ref().filter(|_| self.mapped.noted.state != Some(state))
        else {
            return;
        };
        let probes = self.each_mapped().map(|(base, size)| Mapped { base, size, piece: Piece::Probes });
        let there: BTreeSet<Mapped> =
            probes.chain(self.calls.guard.iter().flat_map(|guard| guard.pieces())).collect();
        let mut entered = std::mem::take(&mut self.mapped.noted.entered);
        entered.retain(|mapped, _| there.contains(mapped));
        for mapped in there {
            if !entered.contains_key(&mapped)
                // If the ledger is full, the memory stays mapped if the tracer is killed.
                && let Ok(entry) = ledger.enter_memory(self.code.process, mapped)
            {
                entered.insert(mapped, entry);
            }
        }
        self.mapped.noted = MemoryEntries { state: Some(state), entered };
    }

    /// As [`Space::changed`], where no memory is mapped or unmapped: the entries stay right.
    pub(crate) fn changed_in_place(&mut self) {
        let are_right = self.mapped.noted.state == Some(self.state());
        self.changed();
        if are_right {
            self.mapped.noted.state = Some(self.state());
        }
    }

    /// Strikes out all entries, since memory is about to be unmapped. [`Space::note_memory`] makes
    /// them again.
    pub(crate) fn strike_memory(&mut self) {
        self.mapped.noted = MemoryEntries::default();
    }
}
