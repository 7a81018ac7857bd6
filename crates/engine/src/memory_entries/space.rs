//! Enters an address space's memory in the ledger, and takes it out.

use std::collections::BTreeSet;

use super::{MemoryEntries, State};
use crate::ledger::{Mapped, Piece};
use crate::space::Space;

impl Space {
    fn state(&self) -> State {
        State {
            generation: self.generation,
            mappings: self.mappings,
            cells: self.cells,
            areas: self.areas.len(),
            parts: [
                self.handler_memory.is_some(),
                self.rings.is_some(),
                self.lacks_rings,
                self.hidden.is_some(),
                self.spare_slots.is_some(),
            ],
            guard: self.guard.iter().flat_map(|guard| guard.pieces()).count(),
        }
    }

    /// Updates the entries, if the mapped memory has changed.
    pub(crate) fn note_memory(&mut self) {
        let state = self.state();
        let Some(ledger) = self.code.ledger.as_ref().filter(|_| self.noted.state != Some(state)) else {
            return;
        };
        let probes = self.each_mapped().map(|(base, size)| Mapped { base, size, piece: Piece::Probes });
        let there: BTreeSet<Mapped> =
            probes.chain(self.guard.iter().flat_map(|guard| guard.pieces())).collect();
        let mut entered = std::mem::take(&mut self.noted.entered);
        entered.retain(|mapped, _| there.contains(mapped));
        for mapped in there {
            if !entered.contains_key(&mapped)
                // If the ledger is full, the memory stays mapped if the tracer is killed.
                && let Ok(entry) = ledger.enter_memory(self.code.process, mapped)
            {
                entered.insert(mapped, entry);
            }
        }
        self.noted = MemoryEntries { state: Some(state), entered };
    }

    /// Strikes out all entries, since memory is about to be unmapped. [`Space::note_memory`] makes
    /// them again.
    pub(crate) fn strike_memory(&mut self) {
        self.noted = MemoryEntries::default();
    }
}
