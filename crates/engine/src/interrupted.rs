//! Instructions whose handlers have run but that a signal kept from being executed. When a thread
//! returns to one, the instruction is executed without a second hit.
//!
//! They are kept for the whole address space, by site and stack pointer: if stacks move between
//! threads, any thread may continue what a signal interrupted, in any order (Go preempts goroutines
//! by a signal). If a thread left by a jump out of the signal's handler, the entry stays until the
//! same site is reached with the same registers, which is then indistinguishable from the
//! interrupted execution; or until there are too many entries, or the thread ends.

use std::collections::HashMap;

use process::Registers;

use crate::tracked::InSlot;

/// Interrupted instructions of an address space, at most. A Go program has one for each preempted
/// goroutine.
const MAX_INTERRUPTED: usize = 1 << 14;

/// The interrupted instructions of an address space.
#[derive(Debug, Default)]
pub(crate) struct Interrupted {
    /// By site and stack pointer.
    waiting: HashMap<(u64, u64), Vec<One>>,
    len: usize,
    /// How many there were in total.
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
    /// Adds an instruction that a signal interrupted. Returns the entries dropped to make room.
    pub(crate) fn add(&mut self, tid: i32, slot: InSlot) -> Vec<InSlot> {
        let given_up = if self.len >= MAX_INTERRUPTED {
            let oldest = self.count.saturating_sub(MAX_INTERRUPTED as u64 / 2);
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

    /// Takes the entry for an instruction to which a thread returns: same site, same registers; the
    /// latest of several.
    pub(crate) fn take_resumed(&mut self, site: u64, registers: &Registers) -> Option<InSlot> {
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

    /// Takes the entries of a thread.
    pub(crate) fn of_thread(&mut self, tid: i32) -> Vec<InSlot> {
        self.extract(|one| one.tid == tid)
    }

    /// Takes the entries of sites.
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
        // In the order of arrival, in which their records are to be written.
        taken.sort_unstable_by_key(|one| one.number);
        taken.into_iter().map(|one| one.slot).collect()
    }
}
