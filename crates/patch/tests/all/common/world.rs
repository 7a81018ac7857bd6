//! A program as bytes: applies plans, and checks where each of its instructions leads.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::time::{Duration, Instant};

use super::flow::targets;
use dprobes_patch::tactic::{Code, Flow, Jump, Limits, Plan, Planner, Purpose, Removal, Site, Space, Write};
use iced_x86::{Code as Opcode, Decoder, DecoderOptions, InstructionInfoFactory, Mnemonic};

/// The expected state of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Jump,
    Trap,
}

pub struct World {
    pub planner: Planner,
    pub address: u64,
    pub original: Vec<u8>,
    pub instructions: Vec<u64>,
    pub entered: Vec<u64>,
    pub kept: Vec<Range<u64>>,
    /// The claimed padding.
    pub padding: Vec<Range<u64>>,
    /// Functions and targets, if control flow is proven.
    pub flow: Option<(Vec<Range<u64>>, Vec<u64>)>,
    pub free: Vec<Range<u64>>,
    pub trampolines: Range<u64>,
    /// The trampolines of moved instructions.
    homes: HashMap<u64, u64>,
    /// The current code.
    bytes: Vec<u8>,
    /// The bytes of landing pads, as written.
    pads: HashMap<u64, u8>,
    mapped: Vec<Range<u64>>,
    pub jumps: BTreeMap<u64, Jump>,
    pub sites: BTreeMap<u64, Expected>,
}

/// The code of a program, and its surroundings.
pub struct Layout {
    pub address: u64,
    pub free: Vec<Range<u64>>,
    pub trampolines: Range<u64>,
}

impl Layout {
    /// A library between others, as the system lays them out: one below the other, with small gaps,
    /// and gigabytes free below the last and above the first.
    pub fn library(length: usize) -> Layout {
        Layout::library_at(0x7f3a_5c2f_6000, length)
    }

    /// The same without address randomization: almost nothing is free above.
    pub fn highest(length: usize) -> Layout {
        Layout::library_at(0x7fff_f7df_6000, length)
    }

    fn library_at(address: u64, length: usize) -> Layout {
        let end = address + (length as u64).next_multiple_of(4096) + 0x6_0000;
        let base = address & !0xfff_ffff;
        Layout {
            address,
            free: vec![
                0x1_0000..0x5555_5555_4000,
                0x5655_5555_4000..address - 0x1b_6000,
                address - 0x1a_6000..address - 0x2_6000,
                end..end + 0x3000,
                end + 0x4000..end + 0x5_0000,
                base + 0x1000_0000..0x7fff_ff00_0000.max(base + 0x1000_0000),
            ],
            trampolines: address - 0x180_0000..address - 0x100_0000,
        }
        .without_trampolines()
    }

    /// A program that is not position-independent: nothing is free below it, and not far above is
    /// its heap, which needs room to grow.
    pub fn fixed(length: usize) -> Layout {
        let end = 0x40_1000 + (length as u64).next_multiple_of(4096) + 0x40_0000;
        Layout {
            address: 0x40_1000,
            free: vec![0x1_0000..0x40_0000, end..0x1c3_4000.max(end), 0x1200_0000..0x7fff_f7c4_0000],
            trampolines: 0x1400_0000..0x1480_0000,
        }
        .without_trampolines()
    }

    /// A process that has almost no memory free.
    pub fn crowded(length: usize) -> Layout {
        let mut layout = Layout::library(length);
        layout.free =
            (0..64).map(|number| 0x7f3a_1000_0000 + number * 0x123_7000).map(|at| at..at + 0x9000).collect();
        layout.without_trampolines()
    }

    fn without_trampolines(mut self) -> Layout {
        let hole = self.trampolines.clone();
        let mut free = Vec::new();
        for range in self.free {
            free.push(range.start..range.end.min(hole.start).max(range.start));
            free.push(range.start.max(hole.end).min(range.end)..range.end);
        }
        self.free = free.into_iter().filter(|range| !range.is_empty()).collect();
        self
    }
}

impl World {
    pub fn new(layout: Layout, original: Vec<u8>, instructions: Vec<u64>, mappings: usize) -> World {
        let mut entered = targets(&original, layout.address, &instructions);
        entered.retain(|target| instructions.binary_search(target).is_err());
        World {
            planner: Planner::new(Limits { mappings, shadow_stacks: false, few_addresses: false }),
            address: layout.address,
            bytes: original.clone(),
            entered,
            padding: Vec::new(),
            original,
            instructions,
            kept: Vec::new(),
            flow: None,
            free: layout.free,
            trampolines: layout.trampolines,
            homes: HashMap::new(),
            pads: HashMap::new(),
            mapped: Vec::new(),
            jumps: BTreeMap::new(),
            sites: BTreeMap::new(),
        }
    }

