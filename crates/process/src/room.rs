//! Free memory below 2 GiB, which code reaches by absolute addresses.
//!
//! A process that is not position-independent has its code and its heap there, and allocators of some runtimes take
//! memory there by name (`MAP_32BIT`: from 1 GiB on). What is given here keeps away from what grows, and from null pointers.

use std::fs;
use std::ops::Range;
use std::sync::OnceLock;

use crate::Mapping;

/// Bytes of a page.
const PAGE: u64 = 4096;
/// The end of the addresses that are wanted: below 2 GiB, and below where AddressSanitizer has its shadow memory (0x7fff7000).
const END: u64 = (1 << 31) - (1 << 20);
/// The start of the addresses that the kernel gives where a program asks for low ones (`MAP_32BIT`).
const ASKED_FOR: u64 = 1 << 30;
/// Programs that map something at an address of their own choice below 2 GiB take a round one, from here on as a rule.
const CHOSEN: u64 = 1 << 28;
/// Addresses below this a program may reach from a null pointer, and expects to find nothing there.
const NULL: u64 = 1 << 20;
/// How far nothing is put above a heap or below a stack.
const GROWTH: u64 = 1 << 30;

/// The ranges below 2 GiB in which a process has nothing mapped, by address. `mappings` are as [`crate::maps`] gives them,
/// `heap_start` is where its heap begins ([`crate::heap_start`]). A page stays free on either side of each mapping, 1 GiB above the
/// heap and below a stack; nothing is below 1 MiB, nor below what the system allows (`vm.mmap_min_addr`).
pub fn low_gaps(mappings: &[Mapping], heap_start: Option<u64>) -> Vec<Range<u64>> {
    // As it was when it was asked first: a mapping that the system does not allow any more is refused by the kernel.
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
        // A program that has just begun has no heap yet, and must find room for it.
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

/// Bytes of addresses that a process may still take (RLIMIT_AS); none if it has no limit.
pub fn addresses_left(tid: i32) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the call writes to the structure, and changes nothing.
    unsafe { libc::prlimit(tid, libc::RLIMIT_AS, std::ptr::null(), &mut limit) };
    if limit.rlim_cur == libc::RLIM_INFINITY {
        return None;
    }
    let sizes = fs::read_to_string(format!("/proc/{tid}/statm")).unwrap_or_default();
    let pages: u64 = sizes.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
    Some(limit.rlim_cur.saturating_sub(pages.saturating_mul(PAGE)))
}

/// Places for `size` bytes in gaps ([`low_gaps`]), at multiples of `align` (a power of two), the best first: below the addresses that
/// programs choose themselves, then below those that they ask the kernel for by `MAP_32BIT`, and at the end of a gap, away from what
/// may grow up into it.
pub fn low_places(gaps: &[Range<u64>], size: u64, align: u64) -> Vec<u64> {
    let parts = gaps.iter().flat_map(|gap| {
        let [chosen, asked] = [CHOSEN, ASKED_FOR].map(|border| border.clamp(gap.start, gap.end));
        // What fits only across a border is taken across it.
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
        // What is too much for the first is in the second.
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
