//! All modules of a process and their tables, as one block of words that can be mapped.
//!
//! ```text
//!   word 0                 how many modules
//!   then for each module   start, end, bias, (first row | rows << 32)
//!   then all rows          address | rule << 32: a `Row`, as it is in memory
//! ```
//!
//! `first row` is the index of a word. Modules ascend by address.

#[cfg(feature = "std")]
use std::vec::Vec;

#[cfg(feature = "std")]
use super::lookup::Module;
use super::lookup::{Lookup, rule_in, upper_bound};
use super::row::{Row, Rule};

/// The words of a module.
const MODULE: usize = 4;

/// Reads what [`build`](super::build) has written. Any words will do; if they are none of its, it
/// finds nothing or nonsense.
#[derive(Clone, Copy, Debug)]
pub struct Index<'a>(pub &'a [u64]);

impl Index<'_> {
    #[inline]
    fn word(&self, module: usize, field: usize) -> Option<u64> {
        self.0.get(1 + module.checked_mul(MODULE)?.checked_add(field)?).copied()
    }
}

impl Lookup for Index<'_> {
    #[inline]
    fn rule(&self, address: u64, is_return_address: bool) -> Option<Rule> {
        let address = address.wrapping_sub(u64::from(is_return_address));
        // No more than there is room for.
        let count = usize::try_from(*self.0.first()?).ok()?.min(self.0.len() / MODULE);
        let module = upper_bound(count, |at| self.word(at, 0), address).checked_sub(1)?;
        let (end, bias, rows) = (self.word(module, 1)?, self.word(module, 2)?, self.word(module, 3)?);
        if address >= end {
            return None;
        }
        let (first, count) = (rows as u32 as usize, (rows >> 32) as usize);
        let rows = self.0.get(first..first.checked_add(count)?)?;
        let row =
            |at: usize| rows.get(at).map(|word| Row { address: *word as u32, rule: (*word >> 32) as u32 });
        Some(rule_in(rows.len(), row, address.wrapping_sub(bias), is_return_address))
    }
}

/// Lays modules out for an [`Index`]. A table that several modules share is there once. Modules
/// that overlap one before are left out.
///
/// A table beyond 32 GiB of rows is left out: its module is one without information.
#[cfg(feature = "std")]
pub fn build(modules: &[Module<'_>]) -> Vec<u64> {
    let mut sorted: Vec<&Module<'_>> = modules.iter().filter(|module| module.start < module.end).collect();
    sorted.sort_by_key(|module| module.start);
    let mut end = 0;
    sorted.retain(|module| {
        let apart = module.start >= end;
        end = if apart { module.end } else { end };
        apart
    });
    let mut first = 1 + sorted.len() * MODULE;
    let mut placed: std::collections::HashMap<(usize, usize), usize> = std::collections::HashMap::new();
    let mut words = Vec::from([sorted.len() as u64]);
    let mut tables = Vec::new();
    for module in sorted {
        let table = module.table;
        let at = *placed.entry((table.as_ptr().addr(), table.len())).or_insert_with(|| {
            tables.push(table);
            first += table.len();
            first - table.len()
        });
        let rows = match (u32::try_from(at), u32::try_from(table.len())) {
            (Ok(at), Ok(count)) => u64::from(at) | u64::from(count) << 32,
            _ => 0,
        };
        words.extend([module.start, module.end, module.bias, rows]);
    }
    words.reserve_exact(first - words.len());
    for table in tables {
        words.extend(table.iter().map(|row| u64::from(row.address) | u64::from(row.rule) << 32));
    }
    words
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn modules<'a>(gaps: &[(u64, u64)], tables: &'a [Vec<Row>]) -> Vec<Module<'a>> {
        let mut at = 0u64;
        let mut made = Vec::new();
        for ((gap, size), table) in gaps.iter().zip(tables) {
            let start = at + gap;
            at = start + size;
            made.push(Module { start, end: at, bias: start, table });
        }
        made
    }

    fn table() -> impl Strategy<Value = Vec<Row>> {
        prop::collection::btree_map(0..300u32, any::<u32>(), 0..20)
            .prop_map(|rows| rows.into_iter().map(|(address, rule)| Row { address, rule }).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn an_index_finds_what_the_modules_have(
            gaps in prop::collection::vec((0..200u64, 1..400u64), 0..8),
            tables in prop::collection::vec(table(), 8),
        ) {
            let modules = modules(&gaps, &tables);
            let mut shuffled = modules.clone();
            shuffled.reverse();
            let words = build(&shuffled);
            for address in 0..4000 {
                for is_return_address in [false, true] {
                    let expected = modules.as_slice().rule(address, is_return_address);
                    prop_assert_eq!(Index(&words).rule(address, is_return_address), expected);
                }
            }
        }

        #[test]
        fn any_words_are_an_index(words in prop::collection::vec(prop_oneof![0..40u64, any::<u64>()], 0..60)) {
            for address in words.iter().copied().chain([0, 1, u64::MAX]) {
                let _ = Index(&words).rule(address, false);
                let _ = Index(&words).rule(address.wrapping_add(1), true);
            }
        }
    }

    #[test]
    fn a_shared_table_is_there_once() {
        let rows = [Row { address: 0, rule: 2 }; 100];
        let module = |start| Module { start, end: start + 10, bias: 0, table: &rows };
        let words = build(&[module(0), module(20), module(5)]);
        assert_eq!(words.len(), 1 + 2 * MODULE + rows.len());
    }
}
