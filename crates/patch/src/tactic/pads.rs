//! Landing pads of a process: which bytes of which pages they take, and the mappings these need.
//!
//! Free memory and the addresses of pads come in, the ranges to map go out. `find_pad` finds the
//! addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::{Limits, PAD_LENGTH, join_mappings};

/// The bytes of a page.
pub(super) const PAGE: u64 = 4096;
/// Two pages with at most this many free ones between them are mapped together: it saves a mapping,
/// and untouched pages use no memory.
pub(super) const GAP: u64 = 16;
/// A page of pads: which of its bytes are taken.
#[derive(Clone, Debug)]
pub(super) struct Page {
    taken: [u64; 64],
    /// The number of taken bytes.
    count: u16,
    /// Whether the current plan adds it: not mapped yet.
    fresh: bool,
}

impl Page {
    pub(super) fn is_free(&self, offset: u64) -> bool {
        self.taken[(offset / 64) as usize] >> (offset % 64) & 1 == 0
    }

    /// The first offset from `from` to `to` where a whole pad fits in the page.
    pub(super) fn free_pad(&self, from: u64, to: u64) -> Option<u64> {
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
    pub(super) pages: BTreeMap<u64, Box<Page>>,
    /// Pages that may have room for a pad.
    pub(super) open: BTreeSet<u64>,
    /// Possible pages: free memory, and pages already mapped. Ascending and disjoint.
    pub(super) room: Vec<Range<u64>>,
    /// Mapped runs of pages: first page to end.
    mapped: BTreeMap<u64, u64>,
    /// An upper bound of the number of mappings.
    mappings: usize,
    /// How many more mappings the current plan needs.
    more: isize,
    /// The most mappings allowed.
    pub(super) limit: usize,
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
            if u64::from(page.count) > PAGE / 2 && page.free_pad(0, PAGE).is_none() {
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

    fn is_mapped(&self, number: u64) -> bool {
        self.mapped.range(..=number).next_back().is_some_and(|(_, end)| number < *end)
    }

    /// How many mappings a new page adds: 1, 0, or -1 if it joins two runs.
    pub(super) fn cost(&self, number: u64) -> isize {
        let (before, after) = (self.before(number), self.after(number));
        let joins = |low: Option<u64>, high: Option<u64>| match (low, high) {
            (Some(low), Some(high)) => isize::from(self.joined(low, high)),
            _ => 0,
        };
        1 - joins(before, Some(number)) - joins(Some(number), after) + joins(before, after)
    }

    /// Whether two pages, in ascending order, are mapped together with those between them.
    pub(super) fn joined(&self, low: u64, high: u64) -> bool {
        let at = self.room.partition_point(|range| range.end <= low);
        high - low <= GAP && self.room.get(at).is_some_and(|range| range.start <= low && high < range.end)
    }

    fn before(&self, number: u64) -> Option<u64> {
        self.pages.range(..number).next_back().map(|(other, _)| *other)
    }

    fn after(&self, number: u64) -> Option<u64> {
        self.pages.range(number + 1..).next().map(|(other, _)| *other)
    }
}

/// The bytes of a pad by page: one page, or two.
fn pages_of(address: u64) -> impl Iterator<Item = (u64, Range<u64>)> {
    let (number, offset) = (address / PAGE, address % PAGE);
    let end = offset + PAD_LENGTH as u64;
    let pages = [(number, offset..end.min(PAGE)), (number + 1, 0..end.saturating_sub(PAGE))];
    pages.into_iter().filter(|(_, bytes)| !bytes.is_empty())
}
