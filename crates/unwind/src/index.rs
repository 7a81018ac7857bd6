//! All modules of a process and their tables, in one block of words that can be mapped.
//!
//! ```text
//!   a list         how many modules
//!                  for each module: start, end, bias, (first row | rows << 32)
//!   rows           address | rule << 32: a `Row`, as it is in memory
//! ```
//!
//! `first row` is the index of a word in the block. Modules ascend by address. Lists and rows may
//! be anywhere in the block, so it can grow behind a list that is being read: rows of new modules,
//! then another list.

#[cfg(feature = "std")]
use std::vec::Vec;

#[cfg(feature = "std")]
use super::lookup::Module;
use super::lookup::{Lookup, rule_in, upper_bound};
use super::row::{Row, Rule};

/// The words of a module.
const MODULE: usize = 4;

/// Reads what [`build`](super::build), or [`list`](super::list) and [`words`](super::words), have
/// written. Any words will do; if they are none of theirs, it finds nothing or nonsense.
#[derive(Clone, Copy, Debug)]
pub struct Index<'a> {
    words: &'a [u64],
    /// How many modules there are, and the first word of the first.
    count: usize,
    modules: usize,
}

impl<'a> Index<'a> {
    /// The list that begins at an index of the block's words.
    #[inline]
    pub fn new(words: &'a [u64], list: usize) -> Index<'a> {
        let count = words.get(list).map_or(0, |count| usize::try_from(*count).unwrap_or(usize::MAX));
        // No more than there is room for.
        Index { words, count: count.min(words.len() / MODULE), modules: list.saturating_add(1) }
    }

    #[inline]
    fn word(&self, module: usize, field: usize) -> Option<u64> {
        let at = module.checked_mul(MODULE)?.checked_add(field)?.checked_add(self.modules)?;
        self.words.get(at).copied()
    }
}

impl Lookup for Index<'_> {
    #[inline]
    fn rule(&self, address: u64, is_return_address: bool) -> Option<Rule> {
        let address = address.wrapping_sub(u64::from(is_return_address));
        let module = upper_bound(self.count, |at| self.word(at, 0), address).checked_sub(1)?;
        let (end, bias, rows) = (self.word(module, 1)?, self.word(module, 2)?, self.word(module, 3)?);
        if address >= end {
            return None;
        }
        let (first, count) = (rows as u32 as usize, (rows >> 32) as usize);
        let rows = self.words.get(first..first.checked_add(count)?)?;
        let row =
            |at: usize| rows.get(at).map(|word| Row { address: *word as u32, rule: (*word >> 32) as u32 });
        Some(rule_in(rows.len(), row, address.wrapping_sub(bias), is_return_address))
    }
}

/// A module whose rows are in a block.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its first address.
    pub start: u64,
    /// The address after it.
    pub end: u64,
    /// What an address in the process is greater than one in the table.
    pub bias: u64,
    /// The index of the word that is its first row. Beyond 2^32 it has no rows.
    pub first: usize,
    /// How many rows it has.
    pub rows: usize,
}

/// The words of a list of modules. Modules that overlap one before are left out.
#[cfg(feature = "std")]
pub fn list(mut modules: Vec<Listed>) -> Vec<u64> {
    modules.retain(|module| module.start < module.end);
    modules.sort_by_key(|module| module.start);
    let mut end = 0;
    modules.retain(|module| {
        let apart = module.start >= end;
        end = if apart { module.end } else { end };
        apart
    });
    let each = modules.iter().flat_map(|module| {
        let rows = match (u32::try_from(module.first), u32::try_from(module.rows)) {
            (Ok(first), Ok(count)) => u64::from(first) | u64::from(count) << 32,
            _ => 0,
        };
        [module.start, module.end, module.bias, rows]
    });
    std::iter::once(modules.len() as u64).chain(each).collect()
}

/// The words of a table.
#[cfg(feature = "std")]
pub fn words(table: &[Row]) -> impl Iterator<Item = u64> {
    table.iter().map(|row| u64::from(row.address) | u64::from(row.rule) << 32)
}

/// A block with these modules, whose list is at its beginning. A table that several modules share
/// is there once.
#[cfg(feature = "std")]
pub fn build(modules: &[Module<'_>]) -> Vec<u64> {
    let mut first = 1 + modules.len() * MODULE;
    let mut placed: std::collections::HashMap<(usize, usize), usize> = std::collections::HashMap::new();
    let mut tables = Vec::new();
    let each = modules.iter().map(|module| {
        let table = module.table;
        let at = *placed.entry((table.as_ptr().addr(), table.len())).or_insert_with(|| {
            tables.push(table);
            first += table.len();
            first - table.len()
        });
        let (start, end, bias) = (module.start, module.end, module.bias);
        Listed { start, end, bias, first: at, rows: table.len() }
    });
    let mut block = list(each.collect());
    block.resize(1 + modules.len() * MODULE, 0);
    block.reserve_exact(first - block.len());
    block.extend(tables.into_iter().flat_map(words));
    block
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
                    prop_assert_eq!(Index::new(&words, 0).rule(address, is_return_address), expected);
                }
            }
        }

        #[test]
        fn any_words_are_an_index(words in prop::collection::vec(prop_oneof![0..40u64, any::<u64>()], 0..60)) {
            for address in words.iter().copied().chain([0, 1, u64::MAX]) {
                for list in [0, 1, words.len() / 2, words.len(), usize::MAX] {
                    let _ = Index::new(&words, list).rule(address, false);
                    let _ = Index::new(&words, list).rule(address.wrapping_add(1), true);
                }
            }
        }
    }

    /// What was read goes on being right: rows and lists of other modules come behind.
    #[test]
    fn a_block_grows() {
        let table = [Row { address: 0, rule: 2 }, Row { address: 8, rule: 3 }];
        let module = |start, first| Listed { start, end: start + 16, bias: start, first, rows: table.len() };
        let mut block: Vec<u64> = words(&table).collect();
        let before = block.len();
        block.extend(list(Vec::from([module(16, 0)])));
        let first = block.len();
        block.extend(words(&table));
        let after = block.len();
        block.extend(list(Vec::from([module(64, first), module(16, 0)])));
        let rule = |list, address| Index::new(&block, list).rule(address, false).map(Rule::pack);
        assert_eq!([16, 24, 64].map(|address| rule(before, address)), [Some(2), Some(3), None]);
        assert_eq!([16, 64, 79, 80].map(|address| rule(after, address)), [Some(2), Some(2), Some(3), None]);
    }

    #[test]
    fn a_shared_table_is_there_once() {
        let rows = [Row { address: 0, rule: 2 }; 100];
        let module = |start| Module { start, end: start + 10, bias: 0, table: &rows };
        let words = build(&[module(0), module(20), module(5)]);
        assert_eq!(words.len(), 1 + 3 * MODULE + rows.len());
    }
}
