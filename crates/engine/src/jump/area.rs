//! Chooses where memory for trampolines goes.
//!
//! It should be near the code, and in one piece: all trampolines of a module must be within reach
//! of every landing pad. The first plan finds such room. But thousands of landing pads lie wherever
//! the puns of their jumps lead, and leave small gaps for later plans: so a session, into which
//! more probes may come, maps more than it needs. Unused memory costs only addresses.

use std::ops::RangeInclusive;

use layout::PAGE;

use crate::jump::reach::REACH;
use crate::slots::{self, Gap, Growth};

/// The smallest area, in bytes.
pub(crate) const AREA: u64 = 1 << 16;
/// Where more is to come: the factor by which more is mapped than needed, and the most that is
/// mapped so.
const TIMES: u64 = 4;
const MAX_AREA_BYTES: u64 = 1 << 28;
/// Trampolines are put below the code, rather than above it, if they are no farther from it than
/// this.
const BELOW: u64 = 1 << 26;
const PIECES: usize = 256;

/// Chooses areas of `size` bytes together, all within `reach`: addresses and sizes. `taken` is as
/// for [`slots::gaps`], `lowest` is where the code begins. None if there is too little room.
pub(crate) fn choose(
    taken: &[(u64, u64, Growth)],
    size: u64,
    reach: &RangeInclusive<u64>,
    near: u64,
    lowest: u64,
    more_to_come: bool,
) -> Option<Vec<(u64, u64)>> {
    let size = size.max(AREA).next_multiple_of(PAGE);
    let spacious = if more_to_come { size.saturating_mul(TIMES).min(MAX_AREA_BYTES).max(size) } else { size };
    for size in [spacious, size] {
        if let Some(start) = best_gap(&slots::gaps(taken, size, near, reach), size, lowest) {
            return Some(vec![(start, size)]);
        }
    }
    let mut free = slots::free(taken, &(*reach.start()..reach.end().saturating_add(1)));
    free.retain(|gap| gap.end - gap.start >= AREA);
    // The nearest first: the farther apart areas are, the fewer places landing pads have.
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

/// How many bytes several pieces need to hold `size`: the end of a piece may be too small for a
/// trampoline.
pub(crate) fn with_slack(size: u64) -> u64 {
    size + size / 16
}

/// Chooses among gaps, the nearest of which is first; `lowest` is where the code begins.
///
/// Jumps punned on an instruction that begins with 80 or 81 have their pads almost 2 GiB below the
/// code; with trampolines below the code, more of these pads reach them. But a program at fixed low
/// addresses has less than 2 GiB below it, which has to be left for landing pads.
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
        // A page of pads in every 256 KiB, with a gap of 1 MiB somewhere.
        let mut taken = vec![(CODE, CODE + 0x20_0000)];
        let all = (CODE - (1 << 30)..CODE + (1 << 30)).step_by(0x4_0000);
        taken.extend(all.map(|at| (at, at + 0x1000)).filter(|pad| pad.0 < CODE || pad.0 > CODE + 0x30_0000));
        taken.sort_unstable();
        let areas = chosen(&taken, 0x30_0000, true).expect("there is room");
        assert!(areas.len() > 4 && areas.iter().map(|area| area.1).sum::<u64>() >= 0x30_0000, "{areas:x?}");
        // Too much.
        assert_eq!(chosen(&taken, 0x8000_0000, false), None);
    }
}
