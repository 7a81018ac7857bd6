//! Finds free addresses below 2 GiB, which code reaches by absolute 32-bit addresses.
//!
//! A process that is not position-independent has its code and heap there, and some runtimes'
//! allocators request memory there (`MAP_32BIT`: from 1 GiB on). The places found here keep away
//! from growing areas and from null pointers.

use std::fs;
use std::ops::Range;
use std::sync::OnceLock;

use crate::Mapping;

/// Bytes of a page.
const PAGE: u64 = 4096;
/// The end of usable addresses: below 2 GiB, and below AddressSanitizer's shadow memory
/// (0x7fff7000).
const END: u64 = (1 << 31) - (1 << 20);
/// The first address that the kernel returns for `MAP_32BIT`.
const ASKED_FOR: u64 = 1 << 30;
/// Programs that map something at a fixed address below 2 GiB usually choose a round one, from here
/// on.
const CHOSEN: u64 = 1 << 28;
/// A program may access addresses below this through a null pointer, and expects to find nothing
/// mapped there.
const NULL: u64 = 1 << 20;
/// How far above a heap or below a stack nothing is placed.
const GROWTH: u64 = 1 << 30;

/// The unmapped ranges below 2 GiB of a process, by address. `mappings` are as from
/// [`crate::maps`], `heap_start` as from [`crate::heap_start`]. A page stays free on either side of
/// each mapping, 1 GiB above the heap and below a stack, and everything below 1 MiB and below the
/// system's minimum (`vm.mmap_min_addr`).
pub fn low_gaps(mappings: &[Mapping], heap_start: Option<u64>) -> Vec<Range<u64>> {
    // Read once. If the minimum is raised later, the kernel refuses a mapping below it.
    static ALLOWED: OnceLock<u64> = OnceLock::new();
    let allowed = *ALLOWED.get_or_init(|| {
        let allowed = fs::read_to_string("/proc/sys/vm/mmap_min_addr");
        allowed.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    });
    let mut taken: Vec<Range<u64>> = mappings
        .iter()
        .map(|mapping| match mapping.label.as_deref() {
            Some("[heap]") => mapping.start.saturating_sub(PAGE)..mapping.end.saturating_add(GROWTH),
            Some("[stack]") => mapping.start.saturating_sub(GROWTH)..mapping.end.saturating_add(PAGE),
            _ => mapping.start.saturating_sub(PAGE)..mapping.end.saturating_add(PAGE),
        })
        // A program that has just begun has no heap yet, and needs addresses for it.
        .chain(heap_start.map(|start| start.saturating_sub(PAGE)..start.saturating_add(GROWTH)))
        .collect();
    taken.sort_by_key(|range| range.start);
    let mut gaps = Vec::new();
    let mut low = NULL.max(allowed).next_multiple_of(PAGE);
    for range in taken.into_iter().chain(std::iter::once(END..END)) {
        let high = range.start.min(END);
        if low < high {
            gaps.push(low..high);
        }
        low = low.max(range.end);
    }
    gaps
}

/// How many bytes of addresses a process may still map (RLIMIT_AS); `None` without a limit.
pub fn addresses_left(tid: i32) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the call writes only to the structure.
    unsafe { libc::prlimit(tid, libc::RLIMIT_AS, std::ptr::null(), &mut limit) };
    if limit.rlim_cur == libc::RLIM_INFINITY {
        return None;
    }
    let sizes = fs::read_to_string(format!("/proc/{tid}/statm")).unwrap_or_default();
    let pages: u64 = sizes.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
    Some(limit.rlim_cur.saturating_sub(pages.saturating_mul(PAGE)))
}

/// Addresses for `size` bytes in gaps ([`low_gaps`]), at multiples of `align` (a power of two), the
/// best first: below the addresses that programs choose themselves, then below those of
/// `MAP_32BIT`, and always at the end of a gap, away from areas that may grow up into it.
pub fn low_places(gaps: &[Range<u64>], size: u64, align: u64) -> Vec<u64> {
    let parts = gaps.iter().flat_map(|gap| {
        let [chosen, asked] = [CHOSEN, ASKED_FOR].map(|border| border.clamp(gap.start, gap.end));
        // A size that fits only across a border is placed across it.
        [gap.start..chosen, gap.start..asked, asked..gap.end, gap.start..gap.end]
    });
    let mut places: Vec<u64> = parts
        .filter_map(|part| {
            let place = part.end.checked_sub(size)? / align * align;
            (place >= part.start).then_some(place)
        })
        .collect();
    places.sort_by_key(|&place| (place + size > ASKED_FOR, place + size > CHOSEN, std::cmp::Reverse(place)));
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_low_has_all_the_room() {
        let mappings = [Mapping::anonymous(0x5555_0000_0000, 0x5555_0001_0000, None)];
        let gaps = low_gaps(&mappings, Some(0x5555_0002_0000));
        assert_eq!(gaps.len(), 1);
        assert!(gaps[0].start >= NULL && gaps[0].end == END);
        let places = low_places(&gaps, 0x10_0000, 0x4_0000);
        assert_eq!(places, [CHOSEN, ASKED_FOR, END].map(|end| end - 0x10_0000));
        // What is too large for the first part is in the second.
        assert_eq!(low_places(&gaps, CHOSEN, 0x4_0000)[0], ASKED_FOR - CHOSEN);
    }

    #[test]
    fn room_is_left_for_the_heap_and_around_mappings() {
        let mappings = [
            Mapping::anonymous(0x40_0000, 0x50_0000, None),
            Mapping::anonymous(0x60_0000, 0x70_0000, Some("[heap]")),
        ];
        let gaps = low_gaps(&mappings, Some(0x60_0000));
        assert_eq!(gaps.last().expect("there is room"), &(0x4070_0000..END));
        assert!(gaps.iter().any(|gap| gap.end == 0x3f_f000));
        assert!(gaps.iter().all(|gap| gap.end <= 0x40_0000 || gap.start > 0x50_0000));
        let places = low_places(&gaps, 0x100_0000, 0x1000);
        assert!(places.iter().all(|place| place + 0x100_0000 <= END && *place >= 0x4070_0000));
        assert!(low_places(&gaps, 1 << 30, 0x1000).is_empty());
    }

    #[test]
    fn what_overlaps_leaves_no_gap() {
        let mappings = [
            Mapping::anonymous(0x1000_0000, 0x3000_0000, None),
            Mapping::anonymous(0x3000_1000, 0x9000_0000, Some("[stack]")),
        ];
        assert!(low_gaps(&mappings, None).is_empty());
    }
}
