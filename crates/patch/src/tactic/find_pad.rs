//! Finds an address for a landing pad: in a page that has pads already, or in a new one that costs
//! few mappings.
//!
//! The pattern of the jump and the addresses allowed come in, an address goes out. [`Pads`] knows
//! the pages; it takes the pad only afterwards.

use super::PAD_LENGTH;
use super::pads::{GAP, PAGE, Pads};
use super::pattern::Pattern;
use super::random::Random;

/// How many of several possibilities to try.
const TRIES: usize = 48;

/// Whether to use new pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    /// Only pages that have pads already.
    Used,
    /// New pages, too.
    Fresh,
}

impl Pads {
    /// An address for a pad that matches the pattern, from the first to the last of `allowed`.
    pub(super) fn find(
        &mut self,
        pattern: &Pattern,
        allowed: (u64, u64),
        pages: Pages,
        luck: &mut Random,
    ) -> Option<u64> {
        if pattern.is_one_run() {
            let run = cut(pattern.run()?, allowed).filter(|run| self.is_somewhere(*run))?;
            return match pages {
                Pages::Used => self.used_in(run),
                Pages::Fresh => self.fresh_in(run).filter(|found| self.affords(found.1)).map(|found| found.0),
            };
        }
        match pages {
            Pages::Used => self.used_of(pattern, allowed, luck),
            Pages::Fresh => {
                let mut best: Option<(u64, isize)> = None;
                for _ in 0..TRIES / 2 {
                    let run = pattern.choose(luck.next() as u32).run().and_then(|run| cut(run, allowed));
                    let run = run.filter(|run| self.is_somewhere(*run));
                    let Some(found) = run.and_then(|run| self.fresh_in(run)) else { continue };
                    if best.is_none_or(|best| found.1 < best.1) {
                        best = Some(found);
                    }
                    if found.1 <= 0 {
                        break;
                    }
                }
                best.filter(|found| self.affords(found.1)).map(|found| found.0)
            }
        }
    }

    /// Whether the jump may lead to a usable page, by a quick check.
    pub(super) fn is_plausible(&self, pattern: &Pattern, allowed: (u64, u64)) -> bool {
        !pattern.is_one_run()
            || pattern.run().and_then(|run| cut(run, allowed)).is_some_and(|run| self.is_somewhere(run))
    }

    /// Whether any page of a run is usable or used.
    fn is_somewhere(&self, (first, last): (u64, u64)) -> bool {
        let at = self.room.partition_point(|range| range.end <= first / PAGE);
        self.room.get(at).is_some_and(|range| range.start <= last / PAGE)
    }

    /// A pad in used pages, for a pattern of many runs.
    fn used_of(&self, pattern: &Pattern, allowed: (u64, u64), luck: &mut Random) -> Option<u64> {
        // A run of 64 KiB or more probably has a used page: try some at random. For smaller ones
        // search the pages.
        if pattern.low() >= 2 {
            let found = (0..TRIES).find_map(|_| {
                let run = pattern.choose(luck.next() as u32).run().and_then(|run| cut(run, allowed));
                run.and_then(|run| self.used_in(run))
            });
            if found.is_some() {
                return found;
            }
        }
        let reach = Pattern { end: pattern.end, bytes: [None; 4] }.run().and_then(|run| cut(run, allowed))?;
        let (first, last) = (reach.0 / PAGE, reach.1 / PAGE);
        let from = first + luck.next() % (last - first + 1);
        let (above, below) = (self.open.range(from..=last), self.open.range(first..from));
        above.chain(below).take(TRIES).find_map(|number| self.matching_in(*number, pattern, reach))
    }

    /// A pad in one page that matches the pattern.
    fn matching_in(&self, number: u64, pattern: &Pattern, reach: (u64, u64)) -> Option<u64> {
        let (first, last) = cut((number * PAGE, number * PAGE + PAGE - PAD_LENGTH as u64), reach)?;
        // In steps of 256 distances, which share their upper three bytes.
        let mut at = first;
        while at <= last {
            let field = (i128::from(at) - i128::from(pattern.end)) as i32;
            // If the second byte is given, skip the steps that differ in it.
            let away = pattern.bytes[1].map_or(0, |second| second.wrapping_sub(field.to_le_bytes()[1]));
            if away > 0 {
                at += 256 * u64::from(away) - u64::from(field.to_le_bytes()[0]);
                continue;
            }
            let end = last.min(at + u64::from(0xff - field.to_le_bytes()[0]));
            let candidate = match pattern.bytes[0] {
                None => Some((at, end)),
                Some(low) => at.checked_add(u64::from(low)).and_then(|sum| {
                    let exact = sum.checked_sub(u64::from(field.to_le_bytes()[0]))?;
                    (exact >= at && exact <= end).then_some((exact, exact))
                }),
            };
            if let Some((from, to)) = candidate.filter(|(from, _)| pattern.leads_to(*from))
                && let Some(found) = self.room_in(number, from, to)
            {
                return Some(found);
            }
            at = end + 1;
        }
        None
    }

