//! Reduces the mappings of a plan that needs many. Each mapping costs the process a system call at
//! every exec; address space is free.

use std::ops::Range;

/// The most free pages between two runs that are mapped with them. Untouched pages use no memory.
const GAP: u64 = 256;
/// Join runs if there are more than this.
const MANY: usize = 128;

/// Joins nearby runs of pages (ascending) if there are many. `room`: pages that are free or already
/// mapped for pads, ascending and disjoint; joined runs stay inside it.
pub(super) fn join_if_many(runs: &mut Vec<Range<u64>>, room: &[Range<u64>]) {
    if runs.len() <= MANY {
        return;
    }
    let can_be_one = |low: &Range<u64>, high: &Range<u64>| {
        let at = room.partition_point(|range| range.end < low.end);
        room.get(at).is_some_and(|range| range.start < low.end && high.start < range.end)
    };
    let mut joined: Vec<Range<u64>> = Vec::new();
    for run in runs.drain(..) {
        match joined.last_mut() {
            Some(last) if run.start - last.end <= GAP && can_be_one(last, &run) => last.end = run.end,
            _ => joined.push(run),
        }
    }
    *runs = joined;
}

#[cfg(test)]
mod tests {
    use super::super::Limits;
    use super::super::pads::Pads;
    use super::*;

    #[test]
    fn what_is_close_is_joined_if_nothing_else_is_between() {
        // Every hundredth page. Two ranges are taken, and the last page is far above the others.
        let runs = || (0..200).map(|number| 1000 + 100 * number..1001 + 100 * number);
        let late = 30_000..30_001;
        let room = [0..2001, 2050..15_000, 15_050..40_000];
        let mut joined: Vec<_> = runs().chain([late.clone()]).collect();
        join_if_many(&mut joined, &room);
        assert_eq!(joined, [1000..2001, 2100..14_901, 15_000..15_001, 15_100..20_901, late.clone()]);
        let mut few: Vec<_> = runs().take(MANY).collect();
        join_if_many(&mut few, &room);
        assert_eq!(few.len(), MANY, "few stay apart");
    }

    #[test]
    fn a_process_that_may_have_few_addresses_has_only_those_that_it_needs() {
        let mapped = |few_addresses| {
            let mut pads = Pads::new(&Limits { mappings: 1000, shadow_stacks: false, few_addresses });
            let free = 0x1000_0000..0x4000_0000;
            pads.begin(std::slice::from_ref(&free));
            (0..200).for_each(|number| pads.take(0x1000_0000 + number * 0x10_0000));
            pads.finish().into_iter().map(|run| (run.start, run.end - run.start)).collect::<Vec<_>>()
        };
        assert_eq!(mapped(false), [(0x1000_0000, 199 * 0x10_0000 + 0x1000)]);
        let narrow = mapped(true);
        assert!(narrow.len() == 200 && narrow.iter().all(|(_, size)| *size == 0x1000));
    }
}
