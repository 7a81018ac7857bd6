//! What is written to arm sites of an address space.

use super::super::draft::PlannedJump;
use super::{Note, Writing};
use crate::change::Change;
use crate::site_use::Use;
use crate::space::Space;

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
}