    pub fn site(&self, address: u64) -> Site {
        let bytes = self.at(&self.original, address);
        let length = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode().len();
        Site { address, length, jump: true }
    }

    fn at<'a>(&self, bytes: &'a [u8], address: u64) -> &'a [u8] {
        let rest = &bytes[(address - self.address) as usize..];
        &rest[..rest.len().min(15)]
    }

    /// Plans, and applies the plan.
    pub fn plan(&mut self, sites: &[Site]) -> Plan {
        let (plan, _) = self.plan_only(sites);
        // Sites asked for get new trampolines.
        for site in sites {
            self.homes.remove(&site.address);
        }
        self.apply(&plan);
        plan
    }

    /// Adds room for trampolines in front, and uses it next. False if landing pads are in the way.
    pub fn grow(&mut self, by: u64) -> bool {
        let start = self.trampolines.start.saturating_sub(by);
        let hole = start..self.trampolines.start;
        let meets = |range: &Range<u64>| range.start < hole.end && hole.start < range.end;
        if start < 0x1_0000 || self.mapped.iter().any(meets) || hole.contains(&self.address) {
            return false;
        }
        self.trampolines.start = start;
        let parts = |range: Range<u64>| {
            [range.start..range.end.min(hole.start), range.start.max(hole.end)..range.end]
        };
        self.free = std::mem::take(&mut self.free).into_iter().flat_map(parts).collect();
        self.free.retain(|range| !range.is_empty());
        true
    }

    /// Makes a plan without applying it; returns its duration.
    pub fn plan_only(&mut self, sites: &[Site]) -> (Plan, Duration) {
        let code = Code {
            address: self.address,
            bytes: &self.original,
            instructions: &self.instructions,
            entered: &self.entered,
            padding: &self.padding,
            kept: &self.kept,
            flow: self.flow.as_ref().map(|(functions, targets)| Flow { functions, targets }),
        };
        let space = Space { free: &self.free, trampolines: self.trampolines.clone() };
        let start = Instant::now();
        let plan = self.planner.plan(&code, &space, sites);
        (plan, start.elapsed())
    }

    /// The trampoline of an instruction, at an address of its own.
    fn trampoline(&self, address: u64) -> u64 {
        let next = self.trampolines.start + (address - self.address);
        self.homes.get(&address).copied().unwrap_or(next)
    }

    fn apply(&mut self, plan: &Plan) {
        for range in &plan.map {
            assert!(
                range.start.is_multiple_of(4096) && range.end.is_multiple_of(4096) && range.start < range.end
            );
            let home = self.free.iter().position(|free| free.start <= range.start && range.end <= free.end);
            let home = self.free.remove(home.unwrap_or_else(|| panic!("{range:x?} is not free")));
            self.free.extend(
                [home.start..range.start, range.end..home.end].into_iter().filter(|part| !part.is_empty()),
            );
            self.mapped.push(range.clone());
        }
        self.free.sort_by_key(|range| range.start);
        for write in &plan.restore {
            self.write(write);
            self.jumps.remove(&write.address);
        }
        for pad in &plan.pads {
            self.forget_pad(*pad);
        }
        for jump in &plan.jumps {
            let trampoline = self.trampoline(jump.address);
            self.homes.insert(jump.address, trampoline);
            let old = self.jumps.get(&jump.address).and_then(|old| old.pad);
            if let Some(pad) = old.filter(|_| old == jump.pad) {
                self.forget_pad(pad);
            }
            for write in jump.code(trampoline).expect("the trampoline is in reach") {
                self.write(&write);
            }
            if let Some(pad) = jump.pad(trampoline) {
                for (at, byte) in (pad.address..).zip(pad.bytes) {
                    assert!(
                        self.mapped.iter().any(|range| range.contains(&at)),
                        "pad at {at:#x} is not mapped"
                    );
                    // Trampolines differ, so two pads at one address differ too.
                    let other = self.pads.insert(at, byte);
                    assert!(other.is_none_or(|other| other == byte), "two pads at {at:#x}");
                }
            }
            self.jumps.insert(jump.address, jump.clone());
            match jump.purpose {
                Purpose::Site => self.sites.insert(jump.address, Expected::Jump),
                Purpose::Neighbour => self.sites.remove(&jump.address),
            };
        }
        for (address, _) in &plan.traps {
            self.write(&Write { address: *address, bytes: vec![0xcc] });
            self.jumps.remove(address);
            self.sites.insert(*address, Expected::Trap);
        }
    }

    pub fn remove(&mut self, sites: &[u64]) -> Removal {
        let removal = self.planner.remove(sites);
        for write in &removal.restore {
            self.write(write);
            self.jumps.remove(&write.address);
            self.homes.remove(&write.address);
        }
        for pad in &removal.pads {
            self.forget_pad(*pad);
        }
        for site in sites {
            self.sites.remove(site);
        }
        removal
    }

    /// Unmaps all pages of pads.
    pub fn forget_pages(&mut self) {
        self.free.append(&mut self.mapped);
        self.free.sort_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in std::mem::take(&mut self.free) {
            match merged.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => merged.push(range),
            }
        }
        self.free = merged;
    }

    fn forget_pad(&mut self, pad: u64) {
        for at in pad..pad + 5 {
            assert!(self.pads.remove(&at).is_some(), "no pad at {at:#x}");
        }
    }

    fn write(&mut self, write: &Write) {
        let start = (write.address - self.address) as usize;
        self.bytes[start..start + write.bytes.len()].copy_from_slice(&write.bytes);
    }

    /// Follows jumps from `address` to the first other instruction; returns its address.
    fn follow(&self, mut address: u64) -> u64 {
        for _ in 0..4 {
            let pad: Vec<u8> = (address..address + 5).map_while(|at| self.pads.get(&at).copied()).collect();
            let inside = address >= self.address && address < self.address + self.bytes.len() as u64;
            let bytes = if inside { self.at(&self.bytes, address) } else { &pad };
            let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::AMD).decode();
            if !matches!(instruction.code(), Opcode::Jmp_rel32_64 | Opcode::Jmp_rel8_64) {
                return address;
            }
            address = instruction.near_branch_target();
            if self.trampolines.contains(&address) {
                return address;
            }
        }
        panic!("jumps without end from {address:#x}");
    }

    /// Checks that every instruction leads where it must: a site to its trampoline or a trap, a
    /// moved neighbour to its copy, and that all others are unchanged.
    pub fn check(&self) {
        for jump in self.jumps.values() {
            let code = jump.code(self.trampoline(jump.address)).expect("the trampoline is in reach");
            for joint in code.iter().map(|write| write.address).filter(|at| *at != jump.address) {
                // A thread that has executed a breakpoint is one byte behind it.
                let before = self.instructions.binary_search(&(joint - 1)).is_ok();
                assert!(!before || self.site(joint - 1).length > 1, "a jump on the way at {joint:#x}");
            }
        }
        let grouped: HashMap<u64, u64> = self
            .jumps
            .values()
            .flat_map(|jump| jump.followers.iter().map(|follower| (follower.0, jump.address)))
            .collect();
        for address in &self.instructions {
            if let Some(first) = grouped.get(address) {
                self.check_grouped(*first, *address);
                continue;
            }
            let length = self.site(*address).length;
            let (was, is) = (self.at(&self.original, *address), self.at(&self.bytes, *address));
            let untouched = was[..length.min(was.len())] == is[..length.min(is.len())];
            // Nobody executes it.
            if self.padding.iter().any(|padding| padding.contains(address))
                && !self.sites.contains_key(address)
            {
                continue;
            }
            match self.sites.get(address) {
                Some(Expected::Trap) => assert_eq!(is[0], 0xcc, "{address:#x} is to be trapped"),
                Some(Expected::Jump) => {
                    assert_eq!(
                        self.follow(*address),
                        self.trampoline(*address),
                        "site at {address:#x}: {is:02x?}"
                    );
                }
                None if untouched => {}
                // A breakpoint that had to stay.
                None if is[0] == 0xcc && was[0] != 0xcc => {}
                None => {
                    assert!(
                        self.jumps.contains_key(address),
                        "{address:#x} was changed: {was:02x?} {is:02x?}"
                    );
                    assert_eq!(
                        self.follow(*address),
                        self.trampoline(*address),
                        "neighbour at {address:#x}: {is:02x?}"
                    );
                }
            }
        }
    }

    /// Checks that nothing jumps to an instruction that is moved with the one at `first`.
    fn check_grouped(&self, first: u64, address: u64) {
        let (functions, targets) = self.flow.as_ref().expect("nothing is grouped without proof");
        assert!(functions.iter().any(|function| function.contains(&first) && function.contains(&address)));
        assert!(!targets.contains(&address), "{address:#x} is a target");
        assert!(!self.sites.contains_key(&address), "{address:#x} is a site");
        let before =
            self.instructions.iter().rev().find(|other| **other < address).expect("the first is before");
        let before =
            Decoder::with_ip(64, self.at(&self.original, *before), *before, DecoderOptions::NONE).decode();
        assert_ne!(before.mnemonic(), Mnemonic::Call, "a call returns to {address:#x}");
        let follower =
            Decoder::with_ip(64, self.at(&self.original, address), address, DecoderOptions::NONE).decode();
        let memory = InstructionInfoFactory::new().info(&follower).used_memory().len();
        assert_eq!(memory, 0, "{follower} at {address:#x} can fault");
    }

    /// Checks that nothing is changed.
    pub fn check_pristine(&self) {
        assert!(self.bytes == self.original, "bytes differ");
        assert!(self.pads.is_empty(), "{} bytes of pads are left", self.pads.len());
    }
}
