//! Slot areas: memory inside the process where displaced instructions run.
//!
//! One area per probed module, within reach of its `rip`-relative operands; readable and executable, never
//! writable. It begins with the stubs that touch memory on behalf of an emulated instruction, so that a fault is
//! raised and handled as the instruction's own; the slots follow, 32 bytes each:
//!
//! ```text
//! +0x00  8a 08              mov cl,[rax]         read: first byte
//!        8a 0a              mov cl,[rdx]         read: last page's first byte
//!        cc                 int3
//! +0x08  8a 0c 24           mov cl,[rsp]         the same through the stack segment
//!        8a 4d 00           mov cl,[rbp]
//!        cc                 int3
//! +0x10  f0 80 08 00        lock or byte [rax],0 write
//!        f0 80 0a 00        lock or byte [rdx],0
//!        cc                 int3
//! +0x20  f0 80 0c 24 00     lock or byte [rsp],0 the same through the stack segment
//!        f0 80 4d 00 00     lock or byte [rbp],0
//!        cc                 int3
//! +0x40  slot 0
//! +0x60  slot 1
//! ...
//! ```

use patch::Access;
use process::Registers;

/// Bytes of a slot: the longest is 15 for the instruction, 10 to mend a register and 5 for the jump back.
pub(crate) const SLOT: usize = 32;
/// Bytes of the stubs before the first slot.
const STUBS: usize = 0x40;
/// Bytes of a page.
const PAGE: u64 = 4096;

/// The stubs' bytes.
const STUB_CODE: [u8; STUBS] = {
    let mut code = [0xcc; STUBS];
    let stubs: [(usize, &[u8]); 4] = [
        (0x00, &[0x8a, 0x08, 0x8a, 0x0a]),
        (0x08, &[0x8a, 0x0c, 0x24, 0x8a, 0x4d, 0x00]),
        (0x10, &[0xf0, 0x80, 0x08, 0x00, 0xf0, 0x80, 0x0a, 0x00]),
        (0x20, &[0xf0, 0x80, 0x0c, 0x24, 0x00, 0xf0, 0x80, 0x4d, 0x00, 0x00]),
    ];
    let mut stub = 0;
    while stub < stubs.len() {
        let (place, bytes) = stubs[stub];
        let mut byte = 0;
        while byte < bytes.len() {
            code[place + byte] = bytes[byte];
            byte += 1;
        }
        stub += 1;
    }
    code
};

/// A slot area that is mapped in a process.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    base: u64,
    size: u64,
    /// For each slot, the address of its site.
    sites: Vec<u64>,
}

impl Area {
    /// Bytes to map for an area of `slots` slots.
    pub(crate) fn size_for(slots: usize) -> u64 {
        ((STUBS + slots * SLOT) as u64).next_multiple_of(PAGE)
    }

    /// The area that has just been mapped; its stubs are still to be written.
    pub(crate) fn new(base: u64, size: u64) -> Area {
        Area { base, size, sites: Vec::new() }
    }

    /// The stubs' bytes, to be written at the area's base.
    pub(crate) fn stubs() -> &'static [u8] {
        &STUB_CODE
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Takes the next free slot for a site: its address.
    pub(crate) fn take(&mut self, site: u64) -> Option<u64> {
        let place = (STUBS + self.sites.len() * SLOT) as u64;
        if place + SLOT as u64 > self.size {
            return None;
        }
        self.sites.push(site);
        Some(self.base + place)
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < self.size
    }

    /// The site whose slot holds `address`, and how many bytes into the slot it is.
    pub(crate) fn slot_at(&self, address: u64) -> Option<(u64, usize)> {
        let place = address.wrapping_sub(self.base);
        if !self.contains(address) || place < STUBS as u64 {
            return None;
        }
        let place = (place - STUBS as u64) as usize;
        Some((*self.sites.get(place / SLOT)?, place % SLOT))
    }

    /// Whether `address` is in the stubs.
    pub(crate) fn in_stubs(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < STUBS as u64
    }

    /// The registers with which a thread runs the stub that makes `access`.
    pub(crate) fn touch(&self, access: &Access, registers: &Registers) -> Registers {
        let first = access.address;
        let last = first.wrapping_add(access.size.max(1) as u64 - 1);
        // Where the access crosses into another page, a fault there is reported at that page's first byte.
        let second = if last / PAGE == first / PAGE { first } else { last / PAGE * PAGE };
        let mut registers = *registers;
        let stub = match (access.write, access.stack) {
            (false, false) => 0x00,
            (false, true) => 0x08,
            (true, false) => 0x10,
            (true, true) => 0x20,
        };
        registers.set_rip(self.base + stub);
        let mut general = registers.general();
        let (one, two) = if access.stack { (4, 5) } else { (0, 2) };
        general[one] = first;
        general[two] = second;
        registers.set_general(&general);
        registers
    }
}

/// Where an area could be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) start: u64,
}

/// The lowest address that an ordinary process may map.
const LOWEST: u64 = 0x1_0000;
/// The end of the addresses of a process.
const HIGHEST: u64 = 0x7fff_ffff_f000;

/// Unmapped places of `size` bytes within `reach`, nearest to `near` first. A page stays free on either side.
/// `taken` are the mappings in the order of their addresses, as (start, end, grows): nothing is placed above a
/// mapping that grows up (the heap) nor just below one that grows down (a stack).
pub(crate) fn gaps(
    taken: &[(u64, u64, Growth)],
    size: u64,
    near: u64,
    reach: &std::ops::RangeInclusive<u64>,
) -> Vec<Gap> {
    let mut places = Vec::new();
    let mut low = (LOWEST, Growth::None);
    let ends = std::iter::once((HIGHEST, HIGHEST, Growth::None));
    for (start, end, growth) in taken.iter().copied().chain(ends) {
        let room_low = low.0 + if low.1 == Growth::Up { 1 << 30 } else { PAGE };
        let room_high = start.saturating_sub(if growth == Growth::Down { 1 << 30 } else { PAGE });
        let first = room_low.max(*reach.start()).next_multiple_of(PAGE);
        let last = room_high.min(reach.end().saturating_add(1)).saturating_sub(size) / PAGE * PAGE;
        if first <= last && room_high >= size {
            // The place of the gap that is nearest to the module.
            places.push(Gap { start: near.clamp(first, last) / PAGE * PAGE });
        }
        low = (end.max(low.0), growth);
    }
    places.sort_by_key(|gap| gap.start.abs_diff(near));
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
        assert_eq!(places[0].start, 0x40_3000, "nearest: just above, a page apart");
        assert!(places.contains(&Gap { start: 0x3f_e000 }), "just below, a page apart");
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
        assert_eq!(slot, 0x1040);
        assert_eq!(area.slot_at(slot + 31), Some((0x4000, 31)));
        assert_eq!(area.slot_at(slot + 32), None);
        assert!(area.in_stubs(0x1020) && !area.in_stubs(slot));
    }
}
