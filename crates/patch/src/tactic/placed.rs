//! What is moved: the instructions, and the bytes and landing pads that their jumps use.

use std::collections::{BTreeMap, BTreeSet};

use super::image::{Change, Image};
use super::pads::Pads;
use super::placement::{JUMP, LONGEST, PREFIXES, Placement, SecondJump};
use super::{Limits, Purpose, Reason, Tactic};

/// How far above its own address a jump relies on bytes, at most.
const REACH: u64 = (LONGEST + JUMP) as u64;
/// The range of a short jump.
pub(super) const SHORT: u64 = 127;

/// The moved instructions of one process. Entries, bytes and pads agree between any two calls.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) image: Image,
    pub(super) pads: Pads,
    pub(super) entries: BTreeMap<u64, Entry>,
    /// Entries that the current plan has touched, as they were before it.
    pub(super) before: BTreeMap<u64, Option<Entry>>,
    /// Unused pads of earlier plans; the current plan must not use them for other jumps.
    pub(super) held: BTreeSet<u64>,
}

/// An instruction that is moved, trapped, or about to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) length: u8,
    pub(super) purpose: Purpose,
    pub(super) state: State,
    pub(super) original: [u8; LONGEST],
    /// The entry whose second jump is in the spare bytes behind this one's jump.
    pub(super) guest: Option<u64>,
    /// For an instruction about to be moved: the number of prefixes of its jump, and the prefix
    /// byte.
    pub(super) prefixes: u8,
    pub(super) prefix: u8,
    /// Whether it was taken out of a group and must not be grouped again.
    pub(super) alone: bool,
    /// How many jumps the current plan has given it.
    pub(super) rounds: u8,
}

/// The state of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing yet.
    Open,
    Jump(Placement),
    Trap(Reason),
}

impl Entry {
    pub(super) fn placement(&self) -> Option<&Placement> {
        match &self.state {
            State::Jump(placement) => Some(placement),
            State::Open | State::Trap(_) => None,
        }
    }
}

impl Placed {
    /// Nothing is moved.
    pub(super) fn new(limits: &Limits) -> Placed {
        Placed {
            image: Image::default(),
            pads: Pads::new(limits),
            entries: BTreeMap::new(),
            before: BTreeMap::new(),
            held: BTreeSet::new(),
        }
    }

    /// Whether any entry overlaps the addresses.
    pub(super) fn overlaps(&self, start: u64, end: u64) -> bool {
        self.entries
            .range(..end)
            .next_back()
            .is_some_and(|(address, entry)| address + u64::from(entry.length) > start)
    }

    /// Makes an entry for an instruction about to be moved.
    pub(super) fn open_entry(
        &mut self,
        address: u64,
        length: usize,
        purpose: Purpose,
        original: [u8; LONGEST],
    ) {
        self.touch(address);
        let entry = Entry {
            length: length as u8,
            purpose,
            state: State::Open,
            original,
            guest: None,
            prefixes: 0,
            prefix: 0x2e,
            alone: false,
            rounds: 0,
        };
        self.entries.insert(address, entry);
    }

    /// Saves an entry as it was before this plan, on the first call for it.
    pub(super) fn touch(&mut self, address: u64) {
        if !self.before.contains_key(&address) {
            self.before.insert(address, self.entries.get(&address).cloned());
        }
    }

    /// The entries whose second jumps are in padding and overlap the addresses.
    pub(super) fn joints_in_padding(&self, start: u64, end: u64) -> Vec<u64> {
        let changed = |at: &u64| self.image.byte(*at).change != Change::None && !self.overlaps(*at, at + 1);
        if !(start..end).any(|at| changed(&at)) {
            return Vec::new();
        }
        let (low, high) = (start.saturating_sub(SHORT + LONGEST as u64), end + SHORT + LONGEST as u64);
        let near = self.entries.range(low..high);
        let has = |joint: SecondJump| joint.host.is_none() && joint.address < end && joint.host_end > start;
        near.filter(|(_, entry)| entry.placement().and_then(|placement| placement.joint).is_some_and(has))
            .map(|(address, _)| *address)
            .collect()
    }

