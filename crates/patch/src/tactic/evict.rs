//! Moves an instruction for the sake of another one's jump.

use std::ops::RangeInclusive;

use crate::{Mode, displace_in};

use super::arrange::{WINDOW, is_movable};
use super::find_pad::Pages;
use super::image::Change;
use super::pattern;
use super::placement::LONGEST;
use super::planner::{Planner, State};
use super::{Code, Purpose, Space, Tactic};
use crate::tactic::placement::{JUMP, PREFIXES, Placement, SecondJump, pads_allowed};

/// The range of a short jump, slightly reduced.
const SHORT: u64 = 127;
/// How many following instructions [`Planner::evict_some`] considers.
const AMONG: usize = 5;
/// How far above a site [`Planner::evict_successors`] moves instructions.
const FAR: u64 = 2 * LONGEST as u64;
/// The least length of an instruction that has spare bytes behind its jump.
const HOST_LENGTH: usize = JUMP + 1;

impl Planner {
    /// Moves the following instructions, as few as possible within `counts`.
    pub(super) fn evict_successors(
        &mut self,
        code: &Code<'_>,
        space: &Space<'_>,
        address: u64,
        counts: RangeInclusive<usize>,
    ) -> bool {
        let (mut open, mut at) = (vec![address], address);
        while open.len() <= *counts.end() {
            let Some(next) = self.end_of(at).filter(|next| *next < address + FAR) else { break };
            if self.entries.contains_key(&next) {
                // Already moved; `rearrange` has tried it.
                at = next;
                continue;
            }
            if !code.is_instruction(next) || !self.open_neighbour(code, next) {
                break;
            }
            open.push(next);
            at = next;
            if open.len() <= *counts.start() {
                continue;
            }
            for depth in 0..2 {
                let window = self.window(&open, depth);
                if window.len() <= WINDOW && self.place_window(code, space, &window) {
                    self.made_by(address, Tactic::SuccessorEvicted);
                    return true;
                }
            }
        }
        for neighbour in &open[1..] {
            self.entries.remove(neighbour);
        }
        false
    }

    /// Sets the tactic that gave a site its jump.
    fn made_by(&mut self, address: u64, tactic: Tactic) {
        if let Some(State::Jump(placement)) = self.entries.get_mut(&address).map(|entry| &mut entry.state) {
            placement.tactic = tactic;
        }
    }

    /// Moves some of the following instructions, but not all: the bytes of one that stays may fit
    /// better than any jump.
    pub(super) fn evict_some(&mut self, code: &Code<'_>, space: &Space<'_>, address: u64) -> bool {
        let mut all = Vec::new();
        let mut at = address;
        while all.len() < AMONG {
            let length = match self.end_of(at) {
                Some(end) => end - at,
                None => code.rest(at).map_or(0, |bytes| {
                    displace_in(Mode::Bits64, bytes, at).map_or(0, |displaced| displaced.length() as u64)
                }),
            };
            let next = at + length;
            if length == 0 || !code.is_instruction(next) {
                break;
            }
            all.push(next);
            at = next;
        }
        // Instructions already moved may get other jumps.
        let placed: Vec<u64> = self.entries.range(address + 1..at + 1).map(|(other, _)| *other).collect();
        let placed: Vec<u64> =
            placed.into_iter().filter(|other| self.entries.get(other).is_some_and(is_movable)).collect();
        all.retain(|next| !self.entries.contains_key(next));
        for chosen in 0u32..1 << all.len() {
            // The first ones without a gap have been tried.
            if (chosen + 1).is_power_of_two() && placed.is_empty() {
                continue;
            }
            let chosen = all.iter().enumerate().filter(|(at, _)| chosen >> at & 1 == 1);
            let mut open = vec![address];
            for (_, next) in chosen {
                if !self.open_neighbour(code, *next) {
                    break;
                }
                open.push(*next);
            }
            let mut window = self.window(&open, 0);
            window.extend(&placed);
            window.sort_unstable();
            window.dedup();
            if window.len() > 1 && window.len() <= WINDOW && self.place_window(code, space, &window) {
                self.made_by(address, Tactic::SuccessorEvicted);
                return true;
            }
            for neighbour in &open[1..] {
                self.entries.remove(neighbour);
            }
        }
        false
    }

    /// Finds an instruction nearby with spare bytes behind its jump, or moves one to get them.
    pub(super) fn evict_neighbour(&mut self, code: &Code<'_>, space: &Space<'_>, address: u64) -> bool {
        let Some(length) = self.entries.get(&address).map(|entry| usize::from(entry.length)) else {
            return false;
        };
        // The first byte becomes `eb`; the second is the distance, and for a one-byte instruction
        // it is the byte that follows.
        let first = self.image.byte(address);
        if first.change != Change::None || first.relied > 0 && first.value != 0xeb {
            return false;
        }
        let Some(given) = self.short_distance(code, address, length) else { return false };
        let (low, high) = match given {
            Some(distance) => {
                let to = (address + 2).wrapping_add_signed(distance.into());
                (to.saturating_sub(LONGEST as u64), to)
            }
            None => (address.saturating_sub(SHORT), address + SHORT),
        };
        if self.in_padding(code, space, address, given) {
            return true;
        }
        // Hosts already moved cost nothing more.
        let moved: Vec<u64> = self.entries.range(low..=high).map(|(host, _)| *host).collect();
        for host in moved {
            if self.join(code, space, address, host) {
                return true;
            }
        }
        let from = code.instructions.partition_point(|other| *other < low);
        for (at, host) in code.instructions[from..].iter().enumerate().take_while(|(_, host)| **host <= high)
        {
            let next = code.instructions.get(from + at + 1).copied().unwrap_or(*host);
            if !self.may_host(code, space, *host, next) || !self.open_host(code, *host) {
                continue;
            }
            if self.place(code, space, *host, Pages::Used) {
                if self.join(code, space, address, *host) {
                    return true;
                }
                self.unplace(*host);
            }
            self.entries.remove(host);
        }
        false
    }

