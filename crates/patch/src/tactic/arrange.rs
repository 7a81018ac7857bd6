//! Tries the tactics in their order, and finds jumps for several instructions together, whose jumps
//! share bytes.
//!
//! In: an entry without a jump. Out: whether it has one now; if not, nothing is changed.
//! `settle_within` has the order of the tactics twice: for pages that have pads already, if
//! mappings are short, and for all.

use super::find_pad::Pages;
use super::placed::{Entry, State};
use super::search::Search;
use crate::tactic::placement::{JUMP, PREFIXES, Placement, REPEATED, pads_allowed};

/// Tries to place a window together, and looks for each of them.
const ATTEMPTS: usize = 20;
const MAX_ARRANGEMENTS: usize = 192;
/// The most looks for one entry.
const EFFORT_FOR_ONE: usize = 8_000;
/// How many open entries above a window are fitted along with it.
const AHEAD: usize = 3;
/// How many instructions are moved for one site normally, and as a last resort.
const FEW: usize = 2;
const MANY: usize = 8;
/// The most entries of a window.
pub(super) const WINDOW: usize = 12;

impl Search<'_> {
    /// Gives an open entry a jump by any tactic. Returns false, with nothing changed, if there is
    /// none.
    pub(super) fn find_jump(&mut self, address: u64) -> bool {
        // A few hopeless entries must not use up the looks of the others.
        let own = self.effort.min(EFFORT_FOR_ONE);
        let rest = self.effort - own;
        self.effort = own;
        let found = self.settle_within(address);
        self.effort += rest;
        found
    }

    /// The same, within the remaining looks.
    fn settle_within(&mut self, address: u64) -> bool {
        self.frugal = self.placed.pads.mappings() >= self.limits.mappings / 2;
        if self.frugal {
            let found = self.over_padding(address)
                || self.give_jump(address, Pages::Used)
                || self.rearrange(address)
                || self.group(address)
                || self.evict_successors(address, 1..=FEW);
            self.frugal = false;
            if found {
                return true;
            }
        }
        self.over_padding(address)
            || self.give_jump(address, Pages::Fresh)
            || self.rearrange(address)
            || self.group(address)
            || self.evict_successors(address, 1..=FEW)
            || self.evict_neighbour(address)
            || self.evict_successors(address, FEW + 1..=MANY)
            || self.evict_some(address)
            || self.evict_neighbour_and_successor(address)
    }

    /// Gives new jumps to an open entry and those that share bytes with it, and chooses prefixes
    /// for open entries above.
    fn rearrange(&mut self, address: u64) -> bool {
        let mut last = Vec::new();
        for depth in 0..3 {
            let window = self.window(&[address], depth);
            if window.len() > WINDOW || window == last {
                return false;
            }
            if self.place_window(&window) {
                return true;
            }
            last = window;
        }
        false
    }

    /// `open` and the entries whose jumps share bytes with theirs: above, which they would be
    /// punned on, and below, which are punned on them; to `depth` levels. Ascending.
    pub(super) fn window(&self, open: &[u64], depth: usize) -> Vec<u64> {
        let mut window: Vec<u64> = open.to_vec();
        if let (Some(lowest), Some(highest)) = (open.iter().min(), open.iter().max()) {
            let between = self.placed.entries.range(lowest..highest).filter(|(_, other)| is_movable(other));
            window.extend(between.map(|(address, _)| *address));
        }
        if let Some(highest) = open.iter().max()
            && depth > 0
            && let Some(entry) = self.placed.entries.get(highest)
        {
            let end = highest + u64::from(entry.length);
            window.extend(
                self.placed
                    .entries
                    .range(end..end + 4)
                    .filter(|(_, other)| is_movable(other))
                    .map(|(a, _)| *a),
            );
        }
        let mut from = 0;
        for _ in 0..=depth {
            let until = window.len();
            for at in from..until {
                let address = window[at];
                let end = self
                    .placed
                    .entries
                    .get(&address)
                    .map_or(address, |entry| address + u64::from(entry.length));
                for other in self.placed.reliers(address, end) {
                    if !window.contains(&other) && self.placed.entries.get(&other).is_some_and(is_movable) {
                        window.push(other);
                    }
                }
            }
            from = until;
        }
        window.sort_unstable();
        window.dedup();
        window
    }

    /// Gives all of `window` new jumps, or restores the old ones.
    pub(super) fn place_window(&mut self, window: &[u64]) -> bool {
        let saved: Vec<(u64, Option<Placement>)> = window
            .iter()
            .rev()
            .map(|address| (*address, self.placed.entries.get(address).and_then(Entry::placement).cloned()))
            .collect();
        for (address, placement) in &saved {
            if placement.is_some() {
                self.placed.unplace(*address);
            }
        }
        let ahead = self.ahead(window);
        let shaped: Vec<u64> = window.iter().chain(&ahead).copied().collect();
        for attempt in 0..ATTEMPTS {
            let mut looks = MAX_ARRANGEMENTS.min(self.effort);
            // Entries ahead have more tactics later: every other time their prefixes are not
            // checked.
            let careful = if attempt % 2 == 0 { shaped.len() } else { window.len() };
            let found = self.choose_prefixes(&shaped, careful, attempt > 0, &mut looks);
            self.effort = self.effort.saturating_sub(MAX_ARRANGEMENTS - looks + window.len());
            if !found {
                break;
            }
            let pages = if self.frugal || attempt < ATTEMPTS / 3 { Pages::Used } else { Pages::Fresh };
            let placed = window.iter().take_while(|address| self.give_jump(**address, pages)).count();
            if placed == window.len() {
                return true;
            }
            for address in &window[..placed] {
                self.placed.unplace(*address);
            }
        }
        for address in shaped {
            if let Some(entry) = self.placed.entries.get_mut(&address) {
                (entry.prefixes, entry.prefix) = (0, PREFIXES[0]);
            }
        }
        for (address, placement) in saved {
            if let Some(placement) = placement {
                self.placed.commit(address, placement);
            }
        }
        false
    }

    /// The open entries directly above a window that it may rely on, up to the first that is relied
    /// on already.
    fn ahead(&self, window: &[u64]) -> Vec<u64> {
        let mut ahead = Vec::new();
        let Some((highest, entry)) = window.last().and_then(|last| self.placed.entries.get_key_value(last))
        else {
            return ahead;
        };
        let mut end = highest + u64::from(entry.length);
        while let Some((address, entry)) = self.placed.entries.get_key_value(&end)
            && entry.state == State::Open
            && self.placed.image.byte(*address).relied == 0
            && ahead.len() < AHEAD
        {
            ahead.push(*address);
            end += u64::from(entry.length);
        }
        ahead
    }

    /// Chooses prefixes for the jumps of adjacent open entries (ascending), so that the known bytes
    /// of each of the lowest `careful` lead to usable memory. Goes from the highest to the lowest,
    /// since jumps are punned on the bytes above. False if no choice is found within `looks`.
    fn choose_prefixes(&mut self, open: &[u64], careful: usize, some: bool, looks: &mut usize) -> bool {
        let Some((address, below)) = open.split_last() else { return true };
        let Some(length) = self.placed.entries.get(address).map(|entry| entry.length) else { return false };
        let (most, luck) = (u64::from(length - 1).min(3), self.luck.next());
        for choice in 0..=3 * most {
            if *looks == 0 {
                return false;
            }
            *looks -= 1;
            // One choice without prefixes, three for each number of prefixes; in this order or
            // rotated.
            let choice = if some { (choice + luck) % (3 * most + 1) } else { choice };
            let prefixes = choice.div_ceil(3) as u8;
            let prefixes_known = if prefixes == 1 { PREFIXES.len() } else { REPEATED };
            let luck = self.luck.next();
            if let Some(entry) = self.placed.entries.get_mut(address) {
                entry.prefixes = prefixes;
                entry.prefix = PREFIXES[luck as usize % prefixes_known];
                let first = self.placed.image.byte(*address);
                if first.relied > 0 && prefixes > 0 {
                    entry.prefix = first.value;
                }
            }
            let plausible = below.len() >= careful || self.is_plausible(*address);
            if plausible && self.choose_prefixes(below, careful, some, looks) {
                return true;
            }
        }
        false
    }

    /// Whether an open entry may find a jump with the chosen prefixes, by its known bytes. This
    /// quick check saves many attempts.
    fn is_plausible(&self, address: u64) -> bool {
        let Some(entry) = self.placed.entries.get(&address) else { return false };
        let (length, prefixes) = (u64::from(entry.length), u64::from(entry.prefixes));
        let head_fits = (0..=prefixes).all(|at| {
            let known = self.placed.image.byte(address + at);
            known.relied == 0 || known.value == if at == prefixes { 0xe9 } else { entry.prefix }
        });
        // A jump with room for all its bytes may need no pad.
        head_fits
            && (prefixes + JUMP as u64 <= length
                || self
                    .pattern(address + prefixes + 1, address + length)
                    .is_some_and(|pattern| self.placed.pads.is_plausible(&pattern, pads_allowed(self.space))))
    }
}

/// Whether an entry's jump can be replaced: it is alone (no second jump, no group) and hosts no
/// other's second jump.
pub(super) fn is_movable(entry: &Entry) -> bool {
    let alone = |placement: &Placement| placement.joint.is_none() && placement.group.is_none();
    entry.placement().is_some_and(alone) && entry.guest.is_none()
}
