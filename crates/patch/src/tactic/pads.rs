//! Finds addresses for landing pads: packs them into pages and counts the mappings that these need.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::pattern::Pattern;
use super::random::Random;
use super::{Limits, PAD_LENGTH, join_mappings};

/// The bytes of a page.
const PAGE: u64 = 4096;
/// Two pages with at most this many free ones between them are mapped together: it saves a mapping,
/// and untouched pages use no memory.
const GAP: u64 = 16;
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

/// A page of pads: which of its bytes are taken.
#[derive(Clone, Debug)]
struct Page {
    taken: [u64; 64],
    /// The number of taken bytes.
    count: u16,
    /// Whether the current plan adds it: not mapped yet.
    fresh: bool,
}

impl Page {
    fn is_free(&self, offset: u64) -> bool {
        self.taken[(offset / 64) as usize] >> (offset % 64) & 1 == 0
    }

    /// The first offset from `from` to `to` where a whole pad fits in the page.
    fn room(&self, from: u64, to: u64) -> Option<u64> {
        let to = to.min(PAGE - PAD_LENGTH as u64);
        let mut at = from;
        while at <= to {
            if self.taken[(at / 64) as usize] == u64::MAX {
                at = (at / 64 + 1) * 64;
                continue;
            }
            match (at..at + PAD_LENGTH as u64).rev().find(|offset| !self.is_free(*offset)) {
                Some(taken) => at = taken + 1,
                None => return Some(at),
            }
        }
        None
    }
}

/// All landing pads of one process. A page's number is its address / 4096.
#[derive(Clone, Debug, Default)]
pub(super) struct Pads {
    /// Boxed, since entries are inserted in the middle.
    pages: BTreeMap<u64, Box<Page>>,
    /// Pages that may have room for a pad.
    open: BTreeSet<u64>,
    /// Possible pages: free memory, and pages already mapped. Ascending and disjoint.
    room: Vec<Range<u64>>,
    /// Mapped runs of pages: first page to end.
    mapped: BTreeMap<u64, u64>,
    /// An upper bound of the number of mappings.
    mappings: usize,
    /// How many more mappings the current plan needs.
    more: isize,
    /// The most mappings allowed.
    limit: usize,
    /// Whether to map no unneeded pages to save mappings.
    few_addresses: bool,
    /// Whether the limit prevented a pad.
    pub(super) short: bool,
}

impl Pads {
    pub(super) fn new(limits: &Limits) -> Pads {
        Pads { limit: limits.mappings, few_addresses: limits.few_addresses, ..Pads::default() }
    }

    /// Sets the limits from now on.
    pub(super) fn allow(&mut self, limits: &Limits) {
        (self.limit, self.few_addresses) = (limits.mappings, limits.few_addresses);
    }

    /// The same pages, without pads.
    pub(super) fn emptied(&self) -> Pads {
        let empty = |number: &u64| (*number, Box::new(Page { taken: [0; 64], count: 0, fresh: false }));
        Pads {
            pages: self.pages.keys().map(empty).collect(),
            open: self.pages.keys().copied().collect(),
            mapped: self.mapped.clone(),
            mappings: self.mappings,
            limit: self.limit,
            ..Pads::default()
        }
    }

    /// Takes over the pages of another, mapped separately.
    pub(super) fn adopt(&mut self, other: Pads) {
        self.pages.extend(other.pages);
        self.open.extend(other.open);
        self.mapped.extend(other.mapped);
        self.mappings += other.mappings;
    }

    /// The same pads, this many pages higher; only between two plans.
    pub(super) fn by_pages(&self, by: u64) -> Pads {
        let moved = |number: &u64| number.wrapping_add(by) & (u64::MAX / PAGE);
        Pads {
            pages: self.pages.iter().map(|(number, page)| (moved(number), page.clone())).collect(),
            open: self.open.iter().map(moved).collect(),
            mapped: self.mapped.iter().map(|(start, end)| (moved(start), moved(end))).collect(),
            mappings: self.mappings,
            limit: self.limit,
            ..Pads::default()
        }
    }

    /// The mappings in use, including those of the current plan.
    pub(super) fn mappings(&self) -> usize {
        self.mappings.saturating_add_signed(self.more.max(0))
    }

    /// Begins a plan with this free memory.
    pub(super) fn begin(&mut self, free: &[Range<u64>]) {
        let pages = free.iter().map(|range| range.start.div_ceil(PAGE)..range.end / PAGE);
        let mut room: Vec<Range<u64>> = pages.filter(|range| !range.is_empty()).collect();
        room.extend(self.mapped.iter().map(|(start, end)| *start..*end));
        room.sort_unstable_by_key(|range| range.start);
        self.room.clear();
        for range in room {
            match self.room.last_mut() {
                Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
                _ => self.room.push(range),
            }
        }
        (self.more, self.short) = (0, false);
    }

    /// Ends a plan: the address ranges to map for it.
    pub(super) fn finish(&mut self) -> Vec<Range<u64>> {
        let fresh: Vec<u64> =
            self.pages.iter().filter(|(_, page)| page.fresh).map(|(number, _)| *number).collect();
        let mut wanted: Vec<Range<u64>> = Vec::new();
        for number in fresh {
            let before = self.before(number).filter(|other| self.joined(*other, number));
            let after = self.after(number).filter(|other| self.joined(number, *other));
            let range = before.map_or(number, |other| other + 1)..after.unwrap_or(number + 1);
            match wanted.last_mut() {
                Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
                _ => wanted.push(range),
            }
            if let Some(page) = self.pages.get_mut(&number) {
                page.fresh = false;
            }
        }
        if !self.few_addresses {
            join_mappings::join_if_many(&mut wanted, &self.room);
        }
        let mut map = Vec::new();
        for range in wanted {
            for piece in self.without_mapped(range) {
                let behind =
                    self.mapped.range(..piece.start).next_back().filter(|(_, end)| **end == piece.start);
                let behind = behind.map(|(start, _)| *start);
                let ahead = self.mapped.remove(&piece.end);
                self.mappings += usize::from(behind.is_none() && ahead.is_none());
                self.mapped.insert(behind.unwrap_or(piece.start), ahead.unwrap_or(piece.end));
                map.push(piece.start * PAGE..piece.end * PAGE);
            }
        }
        self.more = 0;
        map
    }

