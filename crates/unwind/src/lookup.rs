//! Modules of a process, and the search for the rule of an address.

use core::ops::Range;

use super::row::{Row, Rule};

/// Finds rules. It is implemented by a slice of [`Module`]s and by an [`Index`](super::Index).
pub trait Lookup {
    /// The rule of an address: of the instruction at it, or, if it is a return address, of the call
    /// before it. `None` if no module has it.
    fn rule(&self, address: u64, is_return_address: bool) -> Option<Rule>;
}

/// A module of a process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Module<'a> {
    /// Its first address.
    pub start: u64,
    /// The address after it.
    pub end: u64,
    /// What an address in the process is greater than one in the table. For a module that is
    /// mapped whole, that is `start`.
    pub bias: u64,
    /// Its rows, by ascending address.
    pub table: &'a [Row],
}

/// Modules, ascending by address and apart from each other.
impl Lookup for [Module<'_>] {
    #[inline]
    fn rule(&self, address: u64, is_return_address: bool) -> Option<Rule> {
        let address = address.wrapping_sub(u64::from(is_return_address));
        let after = upper_bound(0..self.len(), |at| self.get(at).map(|module| module.start), address);
        let module = self.get(after.checked_sub(1)?).filter(|module| address < module.end)?;
        let row = |at: usize| module.table.get(at).copied();
        let (count, address) = (module.table.len(), address.wrapping_sub(module.bias));
        Some(rule_among(0..count, count, row, address, is_return_address))
    }
}

/// The rule of an address in a table of `count` rows, of which those up to `among` are not after
/// the address, and those behind are.
///
/// A return address stands for the call before it, so it is looked up one byte lower. But nothing
/// calls a trampoline of signals: the kernel makes its first byte the handler's return address.
#[inline]
pub(crate) fn rule_among(
    among: Range<usize>,
    count: usize,
    row: impl Fn(usize) -> Option<Row>,
    address: u64,
    is_return_address: bool,
) -> Rule {
    let Ok(address) = u32::try_from(address) else { return Rule::Unsupported };
    let after = upper_bound(among, |at| row(at).map(|row| row.address), address);
    if is_return_address
        && let Some(next) = row(after).filter(|_| after < count)
        && next.address.wrapping_sub(1) == address
        && Rule::unpack(next.rule) == Rule::Signal
    {
        return Rule::Signal;
    }
    let found = after.checked_sub(1).and_then(row);
    found.map_or(Rule::Unsupported, |row| Rule::unpack(row.rule))
}

/// The first place in a range of ascending values with one that is greater than another. If they do
/// not ascend, or are not there, it is some place up to the range's end.
#[inline]
pub(crate) fn upper_bound<T: Ord>(range: Range<usize>, value: impl Fn(usize) -> Option<T>, of: T) -> usize {
    let (mut low, mut left) = (range.start, range.len());
    // Processors cannot predict where it goes, so it goes there without a jump.
    while left > 0 {
        let half = left / 2;
        let is_behind = value(low + half).is_some_and(|value| value <= of);
        low = if is_behind { low + half + 1 } else { low };
        left = if is_behind { left - half - 1 } else { half };
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{Cfa, Saved};

    fn frame(bytes: u32) -> Rule {
        Rule::Frame { cfa: Cfa::Rsp(bytes), rbp: Saved::No, rbx: Saved::No }
    }

    fn row(address: u32, rule: Rule) -> Row {
        Row { address, rule: rule.pack() }
    }

    #[test]
    fn the_rule_is_that_of_the_last_row_not_after_the_address() {
        let table = [row(0x10, frame(8)), row(0x11, frame(16)), row(0x20, Rule::Unsupported)];
        let modules = [
            Module { start: 0x1000, end: 0x2000, bias: 0x1000, table: &table },
            Module { start: 0x3000, end: 0x4000, bias: 0x2ff0, table: &table },
        ];
        let rule = |address| modules.as_slice().rule(address, false);
        assert_eq!(rule(0x0fff), None);
        assert_eq!(rule(0x1000), Some(Rule::Unsupported));
        assert_eq!(rule(0x1010), Some(frame(8)));
        assert_eq!(rule(0x101f), Some(frame(16)));
        assert_eq!(rule(0x1020), Some(Rule::Unsupported));
        assert_eq!(rule(0x2000), None);
        assert_eq!(rule(0x3000), Some(frame(8)));
        assert_eq!(rule(0x4000), None);
        assert_eq!(modules.as_slice().rule(0x1020, true), Some(frame(16)));
        assert_eq!(modules.as_slice().rule(0x1011, true), Some(frame(8)));
    }

    #[test]
    fn a_return_address_may_be_the_first_byte_of_a_trampoline() {
        let table = [row(0x10, frame(8)), row(0x20, Rule::Signal), row(0x29, Rule::Unsupported)];
        let modules = [Module { start: 0, end: 0x100, bias: 0, table: &table }];
        assert_eq!(modules.as_slice().rule(0x20, true), Some(Rule::Signal));
        assert_eq!(modules.as_slice().rule(0x1f, true), Some(frame(8)));
        assert_eq!(modules.as_slice().rule(0x29, true), Some(Rule::Signal));
    }
}
