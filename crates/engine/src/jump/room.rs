//! Memory for trampolines: areas that are mapped in a process, and what of them is free.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// What trampolines begin at a multiple of.
pub(crate) const ALIGNMENT: u64 = 32;

/// The areas of one address space.
#[derive(Clone, Debug, Default)]
pub(crate) struct Room {
    /// Addresses and sizes, for when they are unmapped.
    areas: Vec<(u64, u64)>,
    /// What is free of them: the start and the end of each piece. No two pieces touch.
    free: BTreeMap<u64, u64>,
}

impl Room {
    /// Adds an area that has just been mapped.
    pub(crate) fn add(&mut self, base: u64, size: u64) {
        self.areas.push((base, size));
        self.give_back(base, size);
    }

    /// The areas: addresses and sizes.
    pub(crate) fn areas(&self) -> &[(u64, u64)] {
        &self.areas
    }

    /// Forgets the areas that are not mapped: `is_mapped` gets the address and the size of each.
    pub(crate) fn retain(&mut self, is_mapped: impl Fn(u64, u64) -> bool) {
        self.areas.retain(|&(base, size)| is_mapped(base, size));
        let areas = &self.areas;
        self.free
            .retain(|&start, &mut end| areas.iter().any(|&(base, size)| base <= start && end <= base + size));
    }

    /// Takes memory of which every byte is at one of the addresses in `reach`; none if there is no such piece.
    pub(crate) fn take(&mut self, size: u64, reach: &RangeInclusive<u64>) -> Option<u64> {
        let (place, start, end) = self.free.iter().find_map(|(&start, &end)| {
            let place = start.max(*reach.start()).checked_next_multiple_of(ALIGNMENT)?;
            let last = place.checked_add(size)?;
            (last <= end && last - 1 <= *reach.end()).then_some((place, start, end))
        })?;
        self.free.remove(&start);
        // What is skipped for the alignment stays free, to be joined with its neighbours again.
        if start < place {
            self.free.insert(start, place);
        }
        if place + size < end {
            self.free.insert(place + size, end);
        }
        Some(place)
    }

    /// Gives memory back that was taken.
    pub(crate) fn give_back(&mut self, start: u64, size: u64) {
        let mut piece = (start, start + size);
        if let Some(end) = self.free.remove(&piece.1) {
            piece.1 = end;
        }
        if let Some((&before, &end)) = self.free.range(..piece.0).next_back()
            && end == piece.0
        {
            piece.0 = before;
        }
        self.free.insert(piece.0, piece.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_taken_is_in_reach() {
        let mut room = Room::default();
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

    proptest! {
        #[test]
        fn nothing_is_given_twice_and_nothing_is_lost(steps in prop::collection::vec((any::<bool>(), 1u64..300), 1..200)) {
            let mut room = Room::default();
            room.add(0x1_0000, 0x4000);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (take, number) in steps {
                if take {
                    if let Some(start) = room.take(number, &(0..=u64::MAX)) {
                        prop_assert!(start % ALIGNMENT == 0 && start >= 0x1_0000 && start + number <= 0x1_4000);
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
