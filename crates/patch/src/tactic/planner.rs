//! The planner: keeps track of the moved instructions of one process and makes plans.

use std::collections::{BTreeMap, BTreeSet};

use crate::flow::length;

use super::image::Image;
use super::pads::Pads;
use super::placement::LONGEST;
use super::random::Random;
use super::{Code, Jump, Limits, Plan, Purpose, Reason, Site, Space, Write};
use crate::tactic::placement::{JUMP, Placement, pads_allowed, reaches};

/// How many possibilities one plan examines: for each site, and a base number.
const EFFORT_FOR_EACH: usize = 32;
const EFFORT: usize = 200_000;
/// How many new jumps a plan gives an instruction before it traps it.
const MAX_REPLANS: u8 = 4;

/// The moved instructions of one process.
///
/// Plans build on each other: apply each before making the next. If a plan cannot be applied
/// (memory is no longer free), discard the planner and use a clone from before that plan, with the
/// current free memory.
#[derive(Clone, Debug)]
pub struct Planner {
    pub(super) image: Image,
    pub(super) pads: Pads,
    pub(super) entries: BTreeMap<u64, Entry>,
    pub(super) luck: Random,
    pub(super) limits: Limits,
    /// Entries that the current plan has touched, as they were before it.
    pub(super) before: BTreeMap<u64, Option<Entry>>,
    /// Unused pads of earlier plans; the current plan must not use them for other jumps.
    pub(super) held: BTreeSet<u64>,
    /// Addresses of entries still to be given a jump.
    pub(super) open: BTreeSet<u64>,
    /// Whether to try only pages already in use.
    pub(super) frugal: bool,
    /// The remaining number of tries for the current plan: there may be many sites for which
    /// nothing helps.
    pub(super) effort: usize,
}

/// An instruction that is moved, trapped, or about to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) length: u8,
    pub(super) purpose: Purpose,
    pub(super) state: State,
    pub(super) original: [u8; LONGEST],
    /// The entry whose second jump is in the spare bytes behind this one's jump.
    pub(super) guest: Option<u64>,
    /// For an instruction about to be moved: the number of prefixes of its jump, and the prefix
    /// byte.
    pub(super) prefixes: u8,
    pub(super) prefix: u8,
    /// Whether it was taken out of a group and must not be grouped again.
    pub(super) alone: bool,
    /// How many jumps the current plan has given it.
    pub(super) rounds: u8,
}

/// The state of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing yet.
    Open,
    Jump(Placement),
    Trap(Reason),
}

impl Entry {
    pub(super) fn placement(&self) -> Option<&Placement> {
        match &self.state {
            State::Jump(placement) => Some(placement),
            State::Open | State::Trap(_) => None,
        }
    }
}

impl Planner {
    /// A planner for one process in which nothing is moved.
    pub fn new(limits: Limits) -> Planner {
        Planner {
            image: Image::default(),
            pads: Pads::new(&limits),
            entries: BTreeMap::new(),
            luck: Random::new(),
            limits,
            before: BTreeMap::new(),
            held: BTreeSet::new(),
            open: BTreeSet::new(),
            frugal: false,
            effort: 0,
        }
    }

    /// Sets the limits from now on.
    pub fn allow(&mut self, limits: Limits) {
        self.limits = limits;
        self.pads.allow(&limits);
    }

    /// The planner of a process after all code with moved instructions was unmapped. Its pages for
    /// landing pads remain usable.
    #[must_use]
    pub fn emptied(&self) -> Planner {
        Planner { pads: self.pads.emptied(), ..Planner::new(self.limits) }
    }

    /// Takes over the landing pad pages of another planner of the same process.
    pub fn adopt(&mut self, emptied: Planner) {
        self.pads.adopt(emptied.pads);
    }

    /// Whether the instruction at an address is moved or trapped.
    pub fn has(&self, address: u64) -> bool {
        self.entries.contains_key(&address)
    }

    /// An upper bound of the mappings for the landing pads of all plans.
    pub fn mappings(&self) -> usize {
        self.pads.mappings()
    }

