//! The jump of one instruction: finds one that fits its surroundings.

use super::Tactic;
use super::find_pad::Pages;
use super::image::Change;
use super::pattern::{self, Pattern};
use super::placed::State;
use super::placement::LONGEST;
use super::search::Search;
use crate::tactic::placement::{JUMP, PREFIXES, Placement, REPEATED, pads_allowed, reaches};

/// The most prefixes of a jump within 15 bytes.
const MAX_PREFIXES: usize = LONGEST - JUMP;

/// What a byte of a jump can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteChoice {
    Given(u8),
    Choice,
    /// It will be set, but not by the planner; or there is no such byte.
    Unusable,
}

impl Search<'_> {
    /// Gives an open entry a jump, with everything around it left as it is.
    pub(super) fn give_jump(&mut self, address: u64, pages: Pages) -> bool {
        let Some(entry) = self.placed.entries.get(&address) else { return false };
        let (length, first) = (usize::from(entry.length), usize::from(entry.prefixes));
        let most = (length - 1).min(MAX_PREFIXES);
        let counts = || std::iter::once(first).chain((0..=most).filter(move |count| *count != first));
        let rounds: &[Pages] = match pages {
            Pages::Used => &[Pages::Used],
            Pages::Fresh => &[Pages::Used, Pages::Fresh],
        };
        for pages in rounds {
            for prefixes in counts() {
                if let Some(placement) = self.candidate(address, prefixes, *pages) {
                    self.placed.commit(address, placement);
                    return true;
                }
            }
        }
        false
    }

    /// Finds a jump with this number of prefixes.
    fn candidate(&mut self, address: u64, prefixes: usize, pages: Pages) -> Option<Placement> {
        let entry = self.placed.entries.get(&address)?;
        let length = usize::from(entry.length);
        let mut bytes = [0; LONGEST];
        for (at, byte) in bytes.iter_mut().enumerate().take(prefixes + 1) {
            let known = self.placed.image.byte(address + at as u64);
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
        let free = own && (field..end).all(|at| self.placed.image.byte(at).is_free());
        let punned = if own { Tactic::Plain } else { Tactic::Punned };
        let tactic = if prefixes == 0 { punned } else { Tactic::Padded(prefixes as u8) };
        if free && reaches(end, self.space) {
            return Some(Placement {
                tactic,
                prefixes: prefixes as u8,
                bytes,
                pad: None,
                joint: None,
                group: None,
            });
        }
        let pattern = self.pattern(field, address + length as u64)?;
        let pad = self.placed.pads.find(&pattern, pads_allowed(self.space), pages, &mut self.luck)?;
        bytes[prefixes + 1..prefixes + JUMP].copy_from_slice(&pattern::distance(end, pad)?.to_le_bytes());
        Some(Placement { tactic, prefixes: prefixes as u8, bytes, pad: Some(pad), joint: None, group: None })
    }

    /// What the four bytes at `field` can be; those before `end` belong to the jump's own
    /// instruction.
    pub(super) fn pattern(&self, field: u64, end: u64) -> Option<Pattern> {
        let mut bytes = [None; 4];
        for (at, byte) in (field..).zip(&mut bytes) {
            let known = self.placed.image.byte(at);
            *byte = match known.change {
                _ if known.relied > 0 => Some(known.value),
                Change::None if at < end => None,
                _ => match self.cell(at) {
                    ByteChoice::Given(value) => Some(value),
                    ByteChoice::Choice => None,
                    ByteChoice::Unusable => return None,
                },
            };
        }
        Some(Pattern { end: field + 4, bytes })
    }

    /// What a byte of another instruction can be.
    fn cell(&self, at: u64) -> ByteChoice {
        let known = self.placed.image.byte(at);
        match known.change {
            Change::Known => return ByteChoice::Given(known.value),
            Change::Unknown => return ByteChoice::Unusable,
            Change::None if known.relied > 0 => return ByteChoice::Given(known.value),
            Change::None => {}
        }
        let open =
            self.placed.entries.range(..=at).next_back().filter(|(address, entry)| {
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
        if self.code.keeps(at, at + 1) {
            return ByteChoice::Unusable;
        }
        self.code.byte(at).map_or(ByteChoice::Unusable, ByteChoice::Given)
    }
}
