//! Proves facts about the code around sites, for the plan of their jumps.
//!
//! A jump may need to move an instruction that has no probe. That it is an instruction, and where
//! it begins, must be proven ([`image::ControlFlow`]) from the module's file; that holds for the
//! code in memory if its bytes are the file's.

use std::ops::Range;

use image::Image;
use patch::tactic::Site;
use process::{Module, auxiliary};

/// How far from a site instructions may be moved for it: as far as a short jump leads, plus the
/// longest instructions.
const AROUND: u64 = 128 + 2 * LONGEST;
const LONGEST: u64 = 15;
/// Up to so many pieces of code are compared with the file one by one.
const FEW: usize = 32;

/// What is proven around sites, farther around those shorter than a jump. All addresses are the
/// process's.
#[derive(Debug, Default)]
pub(crate) struct Proven {
    /// Where instructions begin, ascending.
    pub(crate) instructions: Vec<u64>,
    /// Padding that control never reaches, ascending and disjoint.
    pub(crate) padding: Vec<Range<u64>>,
    /// Only with `ways`: functions for which all ways to each instruction are known, ascending and
    /// disjoint; and the instructions reached otherwise than by falling through or by returning
    /// from a call, ascending.
    pub(crate) functions: Vec<Range<u64>>,
    pub(crate) landings: Vec<u64>,
}

/// Proves facts around sites. `text` is the program's code, `start` its address, and `bias` the
/// module's.
///
/// With `ways`, also proves all ways to instructions. That holds only if no thread was interrupted
/// there: the address to which a signal handler returns, or a coroutine goes on, is nowhere in the
/// code.
pub(crate) fn prove_code_near(
    image: &Image,
    bias: u64,
    text: &[u8],
    start: u64,
    sites: &[Site],
    ways: bool,
) -> Proven {
    /// Bytes of a jump. A site of this length needs no other instruction to move; its jump only
    /// must not overlap with one.
    const JUMP: usize = 5;
    let reach = |site: &Site| if site.length < JUMP { AROUND } else { LONGEST };
    let mut places: Vec<(u64, u64)> = sites.iter().map(|site| (site.address, reach(site))).collect();
    places.sort_unstable_by_key(|(address, reach)| address.saturating_sub(*reach));
    let mut windows: Vec<Range<u64>> = Vec::new();
    for (address, reach) in places {
        let window = address.saturating_sub(reach)..address.saturating_add(reach);
        match windows.last_mut().filter(|last| last.end >= window.start) {
            Some(last) => last.end = last.end.max(window.end),
            None => windows.push(window),
        }
    }
    if windows.is_empty() {
        return Proven::default();
    }
    let flow = image.control_flow();
    let mut found = Proven::default();
    let stored = if windows.len() > FEW { as_stored(image, start.wrapping_sub(bias), text) } else { 0..0 };
    for window in windows {
        let window = window.start.wrapping_sub(bias)..window.end.wrapping_sub(bias);
        let end_of = |vaddr: u64| vaddr.wrapping_add(flow.length(vaddr) as u64);
        let mut known = flow.instructions(window.clone());
        // Instructions that are not whole in the text cannot be compared.
        known.retain(|&vaddr| {
            let from = vaddr.wrapping_add(bias).wrapping_sub(start);
            from.checked_add(flow.length(vaddr) as u64).is_some_and(|end| end <= text.len() as u64)
        });
        let (Some(&first), Some(last)) = (known.first(), known.iter().map(|&vaddr| end_of(vaddr)).max())
        else {
            continue;
        };
        let length = (last - first) as usize;
        let from = usize::try_from(first.wrapping_add(bias).wrapping_sub(start)).ok();
        let here = from.and_then(|from| text.get(from..from.checked_add(length)?));
        let is_stored = stored.contains(&first) && last <= stored.end;
        if here.is_some() && (is_stored || image.text(first, length).as_deref() == here) {
            found.instructions.extend(known.into_iter().map(|vaddr| vaddr.wrapping_add(bias)));
            // Only as far as it was compared.
            if ways && let Some(landings) = image.possible_targets().within(first..last) {
                let closed = flow.closed(first..last).iter();
                let closed = closed.map(|range| range.start.max(first)..range.end.min(last));
                found.functions.extend(
                    closed
                        .filter(|range| !range.is_empty())
                        .map(|range| range.start.wrapping_add(bias)..range.end.wrapping_add(bias)),
                );
                found.landings.extend(landings.iter().map(|vaddr| vaddr.wrapping_add(bias)));
            }
            let padding =
                flow.padding(window).iter().map(|padding| padding.start.max(first)..padding.end.min(last));
            let padding = padding.filter(|padding| !padding.is_empty());
            found.padding.extend(
                padding.map(|padding| padding.start.wrapping_add(bias)..padding.end.wrapping_add(bias)),
            );
        }
    }
    found
}

/// The range from `first` on in which code in memory equals the file's; empty if any byte differs.
/// Compares all in one go.
fn as_stored(image: &Image, first: u64, text: &[u8]) -> Range<u64> {
    let mut segments = image.segments().iter().filter(|segment| segment.executable);
    let end = segments.find_map(|segment| {
        let end = segment.vaddr.saturating_add(segment.file_size);
        (segment.vaddr..end).contains(&first).then_some(end)
    });
    let length = end.map_or(0, |end| (end - first).min(text.len() as u64));
    let is_stored = image.text(first, length as usize).is_some_and(|stored| text.starts_with(&stored));
    if is_stored { first..first + length } else { 0..0 }
}