    /// Plans jumps for `sites`, in any order. Each site ends up in one of the plan's lists, even if
    /// it was planned before.
    pub fn plan(&mut self, code: &Code<'_>, space: &Space<'_>, sites: &[Site]) -> Plan {
        let mut plan = Plan::default();
        self.pads.begin(space.free);
        self.before.clear();
        self.held.clear();
        // Start from the same seed: sites that are removed and planned again find their old pages.
        self.luck = Random::new();
        self.effort = EFFORT + EFFORT_FOR_EACH * sites.len();
        let mut sorted = sites.to_vec();
        sorted.sort_unstable_by_key(|site| site.address);
        sorted.dedup_by_key(|site| site.address);
        let mut trapped = Vec::new();
        for site in &sorted {
            match self.admit(code, space, *site) {
                Ok(None) => {
                    self.open.insert(site.address);
                }
                Ok(Some(reason)) => trapped.push((site.address, reason)),
                Err(reason) => plan.refused.push((site.address, reason)),
            }
        }
        for (address, reason) in trapped {
            self.give_up(address, reason);
        }
        self.settle_open(code, space);
        self.try_again(code, space, &sorted);
        self.drop_unneeded_neighbours();
        self.conclude(&sorted, &mut plan);
        plan
    }

    /// Gives every open entry a jump or gives it up.
    fn settle_open(&mut self, code: &Code<'_>, space: &Space<'_>) {
        // From low addresses to high: a jump chooses the bytes that it shares with the jump above
        // it, which is then fitted to them. Entries to redo are below.
        while let Some(address) = self.open.pop_first() {
            self.pads.short = false;
            let Some(entry) = self.entries.get_mut(&address).filter(|entry| entry.state == State::Open)
            else {
                continue;
            };
            entry.rounds += 1;
            let patient = entry.rounds <= MAX_REPLANS;
            if !(patient && self.find_jump(code, space, address)) {
                let reason = if self.pads.short { Reason::Mappings } else { Reason::NoJump };
                self.give_up(address, reason);
            }
        }
    }

    /// Retries sites that found no jump: the entries above them have jumps by now, which may move.
    fn try_again(&mut self, code: &Code<'_>, space: &Space<'_>, sites: &[Site]) {
        for Site { address, .. } in sites.iter().filter(|site| site.jump) {
            let failed = |entry: &Entry| entry.state == State::Trap(Reason::NoJump);
            // A jump that relies on the breakpoint's byte needs it.
            if !self.entries.get(address).is_some_and(failed) || self.image.byte(*address).relied > 0 {
                continue;
            }
            self.touch(*address);
            self.image.change_back(*address);
            if let Some(entry) = self.entries.get_mut(address) {
                entry.state = State::Open;
            }
            if !self.find_jump(code, space, *address) {
                self.give_up(*address, Reason::NoJump);
            }
            self.settle_open(code, space);
        }
    }

    /// Makes an entry for a site. `Ok(None)`: give it a jump; `Ok(Some)`: trap it; `Err`: refuse
    /// it.
    fn admit(&mut self, code: &Code<'_>, space: &Space<'_>, site: Site) -> Result<Option<Reason>, Reason> {
        let end = site.address.checked_add(site.length as u64).ok_or(Reason::Outside)?;
        if self.entries.contains_key(&site.address) {
            let reaches = |entry: &Entry| {
                entry.placement().is_none_or(|placement| placement.reaches(site.address, space))
            };
            if !(site.jump && self.entries.get(&site.address).is_some_and(reaches)) {
                self.dismiss(site.address);
            }
            self.touch(site.address);
            let entry = self.entries.get_mut(&site.address).ok_or(Reason::Outside)?;
            entry.purpose = Purpose::Site;
            // Already planned: a trap stays, and so does a jump from which new trampolines can be
            // reached.
            return Ok(match entry.state {
                State::Trap(reason) => Some(reason),
                State::Jump(_) | State::Open if site.jump => None,
                State::Jump(_) | State::Open => Some(Reason::Asked),
            });
        }
        self.ungroup(site.address);
        let bytes = code.slice(site.address, site.length).ok_or(Reason::Outside)?;
        if site.length == 0 || site.length > LONGEST || !self.is_untouched(site.address, end) {
            return Err(Reason::Outside);
        }
        if code.keeps(site.address, end) {
            return Err(Reason::Kept);
        }
        let mut original = [0; LONGEST];
        original[..site.length].copy_from_slice(bytes);
        self.open_entry(site.address, site.length, Purpose::Site, original);
        if !site.jump {
            return Ok(Some(Reason::Asked));
        }
        if code.is_entered(site.address, end) || code.is_divided(site.address, end) {
            return Ok(Some(Reason::Entered));
        }
        Ok(code.reaches_into(site.address).then_some(Reason::Shared))
    }

