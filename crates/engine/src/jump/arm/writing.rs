//! Prepares the sites of a draft for writing: everything that takes time is done before threads are
//! held.

use std::collections::BTreeMap;

use crate::change::{Batch, Change};
use crate::ledger::Entered;
use crate::site::{Armed, Planned};
use crate::site_use::Use;

mod space;

/// What changes for a site when it is written.
pub(crate) struct Note {
    pub(crate) address: u64,
    pub(crate) tactic: &'static str,
    asked: bool,
    /// The tactic and the uses of the jump that it was before, if any.
    pub(crate) before: Option<(&'static str, Vec<Use>)>,
    /// Its uses according to the draft.
    pub(crate) new: Vec<Use>,
}

/// Sites that are ready to be written, and are in the ledger.
#[derive(Default)]
pub(crate) struct Writing {
    pub(crate) armed: BTreeMap<u64, Armed>,
    /// What changes for each, in any order.
    pub(crate) notes: Vec<Note>,
    /// The addresses of sites with uses other than [`Use::Neighbour`].
    pub(crate) probed: Vec<u64>,
    /// Trampolines to which no site will lead any more.
    pub(crate) retired: Vec<u64>,
    /// The changes that are removed, and those that are made.
    pub(crate) out: Batch,
    pub(crate) batch: Batch,
    /// The ledger's entries for sites that will trap.
    pub(crate) trapping: Vec<Entered>,
    /// The addresses of all changes, ascending.
    pub(crate) places: Vec<u64>,
}

impl Writing {
    /// All changes that will be made.
    pub(crate) fn changes(&self) -> Vec<Change> {
        let mut changes = self.batch.made();
        self.armed.values().for_each(|armed| armed.each_change(|change| changes.push(*change)));
        changes
    }

    /// Undoes the preparation, with nothing written: the sites to be armed, as they were before.
    pub(crate) fn into_sites(mut self) -> impl Iterator<Item = Planned> {
        self.notes.into_iter().filter(|note| note.asked).filter_map(move |note| {
            let mut site = self.armed.remove(&note.address)?.forget().site().clone();
            site.uses = note.new;
            Some(Planned(Box::new(site)))
        })
    }
}
