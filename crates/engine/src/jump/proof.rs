//! What is proven of the code around sites, for the plan of their jumps.
//!
//! A jump may need that an instruction moves that nobody wants to probe: it must be one, and begin where it is said to
//! ([`process::ControlFlow`]). That is known of the module's file; it holds for the code in memory where that is what the file has.

use std::ops::Range;

use patch::tactic::Site;
use process::Image;

/// How far from a site instructions may be that are moved for its sake: where a short jump leads, and the longest of them.
const AROUND: u64 = 128 + 2 * 15;

/// Addresses at which instructions are proven to begin, ascending: those around sites whose instructions are shorter than a jump. `text` is
/// the code as the program has it, `start` its address, and `bias` the module's.
pub(crate) fn instructions(image: &Image, bias: u64, text: &[u8], start: u64, sites: &[Site]) -> Vec<u64> {
    /// Bytes of a jump: an instruction of so many needs no other one to move.
    const JUMP: usize = 5;
    let mut addresses: Vec<u64> =
        sites.iter().filter(|site| site.length < JUMP).map(|site| site.address).collect();
    addresses.sort_unstable();
    let mut windows: Vec<Range<u64>> = Vec::new();
    for address in addresses {
        let window = address.saturating_sub(AROUND)..address.saturating_add(AROUND);
        match windows.last_mut().filter(|last| last.end >= window.start) {
            Some(last) => last.end = window.end,
            None => windows.push(window),
        }
    }
    if windows.is_empty() {
        return Vec::new();
    }
    let flow = image.control_flow();
    let mut found = Vec::new();
    for window in windows {
        let known = flow.instructions(window.start.wrapping_sub(bias)..window.end.wrapping_sub(bias));
        let (Some(&first), Some(&last)) = (known.first(), known.last()) else { continue };
        // The last may be cut off: one more than it has is read.
        let length = (last - first) as usize + 1;
        let from = first.wrapping_add(bias).checked_sub(start).and_then(|from| usize::try_from(from).ok());
        let here = from.and_then(|from| text.get(from..from.checked_add(length)?));
        if here.is_some() && image.text(first, length).as_deref() == here {
            found.extend(known.into_iter().map(|vaddr| vaddr.wrapping_add(bias)));
        }
    }
    found
}
