//! Instructions that signals kept from being executed after their handlers had run: their threads come back to them, and then the
//! instruction is executed without a second hit.
//!
//! They are kept for the whole address space, by their site and their stack pointer: what a signal interrupted goes on by any thread where
//! stacks go from thread to thread (Go takes a processor from a goroutine by a signal), and in any order. One that its thread has left by a
//! jump out of the signal's handler stays until the same site is reached with the same registers, which is then what was interrupted as far
//! as anybody can tell; or until there are too many, or its thread ends.

use std::collections::HashMap;

use process::Registers;

use crate::tracked::InSlot;

/// Interrupted instructions of an address space, at most. A program of goroutines has one for each that waits for a processor.
const MOST: usize = 1 << 14;

/// The interrupted instructions of an address space.
#[derive(Debug, Default)]
pub(crate) struct Interrupted {
    /// By the site and the stack pointer.
    waiting: HashMap<(u64, u64), Vec<One>>,
    len: usize,
    /// How many there have been.
    count: u64,
}

/// One interrupted instruction.
#[derive(Debug)]
struct One {
    tid: i32,
    number: u64,
    slot: InSlot,
}

impl Interrupted {
    /// Adds the instruction from which a signal kept a thread. Gives those that are given up for it.
    pub(crate) fn add(&mut self, tid: i32, slot: InSlot) -> Vec<InSlot> {
        let given_up = if self.len >= MOST {
            let oldest = self.count.saturating_sub(MOST as u64 / 2);
            self.extract(|one| one.number < oldest)
        } else {
            Vec::new()
        };
        let key = (slot.site, slot.registers.rsp());
        self.waiting.entry(key).or_default().push(One { tid, number: self.count, slot });
        self.len += 1;
        self.count += 1;
        given_up
    }

    /// The instruction to which a thread comes back, if it is one of these: the same site with the same registers. The latest of several.
    pub(crate) fn come_back(&mut self, site: u64, registers: &Registers) -> Option<InSlot> {
        if self.len == 0 {
            return None;
        }
        let key = (site, registers.rsp());
        let of_key = self.waiting.get_mut(&key)?;
        let place = of_key.iter().rposition(|one| one.slot.registers.general() == registers.general())?;
        let found = of_key.remove(place);
        if of_key.is_empty() {
            self.waiting.remove(&key);
        }
        self.len -= 1;
        Some(found.slot)
    }

    /// Takes those of a thread.
    pub(crate) fn of_thread(&mut self, tid: i32) -> Vec<InSlot> {
        self.extract(|one| one.tid == tid)
    }

    /// Takes those of sites.
    pub(crate) fn of_sites(&mut self, is_one: impl Fn(u64) -> bool) -> Vec<InSlot> {
        self.extract(|one| is_one(one.slot.site))
    }

    fn extract(&mut self, is_wanted: impl Fn(&One) -> bool) -> Vec<InSlot> {
        if self.len == 0 {
            return Vec::new();
        }
        let mut taken = Vec::new();
        self.waiting.retain(|_, of_key| {
            taken.extend(of_key.extract_if(.., |one| is_wanted(one)));
            !of_key.is_empty()
        });
        self.len -= taken.len();
        // In the order in which they came: their records are written in it.
        taken.sort_unstable_by_key(|one| one.number);
        taken.into_iter().map(|one| one.slot).collect()
    }
}
