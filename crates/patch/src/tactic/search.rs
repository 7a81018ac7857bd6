//! The search for jumps for the sites of one plan.

use std::collections::BTreeSet;

use super::placed::{Entry, Placed, State};
use super::placement::LONGEST;
use super::random::Random;
use super::{Code, Limits, Purpose, Reason, Site, Space};

/// How many possibilities one plan examines: for each site, and a base number.
const EFFORT_FOR_EACH: usize = 32;
const EFFORT: usize = 200_000;
/// How many new jumps a plan gives an instruction before it traps it.
const MAX_REPLANS: u8 = 4;

/// A search: what is placed, where, and what is left to do.
#[derive(Debug)]
pub(super) struct Search<'a> {
    pub(super) placed: &'a mut Placed,
    pub(super) code: &'a Code<'a>,
    pub(super) space: &'a Space<'a>,
    pub(super) limits: Limits,
    pub(super) luck: Random,
    /// Addresses of entries still to be given a jump.
    pub(super) open: BTreeSet<u64>,
    /// Whether to try only pages already in use.
    pub(super) frugal: bool,
    /// The remaining number of tries: there may be many sites for which nothing helps.
    pub(super) effort: usize,
}

impl<'a> Search<'a> {
    /// The search for a plan for this many sites.
    pub(super) fn new(
        placed: &'a mut Placed,
        code: &'a Code<'a>,
        space: &'a Space<'a>,
        limits: Limits,
        sites: usize,
    ) -> Search<'a> {
        Search {
            placed,
            code,
            space,
            limits,
            // The same seed each time: sites that are removed and planned again find their old
            // pages.
            luck: Random::new(),
            open: BTreeSet::new(),
            frugal: false,
            effort: EFFORT + EFFORT_FOR_EACH * sites,
        }
    }

    /// Gives each site a jump or a trap, or refuses it; the refused ones are returned with the
    /// reason. `sites` are ascending.
    pub(super) fn run(mut self, sites: &[Site]) -> Vec<(u64, Reason)> {
        let (mut trapped, mut refused) = (Vec::new(), Vec::new());
        for site in sites {
            match self.admit(*site) {
                Ok(None) => {
                    self.open.insert(site.address);
                }
                Ok(Some(reason)) => trapped.push((site.address, reason)),
                Err(reason) => refused.push((site.address, reason)),
            }
        }
        for (address, reason) in trapped {
            self.give_up(address, reason);
        }
        self.settle_open();
        self.try_again(sites);
        refused
    }

    /// Gives every open entry a jump or gives it up.
    fn settle_open(&mut self) {
        // From low addresses to high: a jump chooses the bytes that it shares with the jump above
        // it, which is then fitted to them. Entries to redo are below.
        while let Some(address) = self.open.pop_first() {
            self.placed.pads.short = false;
            let Some(entry) =
                self.placed.entries.get_mut(&address).filter(|entry| entry.state == State::Open)
            else {
                continue;
            };
            entry.rounds += 1;
            let patient = entry.rounds <= MAX_REPLANS;
            if !(patient && self.find_jump(address)) {
                let reason = if self.placed.pads.short { Reason::Mappings } else { Reason::NoJump };
                self.give_up(address, reason);
            }
        }
    }

    /// Retries sites that found no jump: the entries above them have jumps by now, which may move.
    fn try_again(&mut self, sites: &[Site]) {
        for Site { address, .. } in sites.iter().filter(|site| site.jump) {
            let failed = |entry: &Entry| entry.state == State::Trap(Reason::NoJump);
            // A jump that relies on the breakpoint's byte needs it.
            if !self.placed.entries.get(address).is_some_and(failed)
                || self.placed.image.byte(*address).relied > 0
            {
                continue;
            }
            self.placed.touch(*address);
            self.placed.image.change_back(*address);
            if let Some(entry) = self.placed.entries.get_mut(address) {
                entry.state = State::Open;
            }
            if !self.find_jump(*address) {
                self.give_up(*address, Reason::NoJump);
            }
            self.settle_open();
        }
    }

    /// Makes an entry for a site. `Ok(None)`: give it a jump; `Ok(Some)`: trap it; `Err`: refuse
    /// it.
    fn admit(&mut self, site: Site) -> Result<Option<Reason>, Reason> {
        let end = site.address.checked_add(site.length as u64).ok_or(Reason::Outside)?;
        if self.placed.entries.contains_key(&site.address) {
            let reaches = |entry: &Entry| {
                entry.placement().is_none_or(|placement| placement.reaches(site.address, self.space))
            };
            if !(site.jump && self.placed.entries.get(&site.address).is_some_and(reaches)) {
                self.dismiss(site.address);
            }
            self.placed.touch(site.address);
            let entry = self.placed.entries.get_mut(&site.address).ok_or(Reason::Outside)?;
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
        let bytes = self.code.slice(site.address, site.length).ok_or(Reason::Outside)?;
        if site.length == 0 || site.length > LONGEST || !self.placed.is_untouched(site.address, end) {
            return Err(Reason::Outside);
        }
        if self.code.keeps(site.address, end) {
            return Err(Reason::Kept);
        }
        let mut original = [0; LONGEST];
        original[..site.length].copy_from_slice(bytes);
        self.placed.open_entry(site.address, site.length, Purpose::Site, original);
        if !site.jump {
            return Ok(Some(Reason::Asked));
        }
        if self.code.is_entered(site.address, end) || self.code.is_divided(site.address, end) {
            return Ok(Some(Reason::Entered));
        }
        Ok(self.code.reaches_into(site.address).then_some(Reason::Shared))
    }

    /// No jump was found for an open entry: traps a site, leaves a neighbour in place. Reopens the
    /// entries that rely on its bytes being different.
    pub(super) fn give_up(&mut self, address: u64, reason: Reason) {
        let Some(entry) = self.placed.entries.get(&address).filter(|entry| entry.state == State::Open) else {
            return;
        };
        let (purpose, original, guest) = (entry.purpose, entry.original, entry.guest);
        let changed = match purpose {
            Purpose::Site => vec![0xcc],
            Purpose::Neighbour => original[..usize::from(entry.length)].to_vec(),
        };
        let mut others: Vec<u64> = guest.into_iter().collect();
        for (at, value) in (address..).zip(changed) {
            let byte = self.placed.image.byte(at);
            if byte.relied > 0 && byte.value != value {
                others.extend(self.placed.reliers(at, at + 1));
            }
        }
        for other in others {
            self.placed.unplace(other);
            self.open.insert(other);
        }
        match purpose {
            Purpose::Neighbour => {
                self.placed.entries.remove(&address);
            }
            Purpose::Site => {
                self.placed.image.change(address, 0xcc);
                if let Some(entry) = self.placed.entries.get_mut(&address) {
                    entry.state = State::Trap(reason);
                }
            }
        }
    }
}