    /// Whether no byte belongs to a moved or trapped instruction or to a jump in padding.
    pub(super) fn is_untouched(&self, start: u64, end: u64) -> bool {
        !self.overlaps(start, end) && (start..end).all(|at| self.image.byte(at).change == Change::None)
    }

    /// Sets the tactic that gave a site its jump.
    pub(super) fn made_by(&mut self, address: u64, tactic: Tactic) {
        if let Some(State::Jump(placement)) = self.entries.get_mut(&address).map(|entry| &mut entry.state) {
            placement.tactic = tactic;
        }
    }

    pub(super) fn end_of(&self, address: u64) -> Option<u64> {
        self.entries.get(&address).map(|entry| address + u64::from(entry.length))
    }

    /// Applies a jump to the image.
    pub(super) fn commit(&mut self, address: u64, placement: Placement) {
        self.touch(address);
        let Some(entry) = self.entries.get_mut(&address) else { return };
        if let Some(group) = &placement.group {
            entry.length = group.length;
        }
        let length = usize::from(entry.length);
        for (at, value) in placement.bytes[..placement.length()].iter().enumerate() {
            let byte = address + at as u64;
            if at >= length {
                self.image.rely(byte, *value);
            } else if placement.pad.is_none() && at > usize::from(placement.prefixes) {
                self.image.byte_mut(byte).change = Change::Unknown;
            } else {
                self.image.change(byte, *value);
            }
        }
        if let Some(joint) = &placement.joint {
            for (byte, value) in (joint.address..).zip(joint.bytes) {
                if byte < joint.host_end {
                    self.image.change(byte, value);
                } else {
                    self.image.rely(byte, value);
                }
            }
            if let Some(host) = joint.host.and_then(|host| self.entries.get_mut(&host)) {
                host.guest = Some(address);
            }
        }
        if let Some(pad) = placement.pad
            && !self.held.remove(&pad)
        {
            self.pads.take(pad);
        }
        if let Some(entry) = self.entries.get_mut(&address) {
            entry.state = State::Jump(placement);
            (entry.prefixes, entry.prefix) = (0, PREFIXES[0]);
        }
    }

    /// Removes a jump from the image.
    pub(super) fn unplace(&mut self, address: u64) {
        self.touch(address);
        let Some(entry) = self.entries.get_mut(&address) else { return };
        let Some(placement) = entry.placement().cloned() else { return };
        entry.state = State::Open;
        let length = usize::from(entry.length);
        if let Some(group) = &placement.group {
            entry.length = group.single;
        }
        for at in 0..placement.length() {
            let byte = address + at as u64;
            if at >= length {
                self.image.release(byte);
            } else {
                self.image.change_back(byte);
            }
        }
        if let Some(joint) = &placement.joint {
            for byte in joint.address..joint.address + JUMP as u64 {
                if byte < joint.host_end {
                    self.image.change_back(byte);
                } else {
                    self.image.release(byte);
                }
            }
            if let Some(host) = joint.host.and_then(|host| self.entries.get_mut(&host)) {
                host.guest = None;
            }
        }
        let Some(pad) = placement.pad else { return };
        let earlier = self.before.get(&address).and_then(Option::as_ref).and_then(Entry::placement);
        if earlier.is_some_and(|earlier| earlier.pad == Some(pad)) {
            self.held.insert(pad);
        } else {
            self.pads.give_back(pad);
        }
    }

    /// The entries whose jumps rely on a byte from `start` to `end`.
    pub(super) fn reliers(&self, start: u64, end: u64) -> Vec<u64> {
        let mut found = Vec::new();
        if (start..end).all(|at| self.image.byte(at).relied == 0) {
            return found;
        }
        for (address, entry) in self.entries.range(start.saturating_sub(REACH)..end) {
            if let Some(placement) = entry.placement() {
                let from = address + u64::from(entry.length);
                if from < end && address + placement.length() as u64 > start {
                    found.push(*address);
                }
            }
            let guest =
                entry.guest.and_then(|guest| Some((guest, self.entries.get(&guest)?.placement()?.joint?)));
            if let Some((guest, joint)) = guest
                && joint.host_end < end
                && joint.address + JUMP as u64 > start
            {
                found.push(guest);
            }
        }
        found
    }
}