    /// Whether any entry overlaps the addresses.
    pub(super) fn overlaps(&self, start: u64, end: u64) -> bool {
        self.entries
            .range(..end)
            .next_back()
            .is_some_and(|(address, entry)| address + u64::from(entry.length) > start)
    }

    /// Makes an entry for an instruction about to be moved.
    pub(super) fn open_entry(
        &mut self,
        address: u64,
        length: usize,
        purpose: Purpose,
        original: [u8; LONGEST],
    ) {
        self.touch(address);
        let entry = Entry {
            length: length as u8,
            purpose,
            state: State::Open,
            original,
            guest: None,
            prefixes: 0,
            prefix: 0x2e,
            alone: false,
            rounds: 0,
        };
        self.entries.insert(address, entry);
    }

    /// Saves an entry as it was before this plan, on the first call for it.
    pub(super) fn touch(&mut self, address: u64) {
        if !self.before.contains_key(&address) {
            self.before.insert(address, self.entries.get(&address).cloned());
        }
    }

    /// No jump was found for an open entry: traps a site, leaves a neighbour in place. Reopens the
    /// entries that rely on its bytes being different.
    pub(super) fn give_up(&mut self, address: u64, reason: Reason) {
        let Some(entry) = self.entries.get(&address).filter(|entry| entry.state == State::Open) else {
            return;
        };
        let (purpose, original, guest) = (entry.purpose, entry.original, entry.guest);
        let changed = match purpose {
            Purpose::Site => vec![0xcc],
            Purpose::Neighbour => original[..usize::from(entry.length)].to_vec(),
        };
        let mut others: Vec<u64> = guest.into_iter().collect();
        for (at, value) in (address..).zip(changed) {
            let byte = self.image.byte(at);
            if byte.relied > 0 && byte.value != value {
                others.extend(self.reliers(at, at + 1));
            }
        }
        for other in others {
            self.unplace(other);
            self.open.insert(other);
        }
        match purpose {
            Purpose::Neighbour => {
                self.entries.remove(&address);
            }
            Purpose::Site => {
                self.image.change(address, 0xcc);
                if let Some(entry) = self.entries.get_mut(&address) {
                    entry.state = State::Trap(reason);
                }
            }
        }
    }

    /// Fills the plan with all differences from before, and with the sites asked for.
    fn conclude(&mut self, asked: &[Site], plan: &mut Plan) {
        for (address, before) in std::mem::take(&mut self.before) {
            let old = before.as_ref().and_then(|before| Some((before, before.placement()?)));
            let now = self.entries.get_mut(&address);
            let new = now.as_ref().and_then(|entry| entry.placement());
            let same = new == old.map(|(_, placement)| placement);
            if let Some((before, placement)) = old.filter(|_| !same) {
                plan.restore.extend(placement.undone(address, before));
                if let Some(pad) = placement.pad.filter(|pad| new.and_then(|new| new.pad) != Some(*pad)) {
                    self.pads.give_back(pad);
                    plan.pads.push(pad);
                }
            }
            let Some(entry) = now else { continue };
            entry.rounds = 0;
            let is_asked = asked.binary_search_by_key(&address, |site| site.address).is_ok();
            let purpose = before.as_ref().map(|before| before.purpose);
            if same && !is_asked && purpose == Some(entry.purpose) {
                continue;
            }
            match &entry.state {
                State::Open => {}
                State::Trap(reason) => plan.traps.push((address, *reason)),
                State::Jump(placement) => plan.jumps.push(Jump {
                    address,
                    length: placement.group.as_ref().map_or(entry.length, |group| group.single).into(),
                    purpose: entry.purpose,
                    tactic: placement.tactic,
                    followers: placement.group.as_ref().map_or(Vec::new(), |group| group.followers.clone()),
                    pad: placement.pad,
                    code: placement.writes(address, entry.length),
                }),
            }
        }
        self.held.clear();
        plan.map = self.pads.finish();
    }
}