/// Whether a module is the dynamic linker of a thread's process, or may be: the linker runs before
/// the program has begun.
pub(crate) fn may_be_linker(tid: i32, module: &Module) -> bool {
    auxiliary(tid, libc::AT_BASE).is_none_or(|base| module.span().contains(&base))
}

/// Whether an address is the first instruction that a thread's process executes: the dynamic
/// linker's entry, or the program's own if it has no linker.
pub(crate) fn is_first(tid: i32, address: u64) -> bool {
    /// The offset of `e_entry` in an ELF header.
    const ENTRY: u64 = 24;
    match auxiliary(tid, libc::AT_BASE) {
        Some(0) => auxiliary(tid, libc::AT_ENTRY) == Some(address),
        Some(base) => {
            let mut entry = [0; 8];
            let read = process::read(tid, base.wrapping_add(ENTRY), &mut entry);
            read.is_ok() && base.wrapping_add(u64::from_le_bytes(entry)) == address
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Where the code is in the file, and in memory.
    const OFFSET: usize = 0x200;
    const VADDR: u64 = 0x40_0000 + OFFSET as u64;
    const BIAS: u64 = 0x5555_0000_0000;

    /// `xor %eax,%eax`, `mov $0x11223344,%ecx`, `add %ecx,%eax`, `cmp $0x55667788,%eax`.
    const CODE: &[u8] = &[0x31, 0xc0, 0xb9, 0x44, 0x33, 0x22, 0x11, 0x01, 0xc8, 0x3d, 0x88, 0x77, 0x66, 0x55];
    const STARTS: [u64; 4] = [0, 2, 7, 9];

    /// A program with only that code: one segment, and a section that covers it.
    fn image() -> Image {
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(OFFSET, 0);
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        let word = |value: u64| value.to_le_bytes();
        let (offset, size) = (word(OFFSET as u64), word(CODE.len() as u64));
        // ET_EXEC, EM_X86_64, the entry, both tables of headers, their sizes and numbers.
        put(16, &[2, 0, 62, 0, 1, 0, 0, 0]);
        put(24, &[word(VADDR), word(64), word(120)].concat());
        put(52, &[64, 0, 56, 0, 1, 0, 64, 0, 3, 0, 2, 0]);
        // PT_LOAD, readable and executable.
        put(64, &[1, 0, 0, 0, 5, 0, 0, 0]);
        put(72, &[offset, word(VADDR), word(VADDR), size, size, word(1)].concat());
        // `.text`, SHT_PROGBITS, allocated and executable; and the names of sections.
        put(120 + 64, &[1, 0, 0, 0, 1, 0, 0, 0]);
        put(120 + 72, &[word(6), word(VADDR), offset, size].concat());
        put(120 + 128, &[0, 0, 0, 0, 3, 0, 0, 0]);
        put(120 + 128 + 24, &[word(0x1f0), word(7)].concat());
        put(0x1f1, b".text");
        file.extend(CODE);
        Image::parse(file, Path::new("proof")).expect("it is sound")
    }

    fn starts(text: &[u8]) -> Vec<u64> {
        let sites = [Site { address: VADDR + BIAS, length: 2, jump: true }];
        let found = prove_code_near(&image(), BIAS, text, VADDR + BIAS, &sites, false);
        found.instructions.iter().map(|address| address - BIAS - VADDR).collect()
    }

    #[test]
    fn the_file_proves_what_the_process_has_too() {
        assert_eq!(starts(CODE), STARTS);
        // If any byte differs, nothing is proven, the last instruction's bytes included.
        for at in 0..CODE.len() {
            let mut changed = CODE.to_vec();
            changed[at] ^= 0x10;
            assert_eq!(starts(&changed), [], "{at}");
        }
    }

    #[test]
    fn code_is_as_stored_only_if_every_byte_is() {
        let (first, image) = (VADDR, image());
        assert_eq!(as_stored(&image, first, CODE), first..first + CODE.len() as u64);
        // A mapping may extend past the file's code, and start later than it.
        let longer = [CODE, &[0xcc; 100]].concat();
        assert_eq!(as_stored(&image, first, &longer), first..first + CODE.len() as u64);
        assert_eq!(as_stored(&image, first + 2, &CODE[2..]), first + 2..first + CODE.len() as u64);
        for at in 0..CODE.len() {
            let mut changed = CODE.to_vec();
            changed[at] ^= 1;
            assert!(as_stored(&image, first, &changed).is_empty(), "{at}");
        }
        assert!(as_stored(&image, first + 0x1000, CODE).is_empty());
    }

    #[test]
    fn around_a_long_site_as_much_is_known_as_can_overlap_with_it() {
        let sites = [Site { address: VADDR + BIAS + 2, length: 5, jump: true }];
        let found = prove_code_near(&image(), BIAS, CODE, VADDR + BIAS, &sites, false);
        assert_eq!(found.instructions, STARTS.map(|start| start + BIAS + VADDR));
    }

    #[test]
    fn what_is_cut_off_is_not_proven() {
        for length in 0..CODE.len() {
            let whole = STARTS.iter().zip([2, 7, 9, 14]).filter(|&(_, end)| end <= length);
            assert_eq!(
                starts(&CODE[..length]),
                whole.map(|(start, _)| *start).collect::<Vec<_>>(),
                "{length}"
            );
        }
    }
}