    /// The same for an instruction of one byte, with the next one moved too: the first byte of the
    /// next one's jump, any of several prefixes, is the distance of the short jump.
    pub(super) fn evict_neighbour_and_successor(
        &mut self,
        code: &Code<'_>,
        space: &Space<'_>,
        address: u64,
    ) -> bool {
        let second = address + 1;
        if self.end_of(address) != Some(second)
            || !code.is_instruction(second)
            || !self.image.byte(second).is_free()
            || !self.open_neighbour(code, second)
        {
            return false;
        }
        for first in PREFIXES {
            // Forces the next instruction's jump to begin with this byte.
            self.image.rely(second, first);
            let found = self.evict_neighbour(code, space, address);
            let placed = found && self.place(code, space, second, Pages::Fresh);
            if found && !placed {
                self.unplace(address);
            }
            self.image.release(second);
            if placed {
                return true;
            }
        }
        self.entries.remove(&second);
        false
    }

    /// Whether the instruction from `start` to `end` may leave spare bytes for a second jump that
    /// leads to usable memory.
    fn may_host(&self, code: &Code<'_>, space: &Space<'_>, start: u64, end: u64) -> bool {
        (start + JUMP as u64..end.min(start + LONGEST as u64)).any(|at| {
            let pattern = self.pattern(code, at + 1, end);
            pattern.is_some_and(|pattern| self.pads.is_plausible(&pattern, pads_allowed(space)))
        })
    }

    /// Puts the second jump of an open entry in the spare bytes of `host`.
    fn join(&mut self, code: &Code<'_>, space: &Space<'_>, address: u64, host: u64) -> bool {
        let Some(entry) = self.entries.get(&host) else { return false };
        let Some(placement) = entry.placement().filter(|placement| placement.joint.is_none()) else {
            return false;
        };
        let host_end = host + u64::from(entry.length);
        let taken = placement.length() as u64;
        if entry.guest.is_some() || host == address {
            return false;
        }
        // If the host has just been moved, its own bytes may be relied on.
        let Some(length) = self.entries.get(&address).map(|entry| usize::from(entry.length)) else {
            return false;
        };
        let Some(given) = self.short_distance(code, address, length) else { return false };
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
            let free = (at..host_end).all(|byte| self.image.byte(byte).is_free());
            let Some(pattern) = self.pattern(code, at + 1, host_end).filter(|_| free) else { continue };
            let allowed = pads_allowed(space);
            let pad = self
                .pads
                .find(&pattern, allowed, Pages::Used, &mut self.luck)
                .or_else(|| self.pads.find(&pattern, allowed, Pages::Fresh, &mut self.luck));
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
                *value = code.byte(byte).unwrap_or_default();
            }
            let joint = SecondJump { address: at, host: Some(host), host_end, bytes: jump, original };
            let tactic = Tactic::NeighbourEvicted;
            self.commit(
                address,
                Placement { tactic, prefixes: 0, bytes, pad: Some(pad), joint: Some(joint), group: None },
            );
            return true;
        }
        false
    }

    /// The distance of a short jump at `address`: `Some(None)` if it can be chosen, `None` if the
    /// byte is unusable.
    fn short_distance(&self, code: &Code<'_>, address: u64, length: usize) -> Option<Option<i8>> {
        let second = address + 1;
        let pattern = self.pattern(code, second, address + length as u64)?;
        Some(pattern.bytes[0].map(u8::cast_signed))
    }

    /// Makes an entry for an instruction that has spare bytes when moved.
    fn open_host(&mut self, code: &Code<'_>, address: u64) -> bool {
        if !self.open_neighbour(code, address) {
            return false;
        }
        let long = self.entries.get(&address).is_some_and(|entry| usize::from(entry.length) >= HOST_LENGTH);
        if !long {
            self.entries.remove(&address);
        }
        long
    }

    /// Makes an entry for an instruction that is not a site, if it can be moved.
    fn open_neighbour(&mut self, code: &Code<'_>, address: u64) -> bool {
        let Some(bytes) = code.rest(address) else { return false };
        let Ok(displaced) = displace_in(Mode::Bits64, bytes, address) else { return false };
        let end = address + displaced.length() as u64;
        if displaced.enters_kernel()
            || displaced.can_set_trap_flag()
            || self.limits.shadow_stacks && displaced.needs_plain_stack()
            || code.keeps(address, end)
            || code.is_entered(address, end)
            || code.is_divided(address, end)
            || code.is_inside(address)
            || !self.is_untouched(address, end)
        {
            return false;
        }
        let mut original = [0; LONGEST];
        original[..displaced.length()].copy_from_slice(displaced.original());
        self.open_entry(address, displaced.length(), Purpose::Neighbour, original);
        true
    }

    fn end_of(&self, address: u64) -> Option<u64> {
        self.entries.get(&address).map(|entry| address + u64::from(entry.length))
    }
}
