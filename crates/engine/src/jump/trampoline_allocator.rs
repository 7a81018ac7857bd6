//! Allocates memory for trampolines from areas that are mapped in a process.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::area::with_slack;

/// All trampolines begin at a multiple of this.
pub(crate) const ALIGNMENT: u64 = 32;

#[derive(Clone, Debug, Default)]
pub(crate) struct TrampolineAllocator {
    areas: Vec<Area>,
}

/// One area, and its free pieces. They begin and end at multiples of [`ALIGNMENT`], so none is too
/// small to be used.
#[derive(Clone, Debug)]
struct Area {
    base: u64,
    size: u64,
    /// The start and end of each free piece; adjacent pieces are joined.
    free: BTreeMap<u64, u64>,
    /// The size and start of each free piece.
    by_size: BTreeSet<(u64, u64)>,
}

impl Area {
    fn end(&self) -> u64 {
        self.base + self.size
    }

    fn insert(&mut self, start: u64, end: u64) {
        if start < end {
            self.free.insert(start, end);
            self.by_size.insert((end - start, start));
        }
    }

    fn remove(&mut self, start: u64) -> Option<u64> {
        let end = self.free.remove(&start)?;
        self.by_size.remove(&(end - start, start));
        Some(end)
    }

    /// Finds `size` free bytes with all addresses in `reach`: the start of the piece, and the place
    /// in it.
    fn find(&self, size: u64, reach: &RangeInclusive<u64>) -> Option<(u64, u64)> {
        if *reach.start() <= self.base && self.end() - 1 <= *reach.end() {
            return self.by_size.range((size, 0)..).next().map(|&(_, start)| (start, start));
        }
        let first = self.free.range(..=*reach.start()).next_back().map_or(self.base, |(&start, _)| start);
        self.free.range(first..).take_while(|(start, _)| *start <= reach.end()).find_map(|(&start, &end)| {
            let place = start.max(*reach.start()).checked_next_multiple_of(ALIGNMENT)?;
            let last = place.checked_add(size)?;
            (last <= end && last - 1 <= *reach.end()).then_some((start, place))
        })
    }
}

impl TrampolineAllocator {
    /// Adds a newly mapped area of whole pages.
    pub(crate) fn add(&mut self, base: u64, size: u64) {
        let mut area = Area { base, size, free: BTreeMap::new(), by_size: BTreeSet::new() };
        area.insert(base, base + size);
        self.areas.push(area);
    }

    /// Adds the areas of another process, with what is free there: here their addresses are `by`
    /// bytes higher.
    pub(crate) fn add_moved(&mut self, other: &TrampolineAllocator, by: u64) {
        let moved = |address: u64| address.wrapping_add(by);
        self.areas.extend(other.areas.iter().map(|area| Area {
            base: moved(area.base),
            size: area.size,
            free: area.free.iter().map(|(&start, &end)| (moved(start), moved(end))).collect(),
            by_size: area.by_size.iter().map(|&(size, start)| (size, moved(start))).collect(),
        }));
    }

    pub(crate) fn areas(&self) -> impl Iterator<Item = (u64, u64)> {
        self.areas.iter().map(|area| (area.base, area.size))
    }

    /// Forgets areas that are not mapped; `is_mapped` gets the address and size of each.
    pub(crate) fn retain(&mut self, is_mapped: impl Fn(u64, u64) -> bool) {
        self.areas.retain(|area| is_mapped(area.base, area.size));
    }

    /// Whether areas that are entirely in `reach` have `size` bytes free: in one piece, or in
    /// several of at least `least` bytes.
    pub(crate) fn has(&self, size: u64, least: u64, reach: &RangeInclusive<u64>) -> bool {
        let within = |area: &&Area| *reach.start() <= area.base && area.end() - 1 <= *reach.end();
        let pieces =
            self.areas.iter().filter(within).flat_map(|area| area.by_size.range((least.min(size), 0)..));
        let (mut most, mut sum) = (0, 0_u64);
        for &(piece, _) in pieces {
            most = most.max(piece);
            sum += piece;
        }
        most >= size || sum >= with_slack(size)
    }

