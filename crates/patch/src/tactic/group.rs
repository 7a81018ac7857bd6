//! Several instructions under one jump, where it is proven that control comes to the first of them alone.

use crate::{Mode, displace_in};

use super::image::Change;
use super::jump::JUMP;
use super::pads::Pages;
use super::planner::{Planner, State};
use super::{Code, Flow, Purpose, Space, Tactic};

/// Instructions that are moved together, first to last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// The length of the first.
    pub(super) single: u8,
    /// The bytes that the jump has for itself: those of all of them, or what is padding behind the first.
    pub(super) length: u8,
    /// All that are behind it, with their lengths.
    pub(super) followers: Vec<(u64, usize)>,
}

impl Planner {
    /// Gives an open entry a jump over as many of the following instructions as it takes.
    pub(super) fn group(&mut self, code: &Code<'_>, space: &Space<'_>, address: u64) -> bool {
        let Some(flow) = &code.flow else { return false };
        let Some(entry) = self.entries.get(&address) else { return false };
        let single = entry.length;
        if entry.alone || entry.purpose != Purpose::Site || usize::from(single) >= JUMP {
            return false;
        }
        let Some(followers) = self.followers(code, flow, address, single) else { return false };
        let length = followers.iter().map(|(_, length)| *length).sum::<usize>() + usize::from(single);
        let group = Group { single, length: length as u8, followers };
        self.place_over(code, space, address, group, Pages::Used, Tactic::Grouped)
    }

    /// Gives an open entry a jump over more bytes than its own.
    pub(super) fn place_over(
        &mut self,
        code: &Code<'_>,
        space: &Space<'_>,
        address: u64,
        group: Group,
        pages: Pages,
        tactic: Tactic,
    ) -> bool {
        let Some(bytes) = code.slice(address, group.length.into()) else { return false };
        let Some(entry) = self.entries.get_mut(&address) else { return false };
        entry.length = group.length;
        // What the jump changes, and a little more.
        entry.original.iter_mut().zip(bytes).for_each(|(original, byte)| *original = *byte);
        let placed = self.place(code, space, address, pages);
        let Some(entry) = self.entries.get_mut(&address) else { return false };
        match &mut entry.state {
            State::Jump(placement) if placed => {
                placement.tactic = tactic;
                placement.group = Some(group);
            }
            _ => entry.length = group.single,
        }
        placed
    }

    /// The instructions behind one of `single` bytes that make it long enough, if nothing lands on any of them: no jump, and no
    /// return from a call either, for only the last may be one.
    fn followers(
        &self,
        code: &Code<'_>,
        flow: &Flow<'_>,
        address: u64,
        single: u8,
    ) -> Option<Vec<(u64, usize)>> {
        let at = flow.functions.partition_point(|function| function.end <= address);
        let function = flow.functions.get(at).filter(|function| function.contains(&address))?;
        let mut followers = Vec::new();
        let mut last = displace_in(Mode::Bits64, code.rest(address)?, address).ok()?;
        let mut next = address + u64::from(single);
        while next < address + JUMP as u64 {
            if !last.falls_through() || last.enters_kernel() || flow.targets.binary_search(&next).is_ok() {
                return None;
            }
            last = displace_in(Mode::Bits64, code.rest(next)?, next).ok()?;
            let end = next + last.length() as u64;
            let forbidden = last.enters_kernel()
                || last.can_set_trap_flag()
                || self.limits.shadow_stacks && last.needs_plain_stack()
                || code.keeps(next, end)
                || code.is_entered(next, end)
                || code.is_divided(next, end)
                || end > function.end
                || self.overlaps(next, end);
            if forbidden {
                return None;
            }
            followers.push((next, last.length()));
            next = end;
        }
        Some(followers)
    }

    /// Bytes are the program's again: whoever relies on them being others is to have a new jump.
    fn redo_reliers(&mut self, address: u64, original: &[u8]) {
        for (at, value) in (address..).zip(original) {
            let byte = self.image.byte(at);
            if byte.relied > 0 && byte.change == Change::None && byte.value != *value {
                for other in self.reliers(at, at + 1) {
                    self.unplace(other);
                    self.open.insert(other);
                }
            }
        }
    }

    /// Takes apart the group that a new site is in the middle of: its first instruction is to have a jump of its own.
    pub(super) fn ungroup(&mut self, address: u64) {
        let Some((first, entry)) = self.entries.range(..address).next_back() else { return };
        let grouped = entry.placement().and_then(|placement| placement.group.as_ref());
        if grouped.is_some_and(|group| group.followers.iter().any(|(follower, _)| *follower == address)) {
            let (first, guest, length, original) = (*first, entry.guest, entry.length, entry.original);
            // What was left over of the group is the new site's own.
            if let Some(guest) = guest {
                let joint = self.entries.get(&guest).and_then(|entry| entry.placement()?.joint);
                self.unplace(guest);
                self.open.insert(guest);
                if let Some(joint) = joint {
                    self.redo_reliers(joint.address, &joint.original);
                }
            }
            self.unplace(first);
            self.redo_reliers(first, &original[..usize::from(length)]);
            if let Some(entry) = self.entries.get_mut(&first) {
                entry.alone = true;
            }
            self.open.insert(first);
        }
    }
}
