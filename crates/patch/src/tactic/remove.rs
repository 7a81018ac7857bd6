//! Removes jumps and traps.

use std::collections::BTreeSet;
use std::ops::Range;

use super::placed::{Entry, Placed, State};
use super::planner::Planner;
use super::{Purpose, Write};
use crate::tactic::placement::Placement;

/// The changes to make when sites are removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// The program's bytes to put back.
    pub restore: Vec<Write>,
    /// Sites whose jump stays, because another site's jump relies on its bytes: they become
    /// neighbours, and their trampoline becomes the copy alone.
    pub kept: Vec<u64>,
    /// Sites whose breakpoint stays for the same reason.
    pub trapped: Vec<u64>,
    /// Landing pads that are unused now. The next plan may reuse their bytes.
    pub pads: Vec<u64>,
}

impl Planner {
    /// Removes sites, and neighbours that were moved only for them. Skips addresses that are not
    /// sites.
    pub fn remove(&mut self, sites: &[u64]) -> Removal {
        self.placed.remove(sites)
    }

    /// Drops the runs of pages without a landing pad and returns them. The caller unmaps them once
    /// no thread is in them.
    pub fn drain_unused(&mut self) -> Vec<Range<u64>> {
        self.placed.pads.drain_unused()
    }
}

impl Placed {
    /// Removes sites, and neighbours that were moved only for them. Skips addresses that are not
    /// sites.
    fn remove(&mut self, sites: &[u64]) -> Removal {
        self.before.clear();
        let mut removal = Removal::default();
        let mut idle = Vec::new();
        for address in sites {
            if let Some(entry) = self.entries.get_mut(address).filter(|entry| entry.purpose == Purpose::Site)
            {
                entry.purpose = Purpose::Neighbour;
                idle.push(*address);
            }
        }
        for address in self.unneeded(idle) {
            self.take_out(address, &mut removal);
        }
        for address in sites {
            match self.entries.get(address).map(|entry| &entry.state) {
                Some(State::Jump(_)) => removal.kept.push(*address),
                Some(State::Trap(_)) => removal.trapped.push(*address),
                _ => {}
            }
        }
        self.before.clear();
        self.held.clear();
        removal
    }

    /// Of the neighbours `idle`, and those moved for their sake, the ones that no site needs
    /// directly or indirectly.
    fn unneeded(&self, idle: Vec<u64>) -> Vec<u64> {
        let is_neighbour = |address: &u64| {
            self.entries.get(address).is_some_and(|entry| entry.purpose == Purpose::Neighbour)
        };
        let mut candidates: BTreeSet<u64> = BTreeSet::new();
        let mut open = idle;
        while let Some(address) = open.pop() {
            if is_neighbour(&address) && candidates.insert(address) {
                open.extend(self.relied_on(address));
            }
        }
        let mut needed: Vec<u64> = Vec::new();
        for address in &candidates {
            if self.needed_by(*address).iter().any(|other| !candidates.contains(other)) {
                needed.push(*address);
            }
        }
        while let Some(address) = needed.pop() {
            if candidates.remove(&address) {
                needed.extend(self.relied_on(address));
            }
        }
        candidates.into_iter().collect()
    }

    /// The entries whose jumps rely on the bytes changed at `address`, or use its spare bytes.
    fn needed_by(&self, address: u64) -> Vec<u64> {
        let Some(entry) = self.entries.get(&address) else { return Vec::new() };
        let changed = match &entry.state {
            State::Open => 0,
            State::Trap(_) => 1,
            State::Jump(placement) => placement.length().min(entry.length.into()) as u64,
        };
        let mut others = self.reliers(address, address + changed);
        if let Some(joint) = entry.placement().and_then(|placement| placement.joint) {
            others.extend(
                self.reliers(joint.address, joint.host_end.min(joint.address + joint.bytes.len() as u64)),
            );
        }
        others.extend(entry.guest);
        others
    }

    /// The entries whose bytes the jump at `address` relies on, or whose spare bytes it uses.
    fn relied_on(&self, address: u64) -> Vec<u64> {
        let Some(entry) = self.entries.get(&address) else { return Vec::new() };
        entry.placement().map_or(Vec::new(), |placement| self.under(placement, address, entry.length))
    }

    /// The same for a given jump.
    fn under(&self, placement: &Placement, address: u64, length: u8) -> Vec<u64> {
        let end = address + u64::from(length);
        let mut found: Vec<u64> = Vec::new();
        let mut add = |from: u64, to: u64| {
            if from < to {
                found.extend(self.entries.range(from..to).map(|(other, _)| *other));
            }
        };
        add(end, address + placement.length() as u64);
        if let Some(joint) = placement.joint {
            joint.host.into_iter().for_each(|host| add(host, host + 1));
            add(joint.host_end, joint.address + joint.bytes.len() as u64);
        }
        found.extend(self.joints_in_padding(end, address + placement.length() as u64));
        if let Some(joint) = placement.joint {
            found.extend(self.joints_in_padding(joint.host_end, joint.address + joint.bytes.len() as u64));
        }
        found
    }

    fn take_out(&mut self, address: u64, removal: &mut Removal) {
        let Some(entry) = self.entries.get(&address).cloned() else { return };
        match &entry.state {
            State::Open => {}
            State::Trap(_) => {
                self.image.change_back(address);
                removal.restore.push(Write { address, bytes: vec![entry.original[0]] });
            }
            State::Jump(placement) => {
                self.unplace(address);
                removal.restore.extend(placement.undone(address, &entry));
                if let Some(pad) = placement.pad {
                    self.held.remove(&pad);
                    self.pads.give_back(pad);
                    removal.pads.push(pad);
                }
            }
        }
        self.entries.remove(&address);
        self.before.remove(&address);
    }

    /// At the end of a plan: removes the jumps of neighbours that no site needs after all.
    pub(super) fn drop_unneeded_neighbours(&mut self) {
        let mut idle: Vec<u64> = self.before.keys().copied().collect();
        for (address, before) in &self.before {
            if let Some((before, placement)) =
                before.as_ref().and_then(|entry| Some((entry, entry.placement()?)))
            {
                idle.extend(self.under(placement, *address, before.length));
            }
        }
        for address in self.unneeded(idle) {
            if matches!(self.entries.get(&address), Some(Entry { state: State::Jump(_), .. })) {
                self.unplace(address);
                self.entries.remove(&address);
            }
        }
    }
}

impl Placement {
    /// The program's bytes at this jump.
    pub(super) fn undone(&self, address: u64, entry: &Entry) -> Vec<Write> {
        let own = self.length().min(entry.length.into());
        let mut writes = vec![Write { address, bytes: entry.original[..own].to_vec() }];
        if let Some(joint) = &self.joint {
            let own = (joint.host_end - joint.address).min(joint.original.len() as u64) as usize;
            writes.push(Write { address: joint.address, bytes: joint.original[..own].to_vec() });
        }
        writes
    }
}