impl Code<'_> {
    /// The bytes at `address`, if all are in the code.
    pub(super) fn slice(&self, address: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(address.checked_sub(self.address)?).ok()?;
        self.bytes.get(start..start.checked_add(length)?)
    }

    /// Up to 15 bytes from `address` on.
    pub(super) fn rest(&self, address: u64) -> Option<&[u8]> {
        let start = usize::try_from(address.checked_sub(self.address)?).ok()?;
        let rest = self.bytes.get(start..)?;
        Some(&rest[..rest.len().min(LONGEST)])
    }

    pub(super) fn byte(&self, address: u64) -> Option<u8> {
        self.slice(address, 1).map(|bytes| bytes[0])
    }

    /// Whether any of the addresses is in [`Code::kept`].
    pub(super) fn keeps(&self, start: u64, end: u64) -> bool {
        let at = self.kept.partition_point(|range| range.end <= start);
        self.kept.get(at).is_some_and(|range| range.start < end)
    }

    /// Whether code jumps to an address between `start` and `end`, exclusive.
    pub(super) fn is_entered(&self, start: u64, end: u64) -> bool {
        let at = self.entered.partition_point(|address| *address <= start);
        self.entered.get(at).is_some_and(|address| *address < end)
    }

    /// Whether an instruction is known to begin at `start`.
    pub(super) fn is_instruction(&self, start: u64) -> bool {
        self.instructions.binary_search(&start).is_ok()
    }

    /// Whether the instruction at `start` may be the end of another one, as where code jumps past a
    /// `lock` prefix.
    pub(super) fn is_inside(&self, start: u64) -> bool {
        self.entered.binary_search(&start).is_ok() || self.reaches_into(start)
    }

    /// Whether an instruction known to begin before `start` ends after it.
    pub(super) fn reaches_into(&self, start: u64) -> bool {
        let to = self.instructions.partition_point(|at| *at < start);
        let mut near = self.instructions[..to].iter().rev().take_while(|at| start - **at < LONGEST as u64);
        near.any(|&at| self.rest(at).and_then(length).is_some_and(|length| at + length as u64 > start))
    }

    /// Whether an instruction is known to begin between `start` and `end`, exclusive.
    pub(super) fn is_divided(&self, start: u64, end: u64) -> bool {
        let at = self.instructions.partition_point(|address| *address <= start);
        self.instructions.get(at).is_some_and(|address| *address < end)
    }
}

impl Placement {
    /// Whether this jump can reach all possible trampolines.
    fn reaches(&self, address: u64, space: &Space<'_>) -> bool {
        let (lowest, highest) = pads_allowed(space);
        match self.pad {
            Some(pad) => (lowest..=highest).contains(&pad),
            None => {
                let joint = self.joint.map(|joint| joint.address + JUMP as u64);
                reaches(joint.unwrap_or(address + self.length() as u64), space)
            }
        }
    }

    /// The bytes that this jump changes in the program.
    pub(super) fn writes(&self, address: u64, length: u8) -> Vec<Write> {
        let own = self.length().min(length.into());
        let mut writes = vec![Write { address, bytes: self.bytes[..own].to_vec() }];
        if let Some(joint) = &self.joint {
            let own = ((joint.host_end - joint.address) as usize).min(joint.bytes.len());
            writes.push(Write { address: joint.address, bytes: joint.bytes[..own].to_vec() });
            writes.sort_unstable_by_key(|write| write.address);
        }
        writes
    }
}