    /// The parts of `range` that are not mapped.
    fn without_mapped(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut pieces = Vec::new();
        let mut at = range.start;
        let first = self.mapped.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        for (start, end) in self.mapped.range(first..range.end) {
            if *start > at {
                pieces.push(at..*start);
            }
            at = at.max(*end);
        }
        if at < range.end {
            pieces.push(at..range.end);
        }
        pieces
    }

    /// Removes the mapped runs without a pad, and returns them.
    pub(super) fn drain_unused(&mut self) -> Vec<Range<u64>> {
        let empty: Vec<u64> =
            self.pages.iter().filter(|(_, page)| page.count == 0).map(|(number, _)| *number).collect();
        for number in empty {
            self.pages.remove(&number);
            self.open.remove(&number);
        }
        let unused: Vec<Range<u64>> = self
            .mapped
            .iter()
            .map(|(start, end)| *start..*end)
            .filter(|run| self.pages.range(run.clone()).next().is_none())
            .collect();
        for run in &unused {
            self.mapped.remove(&run.start);
            self.mappings = self.mappings.saturating_sub(1);
        }
        unused.into_iter().map(|run| run.start * PAGE..run.end * PAGE).collect()
    }

    /// Takes the bytes of a pad at `address`.
    pub(super) fn take(&mut self, address: u64) {
        for (number, bytes) in pages_of(address) {
            if !self.pages.contains_key(&number) {
                self.more += self.cost(number);
                let page = Page { taken: [0; 64], count: 0, fresh: !self.is_mapped(number) };
                self.pages.insert(number, Box::new(page));
                self.open.insert(number);
            }
            let Some(page) = self.pages.get_mut(&number) else { continue };
            for offset in bytes {
                debug_assert!(page.is_free(offset));
                page.taken[(offset / 64) as usize] |= 1 << (offset % 64);
                page.count += 1;
            }
            if u64::from(page.count) > PAGE / 2 && page.room(0, PAGE).is_none() {
                self.open.remove(&number);
            }
        }
    }

    /// Returns the bytes of a pad; drops a page of the current plan that becomes empty.
    pub(super) fn give_back(&mut self, address: u64) {
        for (number, bytes) in pages_of(address) {
            let Some(page) = self.pages.get_mut(&number) else { continue };
            for offset in bytes {
                page.taken[(offset / 64) as usize] &= !(1 << (offset % 64));
                page.count -= 1;
            }
            if page.count == 0 && page.fresh {
                self.pages.remove(&number);
                self.open.remove(&number);
                self.more -= self.cost(number);
            } else {
                self.open.insert(number);
            }
        }
    }

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
        let offset = page.room(first.saturating_sub(start), last.checked_sub(start)?.min(PAGE - 1))?;
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

    fn is_mapped(&self, number: u64) -> bool {
        self.mapped.range(..=number).next_back().is_some_and(|(_, end)| number < *end)
    }

    /// How many mappings a new page adds: 1, 0, or -1 if it joins two runs.
    fn cost(&self, number: u64) -> isize {
        let (before, after) = (self.before(number), self.after(number));
        let joins = |low: Option<u64>, high: Option<u64>| match (low, high) {
            (Some(low), Some(high)) => isize::from(self.joined(low, high)),
            _ => 0,
        };
        1 - joins(before, Some(number)) - joins(Some(number), after) + joins(before, after)
    }

    /// Whether two pages, in ascending order, are mapped together with those between them.
    fn joined(&self, low: u64, high: u64) -> bool {
        let at = self.room.partition_point(|range| range.end <= low);
        high - low <= GAP && self.room.get(at).is_some_and(|range| range.start <= low && high < range.end)
    }

    fn before(&self, number: u64) -> Option<u64> {
        self.pages.range(..number).next_back().map(|(other, _)| *other)
    }

    fn after(&self, number: u64) -> Option<u64> {
        self.pages.range(number + 1..).next().map(|(other, _)| *other)
    }

    /// Whether this many more mappings are allowed.
    fn affords(&mut self, cost: isize) -> bool {
        let affords = cost <= 0 || self.mappings() + cost.unsigned_abs() <= self.limit;
        self.short |= !affords;
        affords
    }
}

/// The bytes of a pad by page: one page, or two.
fn pages_of(address: u64) -> impl Iterator<Item = (u64, Range<u64>)> {
    let (number, offset) = (address / PAGE, address % PAGE);
    let end = offset + PAD_LENGTH as u64;
    let pages = [(number, offset..end.min(PAGE)), (number + 1, 0..end.saturating_sub(PAGE))];
    pages.into_iter().filter(|(_, bytes)| !bytes.is_empty())
}

/// The intersection of two runs of addresses, given as first and last.
fn cut(run: (u64, u64), other: (u64, u64)) -> Option<(u64, u64)> {
    let (first, last) = (run.0.max(other.0), run.1.min(other.1));
    (first <= last).then_some((first, last))
}
