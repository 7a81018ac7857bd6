//! Prepares the sites of a draft for writing: everything that takes time is done before threads are
//! held.

use std::collections::BTreeMap;

use super::draft::PlannedJump;
use crate::change::{Batch, Change};
use crate::ledger::Entered;
use crate::site::{Armed, Planned};
use crate::site_use::{Use};
use crate::space::Space;

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
    /// Prepares jumps that are to be made, and sites that will trap. The ledger has room for them,
    /// and keeps their entries until they are dropped.
    pub(crate) fn of(space: &Space, jumps: Vec<PlannedJump>, traps: Vec<Change>) -> Writing {
        let mut writing =
            Writing { places: traps.iter().map(Change::address).collect(), ..Writing::default() };
        let mut armed = Vec::with_capacity(jumps.len());
        for PlannedJump { mut planned, jump, asked } in jumps {
            let address = planned.0.address;
            let new = planned.0.uses.clone();
            let mut before = None;
            let is_neighbour = |wanted: &Use| *wanted == Use::Neighbour;
            if !new.iter().all(is_neighbour) {
                writing.probed.push(address);
            }
            if let Some(old) = space.sites.get(&address) {
                before = old.jump().map(|jump| (jump.tactic, old.site().uses.clone()));
                planned.0.uses.retain(|wanted| !old.site().uses.contains(wanted));
                planned.0.uses.splice(0..0, old.site().uses.iter().copied());
                if !planned.0.uses.iter().all(is_neighbour) {
                    planned.0.uses.retain(|wanted| !is_neighbour(wanted));
                }
                if let Some(before) = old.jump().filter(|before| before.trampoline != jump.trampoline) {
                    writing.retired.push(before.trampoline);
                }
                old.changes().into_iter().for_each(|change| writing.out.take_out(change));
            }
            writing.places.extend(jump.changes.iter().map(Change::address));
            writing.notes.push(Note { address, tactic: jump.tactic, asked, before, new });
            armed.push((address, planned.arm_with(jump, &space.code, &mut writing.batch)));
        }
        writing.trapping = space.code.enter_if_room(&traps);
        traps.into_iter().for_each(|change| writing.batch.put_in(change));
        writing.batch.sort();
        writing.places.sort_unstable();
        writing.armed = armed.into_iter().collect();
        writing
    }

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
