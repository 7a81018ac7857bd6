//! Moves an instruction for the sake of another one's jump.

use std::ops::RangeInclusive;

use crate::{Mode, displace_in};

use super::arrange::{WINDOW, is_movable};
use super::find_pad::Pages;
use super::image::Change;
use super::pattern;
use super::placement::LONGEST;
use super::search::Search;
use super::{Purpose, Tactic};
use crate::tactic::placement::{JUMP, PREFIXES, Placement, SecondJump, pads_allowed};

/// The range of a short jump, slightly reduced.
const SHORT: u64 = 127;
/// How many following instructions [`Search::evict_some`] considers.
const AMONG: usize = 5;
/// How far above a site [`Search::evict_successors`] moves instructions.
const FAR: u64 = 2 * LONGEST as u64;
/// The least length of an instruction that has spare bytes behind its jump.
const HOST_LENGTH: usize = JUMP + 1;

impl Search<'_> {
    /// Moves the following instructions, as few as possible within `counts`.
    pub(super) fn evict_successors(&mut self, address: u64, counts: RangeInclusive<usize>) -> bool {
        let (mut open, mut at) = (vec![address], address);
        while open.len() <= *counts.end() {
            let Some(next) = self.placed.end_of(at).filter(|next| *next < address + FAR) else { break };
            if self.placed.entries.contains_key(&next) {
                // Already moved; `rearrange` has tried it.
                at = next;
                continue;
            }
            if !self.code.is_instruction(next) || !self.open_neighbour(next) {
                break;
            }
            open.push(next);
            at = next;
            if open.len() <= *counts.start() {
                continue;
            }
            for depth in 0..2 {
                let window = self.window(&open, depth);
                if window.len() <= WINDOW && self.place_window(&window) {
                    self.placed.made_by(address, Tactic::SuccessorEvicted);
                    return true;
                }
            }
        }
        for neighbour in &open[1..] {
            self.placed.entries.remove(neighbour);
        }
        false
    }

    /// Moves some of the following instructions, but not all: the bytes of one that stays may fit
    /// better than any jump.
    pub(super) fn evict_some(&mut self, address: u64) -> bool {
        let mut all = Vec::new();
        let mut at = address;
        while all.len() < AMONG {
            let length = match self.placed.end_of(at) {
                Some(end) => end - at,
                None => self.code.rest(at).map_or(0, |bytes| {
                    displace_in(Mode::Bits64, bytes, at).map_or(0, |displaced| displaced.length() as u64)
                }),
            };
            let next = at + length;
            if length == 0 || !self.code.is_instruction(next) {
                break;
            }
            all.push(next);
            at = next;
        }
        // Instructions already moved may get other jumps.
        let placed: Vec<u64> =
            self.placed.entries.range(address + 1..at + 1).map(|(other, _)| *other).collect();
        let placed: Vec<u64> = placed
            .into_iter()
            .filter(|other| self.placed.entries.get(other).is_some_and(is_movable))
            .collect();
        all.retain(|next| !self.placed.entries.contains_key(next));
        for chosen in 0u32..1 << all.len() {
            // The first ones without a gap have been tried.
            if (chosen + 1).is_power_of_two() && placed.is_empty() {
                continue;
            }
            let chosen = all.iter().enumerate().filter(|(at, _)| chosen >> at & 1 == 1);
            let mut open = vec![address];
            for (_, next) in chosen {
                if !self.open_neighbour(*next) {
                    break;
                }
                open.push(*next);
            }
            let mut window = self.window(&open, 0);
            window.extend(&placed);
            window.sort_unstable();
            window.dedup();
            if window.len() > 1 && window.len() <= WINDOW && self.place_window(&window) {
                self.placed.made_by(address, Tactic::SuccessorEvicted);
                return true;
            }
            for neighbour in &open[1..] {
                self.placed.entries.remove(neighbour);
            }
        }
        false
    }

    /// Finds an instruction nearby with spare bytes behind its jump, or moves one to get them.
    pub(super) fn evict_neighbour(&mut self, address: u64) -> bool {
        let Some(length) = self.placed.entries.get(&address).map(|entry| usize::from(entry.length)) else {
            return false;
        };
        // The first byte becomes `eb`; the second is the distance, and for a one-byte instruction
        // it is the byte that follows.
        let first = self.placed.image.byte(address);
        if first.change != Change::None || first.relied > 0 && first.value != 0xeb {
            return false;
        }
        let Some(given) = self.short_distance(address, length) else { return false };
        let (low, high) = match given {
            Some(distance) => {
                let to = (address + 2).wrapping_add_signed(distance.into());
                (to.saturating_sub(LONGEST as u64), to)
            }
            None => (address.saturating_sub(SHORT), address + SHORT),
        };
        if self.in_padding(address, given) {
            return true;
        }
        // Hosts already moved cost nothing more.
        let moved: Vec<u64> = self.placed.entries.range(low..=high).map(|(host, _)| *host).collect();
        for host in moved {
            if self.join(address, host) {
                return true;
            }
        }
        let from = self.code.instructions.partition_point(|other| *other < low);
        for (at, host) in
            self.code.instructions[from..].iter().enumerate().take_while(|(_, host)| **host <= high)
        {
            let next = self.code.instructions.get(from + at + 1).copied().unwrap_or(*host);
            if !self.may_host(*host, next) || !self.open_host(*host) {
                continue;
            }
            if self.give_jump(*host, Pages::Used) {
                if self.join(address, *host) {
                    return true;
                }
                self.placed.unplace(*host);
            }
            self.placed.entries.remove(host);
        }
        false
    }

    /// The same for an instruction of one byte, with the next one moved too: the first byte of the
    /// next one's jump, any of several prefixes, is the distance of the short jump.
    pub(super) fn evict_neighbour_and_successor(&mut self, address: u64) -> bool {
        let second = address + 1;
        if self.placed.end_of(address) != Some(second)
            || !self.code.is_instruction(second)
            || !self.placed.image.byte(second).is_free()
            || !self.open_neighbour(second)
        {
            return false;
        }
        for first in PREFIXES {
            // Forces the next instruction's jump to begin with this byte.
            self.placed.image.rely(second, first);
            let found = self.evict_neighbour(address);
            let placed = found && self.give_jump(second, Pages::Fresh);
            if found && !placed {
                self.placed.unplace(address);
            }
            self.placed.image.release(second);
            if placed {
                return true;
            }
        }
        self.placed.entries.remove(&second);
        false
    }

    /// Whether the instruction from `start` to `end` may leave spare bytes for a second jump that
    /// leads to usable memory.
    fn may_host(&self, start: u64, end: u64) -> bool {
        (start + JUMP as u64..end.min(start + LONGEST as u64)).any(|at| {
            let pattern = self.pattern(at + 1, end);
            pattern.is_some_and(|pattern| self.placed.pads.is_plausible(&pattern, pads_allowed(self.space)))
        })
    }

    /// Puts the second jump of an open entry in the spare bytes of `host`.
    fn join(&mut self, address: u64, host: u64) -> bool {
        let Some(entry) = self.placed.entries.get(&host) else { return false };
        let Some(placement) = entry.placement().filter(|placement| placement.joint.is_none()) else {
            return false;
        };
        let host_end = host + u64::from(entry.length);
        let taken = placement.length() as u64;
        if entry.guest.is_some() || host == address {
            return false;
        }
        // If the host has just been moved, its own bytes may be relied on.
        let Some(length) = self.placed.entries.get(&address).map(|entry| usize::from(entry.length)) else {
            return false;
        };
        let Some(given) = self.short_distance(address, length) else { return false };
        let end = address + length.max(2) as u64;
        for at in host + taken..host_end {
            // The second jump cannot rely on the bytes of the first.
            if at < end && at + JUMP as u64 > address {
                continue;
            }
            let Ok(distance) = i8::try_from(at as i128 - (address as i128 + 2)) else { continue };
            if given.is_some_and(|given| given != distance) {
                continue;
            }
            let free = (at..host_end).all(|byte| self.placed.image.byte(byte).is_free());
            let Some(pattern) = self.pattern(at + 1, host_end).filter(|_| free) else { continue };
            let allowed = pads_allowed(self.space);
            let pad = self
                .placed
                .pads
                .find(&pattern, allowed, Pages::Used, &mut self.luck)
                .or_else(|| self.placed.pads.find(&pattern, allowed, Pages::Fresh, &mut self.luck));
            let Some((pad, field)) = pad.and_then(|pad| Some((pad, pattern::distance(pattern.end, pad)?)))
            else {
                continue;
            };
            let mut bytes = [0; LONGEST];
            bytes[..2].copy_from_slice(&[0xeb, distance.cast_unsigned()]);
            let mut jump = [0xe9; JUMP];
            jump[1..].copy_from_slice(&field.to_le_bytes());
            let mut original = [0; JUMP];
            for (byte, value) in (at..).zip(&mut original) {
                *value = self.code.byte(byte).unwrap_or_default();
            }
            let joint = SecondJump { address: at, host: Some(host), host_end, bytes: jump, original };
            let tactic = Tactic::NeighbourEvicted;
            self.placed.commit(
                address,
                Placement { tactic, prefixes: 0, bytes, pad: Some(pad), joint: Some(joint), group: None },
            );
            return true;
        }
        false
    }

    /// The distance of a short jump at `address`: `Some(None)` if it can be chosen, `None` if the
    /// byte is unusable.
    fn short_distance(&self, address: u64, length: usize) -> Option<Option<i8>> {
        let second = address + 1;
        let pattern = self.pattern(second, address + length as u64)?;
        Some(pattern.bytes[0].map(u8::cast_signed))
    }

    /// Makes an entry for an instruction that has spare bytes when moved.
    fn open_host(&mut self, address: u64) -> bool {
        if !self.open_neighbour(address) {
            return false;
        }
        let long =
            self.placed.entries.get(&address).is_some_and(|entry| usize::from(entry.length) >= HOST_LENGTH);
        if !long {
            self.placed.entries.remove(&address);
        }
        long
    }

    /// Makes an entry for an instruction that is not a site, if it can be moved.
    fn open_neighbour(&mut self, address: u64) -> bool {
        let Some(bytes) = self.code.rest(address) else { return false };
        let Ok(displaced) = displace_in(Mode::Bits64, bytes, address) else { return false };
        let end = address + displaced.length() as u64;
        if displaced.enters_kernel()
            || displaced.can_set_trap_flag()
            || self.limits.shadow_stacks && displaced.needs_plain_stack()
            || self.code.keeps(address, end)
            || self.code.is_entered(address, end)
            || self.code.is_divided(address, end)
            || self.code.is_inside(address)
            || !self.placed.is_untouched(address, end)
        {
            return false;
        }
        let mut original = [0; LONGEST];
        original[..displaced.length()].copy_from_slice(displaced.original());
        self.placed.open_entry(address, displaced.length(), Purpose::Neighbour, original);
        true
    }
}
