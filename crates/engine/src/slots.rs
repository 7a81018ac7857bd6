//! Slot areas: memory in the process where displaced instructions run.
//!
//! There is one area for the sites of one module, within reach of their `rip`-relative operands;
//! readable and executable, never writable. Its slots are consecutive, [`SLOT`] bytes each.

use std::ops::{Range, RangeInclusive};

use image::Machine;
use layout::PAGE;
use process::Mapping;

use crate::mapping::Wanted;

mod spaces;

/// Bytes of a slot.
pub(crate) const SLOT: usize = patch::SLOT_CAPACITY;

/// A slot area that is mapped in a process.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    base: u64,
    size: u64,
    /// The address of the site of each slot.
    sites: Vec<u64>,
}

impl Area {
    /// The bytes to map for `slots` slots.
    pub(crate) fn size_for(slots: usize) -> u64 {
        ((slots * SLOT) as u64).next_multiple_of(PAGE)
    }

    /// An area that has just been mapped.
    pub(crate) fn new(base: u64, size: u64) -> Area {
        Area { base, size, sites: Vec::new() }
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Whether it is unused and meets a request for memory.
    pub(crate) fn satisfies(&self, wanted: &Wanted) -> bool {
        self.sites.is_empty()
            && self.size >= wanted.size
            && wanted.reach.contains(&self.base)
            && wanted.reach.contains(&(self.base + self.size - 1))
    }

    /// Allocates the next slot for a site. Returns its address.
    pub(crate) fn take(&mut self, site: u64) -> Option<u64> {
        let place = (self.sites.len() * SLOT) as u64;
        if place + SLOT as u64 > self.size {
            return None;
        }
        self.sites.push(site);
        Some(self.base + place)
    }

    /// Whether the area is among a process's mappings.
    pub(crate) fn is_among(&self, mappings: &[Mapping]) -> bool {
        mappings.iter().any(|mapping| {
            (mapping.start, mapping.end) == (self.base, self.base + self.size)
                && mapping.executable
                && !mapping.writable
                && mapping.path.is_none()
        })
    }

    /// The site whose slot contains `address`, and the offset in the slot.
    pub(crate) fn slot_at(&self, address: u64) -> Option<(u64, usize)> {
        let place = address.wrapping_sub(self.base);
        if place >= self.size {
            return None;
        }
        let place = place as usize;
        Some((*self.sites.get(place / SLOT)?, place % SLOT))
    }
}

/// A place where an area could be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) start: u64,
}

/// The lowest address that an ordinary process may map.
const LOWEST: u64 = 0x1_0000;
/// Room kept free above a heap and below a stack.
const GROWTH: u64 = 1 << 30;
/// Room kept free above a heap by small things that must be at certain addresses: landing pads.
/// Allocators that cannot grow the heap continue elsewhere.
const HEAP: u64 = 256 << 20;
/// The end of the addresses of a process.
const HIGHEST: u64 = 0x7fff_ffff_f000;
/// The end of the addresses of an i386 process under an x86-64 kernel.
const HIGHEST_32: u64 = 0xffff_d000;

/// The addresses at which a process of a machine may have slots.
pub(crate) fn range(machine: Machine) -> RangeInclusive<u64> {
    LOWEST..=(if machine == Machine::I386 { HIGHEST_32 } else { HIGHEST }) - 1
}

/// Unmapped places of `size` bytes within `reach`, nearest to `near` first. A page stays free on
/// either side. `taken` are the mappings by address, as (start, end, growth): room is kept above a
/// mapping that grows up (the heap) and below one that grows down (a stack).
pub(crate) fn gaps(
    taken: &[(u64, u64, Growth)],
    size: u64,
    near: u64,
    reach: &RangeInclusive<u64>,
) -> Vec<Gap> {
    let mut places = Vec::new();
    let mut low = (LOWEST, Growth::None);
    let ends = std::iter::once((HIGHEST, HIGHEST, Growth::None));
    for (start, end, growth) in taken.iter().copied().chain(ends) {
        let room_low = low.0 + if low.1 == Growth::Up { GROWTH } else { PAGE };
        let room_high = start.saturating_sub(if growth == Growth::Down { GROWTH } else { PAGE });
        let first = room_low.max(*reach.start()).next_multiple_of(PAGE);
        let last = room_high.min(reach.end().saturating_add(1)).saturating_sub(size) / PAGE * PAGE;
        if first <= last && room_high >= size {
            // The place in the gap that is nearest to the module.
            places.push(Gap { start: near.clamp(first, last) / PAGE * PAGE });
        }
        low = (end.max(low.0), growth);
    }
    places.sort_by_key(|gap| gap.start.abs_diff(near));
    places
}

/// The unmapped ranges within `reach`, in whole pages. Room is kept as in [`gaps`], but less above
/// heaps.
pub(crate) fn free(taken: &[(u64, u64, Growth)], reach: &Range<u64>) -> Vec<Range<u64>> {
    let mut places = Vec::new();
    let mut low = (LOWEST, Growth::None);
    let ends = std::iter::once((HIGHEST, HIGHEST, Growth::None));
    for (start, end, growth) in taken.iter().copied().chain(ends) {
        let room_low = low.0 + if low.1 == Growth::Up { HEAP } else { PAGE };
        let room_high = start.saturating_sub(if growth == Growth::Down { GROWTH } else { PAGE });
        let first = room_low.max(reach.start).next_multiple_of(PAGE);
        let last = room_high.min(reach.end) / PAGE * PAGE;
        if first < last {
            places.push(first..last);
        }
        low = (end.max(low.0), growth);
    }
    places
}

/// How a mapping may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// Not at all.
    None,
    /// Up: the heap.
    Up,
    /// Down: a stack.
    Down,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_keep_away_from_what_grows_and_stay_in_reach() {
        let taken = [
            (0x40_0000, 0x40_2000, Growth::None),
            (0x60_0000, 0x70_0000, Growth::Up),
            (0x7f00_0000_0000, 0x7f00_0010_0000, Growth::None),
            (0x7fff_0000_0000, 0x7fff_0010_0000, Growth::Down),
        ];
        let reach = 0..=0x8000_0000;
        let places = gaps(&taken, 0x1000, 0x40_0000, &reach);
        assert_eq!(places[0].start, 0x3f_e000, "nearest: just below, a page apart");
        assert_eq!(places[1].start, 0x40_3000, "then just above, a page apart");
        for gap in &places {
            assert!(gap.start + 0x1000 <= 0x8000_0001);
            assert!(gap.start < 0x60_0000 || gap.start > 0x70_0000 + (1 << 30) - 1);
        }
    }

    #[test]
    fn a_slots_owner_is_found_by_any_address_in_it() {
        let mut area = Area::new(0x1000, Area::size_for(2));
        assert_eq!(area.size(), 4096);
        let slot = area.take(0x4000).expect("room");
        assert_eq!(slot, 0x1000);
        assert_eq!(area.slot_at(slot + 47), Some((0x4000, 47)));
        assert_eq!(area.slot_at(slot + 48), None);
        assert_eq!(area.slot_at(slot - 1), None);
    }
}
