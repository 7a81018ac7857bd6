//! The code of the kernel in which no kprobe can be.

use std::fs;
use std::ops::Range;

/// The kernel's own list.
const BLACKLIST: &str = "/sys/kernel/debug/kprobes/blacklist";

/// Ranges of addresses, and why no probe can be there.
#[derive(Debug)]
pub(super) struct Forbidden(Vec<(Range<u64>, &'static str)>);

impl Forbidden {
    /// Reads what the kernel shows. `address_of` gives the address of one of its symbols.
    pub(super) fn read(address_of: impl Fn(&str) -> Option<u64>) -> Forbidden {
        // If it does not show its list, it refuses these when they are attached.
        let text = fs::read_to_string(BLACKLIST).unwrap_or_default();
        let listed = text.lines().filter_map(range);
        let mut all: Vec<_> = listed
            .map(|range| (range, "the kernel forbids it (/sys/kernel/debug/kprobes/blacklist)"))
            .collect();
        let noinstr = (address_of("__noinstr_text_start"), address_of("__noinstr_text_end"));
        if let (Some(start), Some(end)) = noinstr {
            all.push((start..end, "it is code that must not be instrumented (noinstr)"));
        }
        Forbidden(all)
    }

    /// Why no probe can be at an address.
    pub(super) fn at(&self, address: u64) -> Option<&'static str> {
        self.0.iter().find(|(range, _)| range.contains(&address)).map(|(_, why)| *why)
    }
}

/// A line of the list: `0xffffffff81000000-0xffffffff81000010  function`.
fn range(line: &str) -> Option<Range<u64>> {
    let (start, rest) = line.split_once('-')?;
    let end = rest.split_ascii_whitespace().next()?;
    let number = |text: &str| u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok();
    Some(number(start)?..number(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_of_forbidden_code_is_read() {
        let line = "0xffffffff81000000-0xffffffff81000010\tnative_get_debugreg";
        assert_eq!(range(line), Some(0xffff_ffff_8100_0000..0xffff_ffff_8100_0010));
        assert_eq!(range("nothing"), None);
    }
}
