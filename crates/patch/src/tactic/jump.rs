//! The jump of one instruction: finds one that fits its surroundings, applies it to the image and
//! removes it.

use super::find_pad::Pages;
use super::image::Change;
use super::pattern::{self, Pattern};
use super::placement::LONGEST;
use super::planner::{Entry, Planner, State};
use super::{Code, Space, Tactic};
use crate::tactic::placement::{JUMP, PREFIXES, Placement, REPEATED, pads_allowed, reaches};

/// The most prefixes of a jump within 15 bytes.
const MAX_PREFIXES: usize = LONGEST - JUMP;
/// How far above its own address a jump relies on bytes, at most.
const REACH: u64 = (LONGEST + JUMP) as u64;

/// What a byte of a jump can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteChoice {
    Given(u8),
    Choice,
    /// It will be set, but not by the planner; or there is no such byte.
    Unusable,
}

impl Planner {
    /// Gives an open entry a jump, with everything around it left as it is.
    pub(super) fn place(&mut self, code: &Code<'_>, space: &Space<'_>, address: u64, pages: Pages) -> bool {
        let Some(entry) = self.entries.get(&address) else { return false };
        let (length, first) = (usize::from(entry.length), usize::from(entry.prefixes));
        let most = (length - 1).min(MAX_PREFIXES);
        let counts = || std::iter::once(first).chain((0..=most).filter(move |count| *count != first));
        let rounds: &[Pages] = match pages {
            Pages::Used => &[Pages::Used],
            Pages::Fresh => &[Pages::Used, Pages::Fresh],
        };
        for pages in rounds {
            for prefixes in counts() {
                if let Some(placement) = self.candidate(code, space, address, prefixes, *pages) {
                    self.commit(address, placement);
                    return true;
                }
            }
        }
        false
    }

    /// Finds a jump with this number of prefixes.
    fn candidate(
        &mut self,
        code: &Code<'_>,
        space: &Space<'_>,
        address: u64,
        prefixes: usize,
        pages: Pages,
    ) -> Option<Placement> {
        let entry = self.entries.get(&address)?;
        let length = usize::from(entry.length);
        let mut bytes = [0; LONGEST];
        for (at, byte) in bytes.iter_mut().enumerate().take(prefixes + 1) {
            let known = self.image.byte(address + at as u64);
            let wanted = if at == prefixes { 0xe9 } else { entry.prefix };
            *byte = if known.relied > 0 { known.value } else { wanted };
            let allowed = match prefixes - at {
                0 => *byte == 0xe9,
                1 => PREFIXES.contains(byte),
                _ => PREFIXES[..REPEATED].contains(byte),
            };
            if !allowed || known.change != Change::None {
                return None;
            }
        }
        let end = address + (prefixes + JUMP) as u64;
        let own = prefixes + JUMP <= length;
        let field = address + prefixes as u64 + 1;
        let free = own && (field..end).all(|at| self.image.byte(at).is_free());
        let punned = if own { Tactic::Plain } else { Tactic::Punned };
        let tactic = if prefixes == 0 { punned } else { Tactic::Padded(prefixes as u8) };
        if free && reaches(end, space) {
            return Some(Placement {
                tactic,
                prefixes: prefixes as u8,
                bytes,
                pad: None,
                joint: None,
                group: None,
            });
        }
        let pattern = self.pattern(code, field, address + length as u64)?;
        let pad = self.pads.find(&pattern, pads_allowed(space), pages, &mut self.luck)?;
        bytes[prefixes + 1..prefixes + JUMP].copy_from_slice(&pattern::distance(end, pad)?.to_le_bytes());
        Some(Placement { tactic, prefixes: prefixes as u8, bytes, pad: Some(pad), joint: None, group: None })
    }

    /// What the four bytes at `field` can be; those before `end` belong to the jump's own
    /// instruction.
    pub(super) fn pattern(&self, code: &Code<'_>, field: u64, end: u64) -> Option<Pattern> {
        let mut bytes = [None; 4];
        for (at, byte) in (field..).zip(&mut bytes) {
            let known = self.image.byte(at);
            *byte = match known.change {
                _ if known.relied > 0 => Some(known.value),
                Change::None if at < end => None,
                _ => match self.cell(code, at) {
                    ByteChoice::Given(value) => Some(value),
                    ByteChoice::Choice => None,
                    ByteChoice::Unusable => return None,
                },
            };
        }
        Some(Pattern { end: field + 4, bytes })
    }

    /// What a byte of another instruction can be.
    fn cell(&self, code: &Code<'_>, at: u64) -> ByteChoice {
        let known = self.image.byte(at);
        match known.change {
            Change::Known => return ByteChoice::Given(known.value),
            Change::Unknown => return ByteChoice::Unusable,
            Change::None if known.relied > 0 => return ByteChoice::Given(known.value),
            Change::None => {}
        }
        let open =
            self.entries.range(..=at).next_back().filter(|(address, entry)| {
                entry.state == State::Open && at < *address + u64::from(entry.length)
            });
        if let Some((address, entry)) = open {
            let (offset, prefixes) = (at - address, u64::from(entry.prefixes));
            if offset < prefixes {
                return ByteChoice::Given(entry.prefix);
            }
            if offset == prefixes {
                return ByteChoice::Given(0xe9);
            }
            if offset < prefixes + JUMP as u64 {
                return ByteChoice::Choice;
            }
        }
        // Kept bytes may still be written by others.
        if code.keeps(at, at + 1) {
            return ByteChoice::Unusable;
        }
        code.byte(at).map_or(ByteChoice::Unusable, ByteChoice::Given)
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
