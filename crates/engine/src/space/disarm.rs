//! Disarms sites of an address space and restores their bytes.

use super::Space;
use crate::change::{Batch, Fixed};
use crate::hold::Held;
use crate::jump::Planners;
use crate::module_key::Generation;
use crate::site;

impl Space {
    /// Marks the sites as changed: plans made for their former state are invalid.
    pub(crate) fn changed(&mut self) {
        self.plans.generation = Generation::next();
    }

    /// Disarms a site that traps: restores its byte.
    pub(crate) fn disarm(&mut self, address: u64) {
        self.changed_in_place();
        if let Some(armed) = self.sites.remove(&address) {
            let disarmed = armed.disarm(&self.code.memory);
            self.disarmed.insert(address, disarmed);
        }
    }

    /// Disarms all sites of a space in which all sites trap.
    pub(crate) fn disarm_traps(&mut self, fixed: &Fixed) {
        self.changed();
        let mut batch = Batch::default();
        let mut entered = Vec::new();
        for (address, armed) in self.sites.take_all() {
            debug_assert!(armed.jump().is_none(), "jumps are taken out while all threads are held");
            let (disarmed, entries) = armed.take_out(&mut batch);
            entered.push(entries);
            self.disarmed.insert(address, disarmed);
        }
        // Fails only if the process is gone or has unmapped the page.
        let _ = batch.write_bytes(&self.code.memory, fixed);
        drop(entered);
    }

    /// Disarms sites of either kind: restores their bytes.
    pub(crate) fn take_out(&mut self, addresses: impl IntoIterator<Item = u64>, held: &Held) {
        self.changed();
        let mut batch = Batch::default();
        let mut entered = Vec::new();
        for address in addresses {
            let Some(armed) = self.sites.remove(&address) else { continue };
            if let Some(jump) = armed.jump() {
                self.jumps.forget_ways(address, jump);
                self.jumps.retire(jump.trampoline);
            }
            let (disarmed, entries) = armed.take_out(&mut batch);
            entered.push(entries);
            self.disarmed.insert(address, disarmed);
        }
        // Fails only if the process is gone or has unmapped the page.
        let _ = site::write(batch, &self.code, held);
        drop(entered);
    }

    /// The changes that disarm all sites.
    pub(crate) fn all_out(&self) -> Batch {
        let mut batch = Batch::default();
        self.sites.each_change(|change| batch.take_out(*change));
        batch.sort();
        batch
    }

    /// Disarms all sites, with the batch from [`Space::all_out`].
    pub(crate) fn disarm_all(&mut self, batch: Batch, held: &Held) {
        // Fails only if the process is gone or has unmapped the page.
        let _ = site::write(batch, &self.code, held);
        self.changed();
        self.plans.planners = Planners::default();
        self.jumps.forget_all_ways();
        let sites = self.sites.take_all();
        self.disarmed.reserve(sites.len());
        for (address, armed) in sites {
            if let Some(jump) = armed.jump() {
                self.jumps.retire(jump.trampoline);
            }
            self.disarmed.insert(address, armed.forget());
        }
    }
}