    /// Takes memory with all addresses in `reach`; none if there is no such piece. It must be given
    /// back with the same size.
    pub(crate) fn take(&mut self, size: u64, reach: &RangeInclusive<u64>) -> Option<u64> {
        let size = size.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let near = |area: &&mut Area| area.base <= *reach.end() && *reach.start() < area.end();
        self.areas.iter_mut().filter(near).find_map(|area| {
            let (start, place) = area.find(size, reach)?;
            let end = area.remove(start)?;
            area.insert(start, place);
            area.insert(place + size, end);
            Some(place)
        })
    }

    /// Gives back all but the first `needed` of the `size` bytes that were taken.
    pub(crate) fn shrink(&mut self, start: u64, size: u64, needed: u64) {
        let (size, needed) = (size.max(1).next_multiple_of(ALIGNMENT), needed.next_multiple_of(ALIGNMENT));
        if needed < size {
            self.give_back(start + needed, size - needed);
        }
    }

    /// Gives back memory.
    pub(crate) fn give_back(&mut self, start: u64, size: u64) {
        let (mut start, mut end) = (start, start + size.max(1).next_multiple_of(ALIGNMENT));
        let Some(area) = self.areas.iter_mut().find(|area| (area.base..area.end()).contains(&start)) else {
            return;
        };
        if let Some(after) = area.remove(end) {
            end = after;
        }
        if let Some((&before, &last)) = area.free.range(..start).next_back()
            && last == start
        {
            area.remove(before);
            start = before;
        }
        area.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_taken_is_in_reach() {
        let mut room = TrampolineAllocator::default();
        room.add(0x10_000, 0x1000);
        room.add(0x40_000, 0x1000);
        let all = 0..=u64::MAX;
        assert_eq!(room.take(100, &all), Some(0x10_000));
        assert_eq!(room.take(100, &all), Some(0x10_080), "aligned");
        assert_eq!(room.take(64, &(0x20_000..=u64::MAX)), Some(0x40_000));
        assert_eq!(room.take(64, &(0x20_000..=0x40_07f)), Some(0x40_040));
        assert_eq!(room.take(64, &(0x20_000..=0x40_0be)), None, "one byte short");
        assert_eq!(room.take(0x1001, &all), None);
    }

    #[test]
    fn what_is_not_needed_is_given_back() {
        let mut room = TrampolineAllocator::default();
        room.add(0x10_000, 0x1000);
        let all = 0..=u64::MAX;
        let start = room.take(1000, &all).expect("room");
        room.shrink(start, 1000, 33);
        assert_eq!(room.take(0x1000 - 64, &all), Some(start + 64));
        room.give_back(start, 33);
        assert_eq!(room.take(64, &all), Some(start));
    }

    #[test]
    fn an_area_that_is_only_partly_in_reach_is_used() {
        let mut room = TrampolineAllocator::default();
        room.add(0x10_000, 0x1000);
        assert_eq!(room.take(32, &(0x10_801..=0x20_000)), Some(0x10_820));
        assert_eq!(room.take(0x800, &(0..=0x10_7ff)), Some(0x10_000));
        assert_eq!(room.take(64, &(0..=0x10_83f)), None);
    }

    proptest! {
        #[test]
        fn nothing_is_given_twice_and_nothing_is_lost(steps in prop::collection::vec((any::<bool>(), 1u64..300), 1..200)) {
            let mut room = TrampolineAllocator::default();
            room.add(0x1_0000, 0x4000);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (take, number) in steps {
                if take {
                    if let Some(start) = room.take(number, &(0..=u64::MAX)) {
                        prop_assert!(start.is_multiple_of(ALIGNMENT) && start >= 0x1_0000 && start + number <= 0x1_4000);
                        prop_assert!(taken.iter().all(|&(other, size)| start + number <= other || other + size <= start));
                        taken.push((start, number));
                    }
                } else if !taken.is_empty() {
                    let (start, size) = taken.swap_remove(number as usize % taken.len());
                    room.give_back(start, size);
                }
            }
            for (start, size) in taken {
                room.give_back(start, size);
            }
            prop_assert_eq!(room.take(0x4000, &(0..=u64::MAX)), Some(0x1_0000));
        }
    }
}
