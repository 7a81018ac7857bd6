//! Puts jumps over and in the padding between functions.

use super::find_pad::Pages;
use super::pattern::{self, Pattern};
use super::placed::SHORT;
use super::placement::LONGEST;
use super::search::Search;
use super::{Code, Tactic};
use crate::tactic::placement::{Group, JUMP, Placement, SecondJump, pads_allowed, reaches};

impl Search<'_> {
    /// Gives an open entry a jump that extends over the padding behind it.
    pub(super) fn over_padding(&mut self, address: u64) -> bool {
        let Some(entry) = self.placed.entries.get(&address) else { return false };
        let single = entry.length;
        let (behind, end) = (address + u64::from(single), address + JUMP as u64);
        if behind >= end || !self.code.is_padding(behind, end) || !self.placed.is_untouched(behind, end) {
            return false;
        }
        let group = Group { single, length: JUMP as u8, followers: Vec::new() };
        self.place_over(address, group, Pages::Fresh, Tactic::OverPadding)
    }

    /// Puts the second jump of an open entry in padding nearby. `given`: the distance of the short
    /// jump, if it cannot be chosen.
    pub(super) fn in_padding(&mut self, address: u64, given: Option<i8>) -> bool {
        let (low, high) = (address.saturating_sub(SHORT), address + SHORT + 2);
        let from = self.code.padding.partition_point(|padding| padding.end <= low);
        for padding in self.code.padding[from..].iter().take_while(|padding| padding.start < high) {
            // From the end, since jumps over padding use its beginning. Not the first byte: after a
            // one-byte breakpoint before it, a thread there could not be told from one about to
            // execute this jump.
            let places = (padding.start + 1..(padding.end + 1).saturating_sub(JUMP as u64)).rev();
            for at in places {
                let Ok(distance) = i8::try_from(at as i128 - (address as i128 + 2)) else { continue };
                if given.is_some_and(|given| given != distance)
                    || !self.placed.is_untouched(at, at + JUMP as u64)
                    || !(at..at + JUMP as u64).all(|byte| self.placed.image.byte(byte).is_free())
                {
                    continue;
                }
                let Some((pad, field)) = self.way_from(at) else { continue };
                let mut bytes = [0; LONGEST];
                bytes[..2].copy_from_slice(&[0xeb, distance.cast_unsigned()]);
                let mut jump = [0xe9; JUMP];
                jump[1..].copy_from_slice(&field.to_le_bytes());
                let mut original = [0; JUMP];
                for (byte, value) in (at..).zip(&mut original) {
                    *value = self.code.byte(byte).unwrap_or_default();
                }
                let host_end = at + JUMP as u64;
                let joint = SecondJump { address: at, host: None, host_end, bytes: jump, original };
                let (tactic, pad) = (Tactic::InPadding, Some(pad));
                self.placed.commit(
                    address,
                    Placement { tactic, prefixes: 0, bytes, pad, joint: Some(joint), group: None },
                );
                return true;
            }
        }
        false
    }

    /// A landing pad for a whole jump at an address, and the distance to it.
    fn way_from(&mut self, at: u64) -> Option<(u64, i32)> {
        let end = at + JUMP as u64;
        let pattern = Pattern { end, bytes: [None; 4] };
        let allowed = pads_allowed(self.space);
        let pad = self
            .placed
            .pads
            .find(&pattern, allowed, Pages::Used, &mut self.luck)
            .or_else(|| self.placed.pads.find(&pattern, allowed, Pages::Fresh, &mut self.luck))?;
        reaches(end, self.space).then_some((pad, pattern::distance(end, pad)?))
    }
}

impl Code<'_> {
    /// Whether all of the addresses are padding that may be overwritten.
    fn is_padding(&self, start: u64, end: u64) -> bool {
        let at = self.padding.partition_point(|padding| padding.end <= start);
        self.padding.get(at).is_some_and(|padding| padding.start <= start && end <= padding.end)
            && !self.keeps(start, end)
    }
}
