//! Copies a planner's state to another process that has the same code at another address.
//!
//! Everything a plan writes encodes distances, which stay the same when code, landing pads and
//! trampolines move together. So a plan holds for every process that maps the same file, if the
//! memory it needs is free there.

use super::Limits;
use super::image::Image;
use super::pads::Pads;
use super::placed::{Entry, Placed, State};
use super::planner::Planner;
use crate::tactic::placement::Placement;

/// Modules move by multiples of this.
const PAGE: u64 = 4096;

impl Planner {
    /// The planner of a process where all code is `by` bytes higher and everything planned here has
    /// been applied. Call it only between plans.
    ///
    /// # Panics
    /// If `by` is not a multiple of the page size.
    #[must_use]
    pub fn moved(&self, by: u64) -> Planner {
        assert!(by.is_multiple_of(PAGE), "a module moves by whole pages");
        Planner { placed: self.placed.moved(by, &self.limits), limits: self.limits }
    }

    /// The program's byte at an address with a breakpoint that no jump relies on: putting this byte
    /// back removes the breakpoint.
    pub fn lone_trap(&self, address: u64) -> Option<u8> {
        let is_trap = |entry: &&Entry| matches!(entry.state, State::Trap(_)) && entry.guest.is_none();
        let entry = self.placed.entries.get(&address).filter(is_trap)?;
        (self.placed.image.byte(address).relied == 0).then_some(entry.original[0])
    }
}

impl Placed {
    fn moved(&self, by: u64, limits: &Limits) -> Placed {
        let entries = self.entries.iter();
        Placed {
            image: self.image.moved(by),
            pads: self.pads.moved(by),
            entries: entries.map(|(address, entry)| (address.wrapping_add(by), entry.moved(by))).collect(),
            ..Placed::new(limits)
        }
    }
}

impl Entry {
    fn moved(&self, by: u64) -> Entry {
        let state = match &self.state {
            State::Jump(placement) => State::Jump(placement.moved(by)),
            State::Open => State::Open,
            State::Trap(reason) => State::Trap(*reason),
        };
        Entry { state, guest: self.guest.map(|guest| guest.wrapping_add(by)), ..self.clone() }
    }
}

impl Placement {
    fn moved(&self, by: u64) -> Placement {
        let moved = |address: u64| address.wrapping_add(by);
        let mut placement = self.clone();
        placement.pad = self.pad.map(moved);
        if let Some(joint) = &mut placement.joint {
            joint.address = moved(joint.address);
            joint.host = joint.host.map(moved);
            joint.host_end = moved(joint.host_end);
        }
        if let Some(group) = &mut placement.group {
            group.followers.iter_mut().for_each(|(address, _)| *address = moved(*address));
        }
        placement
    }
}

impl Image {
    /// The same image, `by` bytes higher; whole pages, so parts stay aligned.
    fn moved(&self, by: u64) -> Image {
        self.each_part().fold(Image::default(), |mut image, (start, part)| {
            image.insert_part(start.wrapping_add(by), part.clone());
            image
        })
    }
}

impl Pads {
    /// The same pads, `by` bytes higher. The next plan says what is free.
    fn moved(&self, by: u64) -> Pads {
        self.by_pages(by / PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Code, Site, Space};
    use super::*;

    const START: u64 = 0x7000_0000_0000;
    const BY: u64 = 0x5_7000;

    /// Code of many short instructions and some longer ones.
    fn code() -> Vec<u8> {
        let one = [0x53, 0x8d, 0x04, 0x7f, 0x5b, 0x01, 0xf0, 0x48, 0x81, 0xec, 0, 1, 0, 0, 0x90, 0xc3];
        one.repeat(64)
    }

    /// Sites at the instructions with these numbers in each block of sixteen bytes.
    fn sites(start: u64, which: &[usize]) -> Vec<Site> {
        const LENGTHS: [(u64, usize); 7] = [(0, 1), (1, 3), (4, 1), (5, 2), (7, 7), (14, 1), (15, 1)];
        let of = |block: u64| {
            which.iter().map(move |&number| {
                let (offset, length) = LENGTHS[number];
                Site { address: start + 16 * block + offset, length, jump: number != 6 }
            })
        };
        (0..64).flat_map(of).collect()
    }

    /// Plans sites of the code at an address, with free memory around it.
    fn plan(planner: &mut Planner, start: u64, which: &[usize]) -> super::super::Plan {
        let bytes = code();
        const LENGTHS: [u64; 7] = [0, 1, 4, 5, 7, 14, 15];
        let instructions: Vec<u64> =
            (0..64).flat_map(|block| LENGTHS.map(|offset| start + 16 * block + offset)).collect();
        let free = [start - 0x7000_0000..start - 0x10_0000, start + 0x10_0000..start + 0x7000_0000];
        let code = Code {
            address: start,
            bytes: &bytes,
            instructions: &instructions,
            entered: &[],
            padding: &[],
            kept: &[],
            flow: None,
        };
        let trampolines = start - 0x10_0000..start - 0x8_0000;
        planner.plan(&code, &Space { free: &free, trampolines }, &sites(start, which))
    }

    #[test]
    fn what_is_planned_on_a_moved_planner_is_what_is_planned_there() {
        let limits = Limits { mappings: 1000, shadow_stacks: false, few_addresses: false };
        let (mut here, mut there) = (Planner::new(limits), Planner::new(limits));
        let first = plan(&mut here, START, &[0, 2, 6]);
        let other = plan(&mut there, START + BY, &[0, 2, 6]);
        let moved: Vec<_> = first.jumps.iter().map(|jump| jump.moved(BY)).collect();
        assert!(!moved.is_empty() && moved == other.jumps, "a plan moves with its code");
        let mut carried = here.moved(BY);
        assert_eq!(carried.mappings(), there.mappings());
        // Later plans and removals equal those of a process that planned everything itself.
        let next = plan(&mut carried, START + BY, &[1, 3, 4]);
        assert_eq!(next, plan(&mut there, START + BY, &[1, 3, 4]));
        let out: Vec<u64> = sites(START + BY, &[0, 1, 2]).iter().map(|site| site.address).collect();
        assert_eq!(carried.remove(&out), there.remove(&out));
    }

    #[test]
    fn a_trap_is_alone_unless_a_jump_relies_on_it() {
        let mut planner = Planner::new(Limits { mappings: 1000, shadow_stacks: false, few_addresses: false });
        plan(&mut planner, START, &[6]);
        assert!(planner.lone_trap(START + 15) == Some(0xc3) && planner.lone_trap(START + 14).is_none());
        let mut planner = Planner::new(Limits { mappings: 1000, shadow_stacks: false, few_addresses: false });
        plan(&mut planner, START, &[5, 6]);
        let relied = (0..64).filter(|block| planner.lone_trap(START + 16 * block + 15).is_none()).count();
        assert!(relied > 0, "a jump at the instruction before relies on a breakpoint's byte");
    }
}
