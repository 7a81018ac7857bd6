//! Where memory for trampolines is to be.
//!
//! It should be near the code, and in one piece: landing pads must be where all trampolines of a module can be reached from. What comes first
//! finds room. But thousands of landing pads are wherever the puns of their jumps want them, and leave only small gaps for
//! those that come later: so a session, which may be told to put more probes in, maps more than it needs. Memory that is not used costs addresses.

use std::ops::RangeInclusive;

use layout::PAGE;

use super::around::REACH;
use crate::slots::{self, Gap, Growth};

/// The smallest area, in bytes.
pub(crate) const AREA: u64 = 1 << 16;
/// How many times as much as is needed is mapped where more is to come, and the most of that.
const TIMES: u64 = 4;
const MOST: u64 = 1 << 28;
/// How far below the code trampolines are put rather than above it.
const BELOW: u64 = 1 << 26;
/// The most pieces.
const PIECES: usize = 256;

/// Chooses areas of so many bytes together, all of them within `reach`: addresses and sizes. `taken` is as for [`slots::gaps`], `lowest` is
/// where the code begins. None if there is not as much.
pub(crate) fn choose(
    taken: &[(u64, u64, Growth)],
    size: u64,
    reach: &RangeInclusive<u64>,
    near: u64,
    lowest: u64,
    more_to_come: bool,
) -> Option<Vec<(u64, u64)>> {
    let size = size.max(AREA).next_multiple_of(PAGE);
    let spacious = if more_to_come { size.saturating_mul(TIMES).min(MOST).max(size) } else { size };
    for size in [spacious, size] {
        if let Some(start) = best_gap(&slots::gaps(taken, size, near, reach), size, lowest) {
            return Some(vec![(start, size)]);
        }
    }
    let mut free = slots::free(taken, &(*reach.start()..reach.end().saturating_add(1)));
    free.retain(|gap| gap.end - gap.start >= AREA);
    // The nearest first: where landing pads can be depends on how far apart the areas are.
    free.sort_by_key(|gap| gap.start.abs_diff(near).min(gap.end.abs_diff(near)));
    let mut areas = Vec::new();
    let mut missing = with_slack(size);
    for gap in free.into_iter().take(PIECES) {
        let piece = (gap.end - gap.start).min(missing.max(AREA).next_multiple_of(PAGE));
        areas.push((gap.start, piece));
        missing = missing.saturating_sub(piece);
        if missing == 0 {
            return Some(areas);
        }
    }
    None
}

/// Bytes that several pieces need to hold so many: what is at the end of one may be too little for a trampoline.
pub(crate) fn with_slack(size: u64) -> u64 {
    size + size / 16
}

/// Where trampolines are to be, of these gaps, the nearest of which is first; `lowest` is where the code begins.
///
/// Jumps that are punned on an instruction that begins with 80 or 81 lead almost 2 GiB down, and on from there to the trampolines:
/// below the code more of them can. But where there is less than that below it (a program at fixed addresses), the little that
/// there is has to be for landing pads.
pub(crate) fn best_gap(gaps: &[Gap], size: u64, lowest: u64) -> Option<u64> {
    let is_better = |gap: &&Gap| match lowest < REACH {
        true => gap.start > lowest,
        false => gap.start + size <= lowest && lowest - gap.start <= BELOW,
    };
    gaps.iter().find(is_better).or(gaps.first()).map(|gap| gap.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: u64 = 0x7000_0000_0000;

    fn chosen(taken: &[(u64, u64)], size: u64, more_to_come: bool) -> Option<Vec<(u64, u64)>> {
        let taken: Vec<_> = taken.iter().map(|&(start, end)| (start, end, Growth::None)).collect();
        let areas = choose(&taken, size, &(CODE - (1 << 30)..=CODE + (1 << 30)), CODE, CODE, more_to_come)?;
        for (start, size) in &areas {
            assert!(taken.iter().all(|taken| start + size <= taken.0 || *start >= taken.1), "{areas:x?}");
            assert!(*start >= CODE - (1 << 30) && start + size - 1 <= CODE + (1 << 30));
        }
        Some(areas)
    }

    #[test]
    fn one_area_has_all_and_a_session_takes_more() {
        let taken = [(CODE, CODE + 0x20_0000)];
        let areas = chosen(&taken, 0x12_3456, false).expect("there is room");
        assert_eq!(areas.iter().map(|area| area.1).collect::<Vec<_>>(), [0x12_4000]);
        assert!(areas[0].0 < CODE);
        let areas = chosen(&taken, 0x12_3456, true).expect("there is room");
        assert_eq!(areas.iter().map(|area| area.1).collect::<Vec<_>>(), [4 * 0x12_4000]);
    }

    #[test]
    fn among_landing_pads_there_are_several() {
        // A page of them in every 256 KiB, with a gap of 1 MiB somewhere.
        let mut taken = vec![(CODE, CODE + 0x20_0000)];
        let all = (CODE - (1 << 30)..CODE + (1 << 30)).step_by(0x4_0000);
        taken.extend(all.map(|at| (at, at + 0x1000)).filter(|pad| pad.0 < CODE || pad.0 > CODE + 0x30_0000));
        taken.sort_unstable();
        let areas = chosen(&taken, 0x30_0000, true).expect("there is room");
        assert!(areas.len() > 4 && areas.iter().map(|area| area.1).sum::<u64>() >= 0x30_0000, "{areas:x?}");
        // As much as that there is not.
        assert_eq!(chosen(&taken, 0x8000_0000, false), None);
    }
}
