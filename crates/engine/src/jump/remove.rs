//! Removes jumps while others stay.

use std::collections::HashMap;
use std::rc::Rc;

use patch::Displaced;
use patch::tactic::{Removal, Write};

use super::shape::ways;
use super::text::Written;
use super::{Layout, New, Trampoline};
use crate::change::{Batch, Change};
use crate::hold::Held;
use crate::site::{self, Jump, Planned};
use crate::site_use::Use;
use crate::space::Space;

impl Space {
    /// Removes sites of both engines, and the instructions moved for them. A site whose bytes
    /// others rely on stays, without a handler.
    pub(crate) fn take_out_planned(&mut self, addresses: &[u64], held: &Held) {
        let (removals, unknown) = self.plans.planners.remove(addresses);
        self.take_out(unknown, held);
        removals.into_iter().for_each(|removal| self.take_out_of(removal, held));
    }

    fn take_out_of(&mut self, removal: Removal, held: &Held) {
        for address in removal.kept.iter().chain(&removal.trapped) {
            if let Some(armed) = self.sites.get_mut(address) {
                *armed.uses_mut() = vec![Use::Neighbour];
            }
        }
        let mut gone = Vec::with_capacity(removal.restore.len());
        for write in &removal.restore {
            if self.sites.contains_key(&write.address) {
                gone.push(write.address);
            } else {
                // Fails only if the process is gone or has unmapped the page.
                let _ = self.code.memory.poke(write.address, &write.bytes);
            }
        }
        self.take_out(gone, held);
        let mut batch = Batch::default();
        let mut before = Vec::new();
        for address in removal.kept {
            let Some(armed) = self.sites.get(&address) else { continue };
            let Some(jump) = armed.jump().cloned() else { continue };
            let displaced = armed.site().displaced.clone();
            let Some((trampoline, written)) = self.without_handler(&jump, &displaced) else { continue };
            let start = trampoline.start();
            let mut new = New::default();
            new.add([Rc::new(trampoline)], ways(address, &written).map(|at| (at, address, start)));
            self.jumps.add(new);
            self.jumps.retire(jump.trampoline);
            let Some(old) = self.sites.remove(&address) else { continue };
            let planned = Planned(Box::new(old.site().clone()));
            before.push(old);
            let jump = Jump {
                changes: written.changes,
                trampoline: start,
                tactic: jump.tactic,
                shape: jump.shape.clone(),
                followers: jump.followers.clone(),
            };
            self.sites.insert(address, planned.arm_with(Rc::new(jump), &self.code, &mut batch));
        }
        let _ = site::write(batch, &self.code, held);
        drop(before);
    }

    /// Writes a trampoline without a handler, and its pad, for a jump that stays. The site itself
    /// is still to be written.
    fn without_handler(&mut self, jump: &Rc<Jump>, displaced: &Displaced) -> Option<(Trampoline, Written)> {
        let layout = Layout { displaced, handlers: &[], commit: None, tail: &jump.followers };
        let (trampoline, bytes) = layout.put(&mut self.jumps.room, &(0..u64::MAX)).ok()?;
        let memory = &self.code.memory;
        let write = || {
            let written =
                again(jump, trampoline.entry()).filter(|_| trampoline.has_followers(&jump.shape))?;
            memory.poke(trampoline.start(), &bytes).ok()?;
            if let Some(pad) = &written.pad {
                memory.poke(pad.address, &pad.bytes).ok()?;
            }
            Some(written)
        };
        let Some(written) = write() else {
            self.jumps.room.give_back(trampoline.start(), trampoline.size());
            return None;
        };
        Some((trampoline, written))
    }
}

/// The bytes of an existing jump, changed to lead to another trampoline.
fn again(jump: &Rc<Jump>, entry: u64) -> Option<Written> {
    let originals: HashMap<u64, &Change> =
        jump.changes.iter().map(|change| (change.address(), change)).collect();
    let change = |write: &Write| {
        let old = originals.get(&write.address).filter(|old| old.original().len() == write.bytes.len())?;
        Some(Change::new(write.address, old.original(), &write.bytes))
    };
    let changes = jump.shape.code(entry)?.iter().map(change).collect::<Option<Vec<_>>>()?;
    let pad = match jump.shape.pad {
        Some(_) => Some(jump.shape.pad(entry)?),
        None => None,
    };
    Some(Written { changes, pad })
}