    /// A pad in the used pages of a run.
    fn used_in(&self, (first, last): (u64, u64)) -> Option<u64> {
        if first == last {
            return self.is_free(first, Pages::Used).then_some(first);
        }
        let pages = self.open.range(first / PAGE..=last / PAGE);
        pages.take(TRIES).find_map(|number| self.room_in(*number, first, last))
    }

    fn room_in(&self, number: u64, first: u64, last: u64) -> Option<u64> {
        let start = number * PAGE;
        let page = self.pages.get(&number)?;
        let offset = page.free_pad(first.saturating_sub(start), last.checked_sub(start)?.min(PAGE - 1))?;
        Some(start + offset)
    }

    /// A pad in a new page of a run, and the number of mappings that the page costs.
    fn fresh_in(&self, (first, last): (u64, u64)) -> Option<(u64, isize)> {
        if first == last {
            let costs = |number| if self.pages.contains_key(&number) { 0 } else { self.cost(number) };
            let (from, to) = (first / PAGE, (first + PAD_LENGTH as u64 - 1) / PAGE);
            let cost = if from == to { costs(from) } else { costs(from) + costs(to) };
            return self.is_free(first, Pages::Fresh).then_some((first, cost));
        }
        // The pages in which the run has a whole pad.
        let lowest = (first + PAD_LENGTH as u64 - 1) / PAGE;
        let (lowest, highest) = (lowest.min(last / PAGE), last / PAGE);
        let number = self.beside_used(lowest, highest).or_else(|| self.middle(lowest, highest))?;
        let address = first.max(number * PAGE);
        let fits = address <= last && address % PAGE + PAD_LENGTH as u64 <= PAGE;
        fits.then(|| (address, self.cost(number)))
    }

    /// A new page from `lowest` to `highest` that costs no mapping.
    fn beside_used(&self, lowest: u64, highest: u64) -> Option<u64> {
        let used = self.pages.range(lowest.saturating_sub(GAP)..=highest + GAP);
        used.take(TRIES).find_map(|(other, _)| {
            let near = [other + 1, other.saturating_sub(1)];
            near.map(|page| page.clamp(lowest, highest))
                .into_iter()
                .find(|page| self.can_be_used(*page) && self.joined(*other.min(page), *other.max(page)))
        })
    }

    /// The free page closest to the middle of `lowest` to `highest`, where the ranges of nearby
    /// jumps overlap.
    fn middle(&self, lowest: u64, highest: u64) -> Option<u64> {
        let middle = lowest + (highest - lowest) / 2;
        let above = self.room.partition_point(|range| range.end <= middle);
        let up = self.room[above..].iter().take(TRIES).find_map(|range| {
            (range.start.max(middle)..range.end.min(highest + 1))
                .take(TRIES)
                .find(|page| self.can_be_used(*page))
        });
        let below = self.room.partition_point(|range| range.start < middle);
        let down = self.room[..below].iter().rev().take(TRIES).find_map(|range| {
            let pages = (range.start.max(lowest)..range.end.min(middle)).rev();
            pages.take(TRIES).find(|page| self.can_be_used(*page))
        });
        match (up, down) {
            (Some(up), Some(down)) => Some(if up - middle <= middle - down { up } else { down }),
            (up, down) => up.or(down),
        }
    }

    /// Whether all bytes of a pad at `address` are free.
    fn is_free(&self, address: u64, pages: Pages) -> bool {
        let Some(end) = address.checked_add(PAD_LENGTH as u64) else { return false };
        (address..end).all(|byte| match self.pages.get(&(byte / PAGE)) {
            Some(page) => page.is_free(byte % PAGE),
            None => pages == Pages::Fresh && self.has_room(byte / PAGE),
        })
    }

    fn can_be_used(&self, number: u64) -> bool {
        !self.pages.contains_key(&number) && self.has_room(number)
    }

    fn has_room(&self, number: u64) -> bool {
        let at = self.room.partition_point(|range| range.end <= number);
        self.room.get(at).is_some_and(|range| range.contains(&number))
    }

    /// Whether this many more mappings are allowed.
    fn affords(&mut self, cost: isize) -> bool {
        let affords = cost <= 0 || self.mappings() + cost.unsigned_abs() <= self.limit;
        self.short |= !affords;
        affords
    }
}

/// The intersection of two runs of addresses, given as first and last.
fn cut(run: (u64, u64), other: (u64, u64)) -> Option<(u64, u64)> {
    let (first, last) = (run.0.max(other.0), run.1.min(other.1));
    (first <= last).then_some((first, last))
}
