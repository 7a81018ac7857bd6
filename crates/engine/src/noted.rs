//! What the ledger has of the memory that is mapped in an address space, so that it is unmapped if the tracer is killed.
//!
//! It is entered when it is there, and struck out before it is unmapped. Of memory that is mapped in the moment in which the tracer is killed the
//! ledger knows nothing: that stays.

use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::{Entered, Mapped, Piece};
use crate::space::{Generation, Space};

/// What of a space was noted.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    /// The state that the space had then.
    state: Option<State>,
    entered: BTreeMap<Mapped, Entered>,
}

/// What changes where memory is mapped or unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    generation: Generation,
    mappings: usize,
    cells: u64,
    areas: usize,
    parts: [bool; 5],
    guard: usize,
}

impl Space {
    fn state(&self) -> State {
        State {
            generation: self.generation,
            mappings: self.mappings,
            cells: self.cells,
            areas: self.areas.len(),
            parts: [
                self.ground.is_some(),
                self.rings.is_some(),
                self.lacks_rings,
                self.hidden.is_some(),
                self.spare.is_some(),
            ],
            guard: self.guard.iter().flat_map(|guard| guard.pieces()).count(),
        }
    }

    /// Notes what is mapped by now, if it has changed.
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
                // Without room it stays mapped if the tracer is killed.
                && let Ok(entry) = ledger.enter_memory(self.code.process, mapped)
            {
                entered.insert(mapped, entry);
            }
        }
        self.noted = Noted { state: Some(state), entered };
    }

    /// Some of it is about to be unmapped: nothing of it is noted until it is noted anew.
    pub(crate) fn strike_memory(&mut self) {
        self.noted = Noted::default();
    }
}
