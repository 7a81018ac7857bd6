//! All modules of a process and their tables, in one block of words that can be mapped.
//!
//! ```text
//!   a list         how many modules
//!                  for each module: start, end, bias, (first row | rows << 32),
//!                  (shift | steps << 32)
//!   a table        rows: address | rule << 32, a `Row` as it is in memory
//!                  steps, two in a word: how many rows are before each multiple of 2^shift
//! ```
//!
//! `first row` is the index of a word in the block. Modules ascend by address. Lists and tables may
//! be anywhere in the block, so it can grow behind a list that is being read: tables of new
//! modules, then another list.
//!
//! Code is about as dense with rows everywhere, so between two steps there are few. To find the row
//! of an address takes one step and three comparisons or so, instead of sixteen all over the table,
//! half of which a processor predicts wrongly.

use core::cell::Cell;
#[cfg(feature = "std")]
use std::vec::Vec;

#[cfg(feature = "std")]
use super::lookup::Module;
use super::lookup::{Lookup, rule_among, upper_bound};
use super::row::{Row, Rule};

/// The words of a module.
const MODULE: usize = 5;
/// The rows between two steps, on average.
#[cfg(feature = "std")]
const EACH: usize = 4;

/// Reads what [`build`](super::build), or [`list`](super::list) and [`words`](super::words), have
/// written. Any words will do; if they are none of theirs, it finds nothing or nonsense.
#[derive(Clone, Debug)]
pub struct Index<'a> {
    words: &'a [u64],
    /// How many modules there are, and the first word of the first.
    count: usize,
    modules: usize,
    /// The module that was found last: most callers are in the module of the function called.
    last: Cell<Found>,
}

/// The words of a module.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    start: u64,
    end: u64,
    bias: u64,
    rows: u64,
    steps: u64,
}

impl<'a> Index<'a> {
    /// The list that begins at an index of the block's words.
    #[inline]
    pub fn new(words: &'a [u64], list: usize) -> Index<'a> {
        let count = words.get(list).map_or(0, |count| usize::try_from(*count).unwrap_or(usize::MAX));
        // No more than there is room for.
        let (count, modules) = (count.min(words.len() / MODULE), list.saturating_add(1));
        Index { words, count, modules, last: Cell::default() }
    }

    /// The words of a module in the list.
    #[inline]
    fn module(&self, module: usize) -> Option<&'a [u64; MODULE]> {
        let at = module.checked_mul(MODULE)?.checked_add(self.modules)?;
        self.words.get(at..)?.first_chunk()
    }

    /// The module of an address.
    #[inline]
    fn find(&self, address: u64) -> Option<Found> {
        let last = self.last.get();
        if (last.start..last.end).contains(&address) {
            return Some(last);
        }
        let start = |at| self.module(at).map(|words| words[0]);
        let at = upper_bound(0..self.count, start, address).checked_sub(1)?;
        let &[start, end, bias, rows, steps] = self.module(at)?;
        let found = Found { start, end, bias, rows, steps };
        (start..end).contains(&address).then(|| {
            self.last.set(found);
            found
        })
    }
}

impl Lookup for Index<'_> {
    #[inline]
    fn rule(&self, address: u64, is_return_address: bool) -> Option<Rule> {
        let address = address.wrapping_sub(u64::from(is_return_address));
        let module = self.find(address)?;
        let (first, count) = (module.rows as u32 as usize, (module.rows >> 32) as usize);
        let (rows, steps) = self.words.get(first..)?.split_at_checked(count)?;
        let address = address.wrapping_sub(module.bias);
        let row =
            |at: usize| rows.get(at).map(|word| Row { address: *word as u32, rule: (*word >> 32) as u32 });
        let step = |at: u64| {
            let word = steps.get(usize::try_from(at / 2).ok()?).filter(|_| at < module.steps >> 32)?;
            Some((*word >> (32 * (at & 1))) as u32 as usize)
        };
        let at = address.checked_shr(module.steps as u32).unwrap_or(0);
        // Behind the last step there are no rows.
        let low = step(at).unwrap_or(count).min(count);
        let high = step(at.wrapping_add(1)).unwrap_or(count).min(count);
        Some(rule_among(low..high, count, row, address, is_return_address))
    }
}

/// A module whose table is in a block.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    start: u64,
    end: u64,
    bias: u64,
    first: usize,
    rows: usize,
    shift: u32,
    steps: usize,
}

#[cfg(feature = "std")]
impl Listed {
    /// A module, and the index of the word where its table begins. Beyond 2^32 it has no rows.
    pub fn new(module: &Module<'_>, first: usize) -> Listed {
        let Module { start, end, bias, table } = *module;
        let (shift, steps) = (shift(table), step_count(table));
        Listed { start, end, bias, first, rows: table.len(), shift, steps }
    }
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
        let steps = u64::from(module.shift) | (module.steps as u64) << 32;
        [module.start, module.end, module.bias, rows, steps]
    });
    std::iter::once(modules.len() as u64).chain(each).collect()
}

/// The bytes between two steps of a table, as a power of 2: there are no more steps than a part of
/// the rows.
#[cfg(feature = "std")]
fn shift(table: &[Row]) -> u32 {
    let last = table.last().map_or(0, |row| u64::from(row.address));
    let most = table.len() / EACH;
    (0..u32::BITS).find(|shift| (last >> shift) as usize <= most).unwrap_or(u32::BITS)
}

/// The words of a table: its rows, and its steps.
#[cfg(feature = "std")]
pub fn words(table: &[Row]) -> impl Iterator<Item = u64> {
    let rows = table.iter().map(|row| u64::from(row.address) | u64::from(row.rule) << 32);
    let shift = shift(table);
    // One for each multiple up to the last row's, which are at most 2^32.
    let count = step_count(table) as u64;
    let mut before = 0;
    let mut step = move |at: u64| {
        let end = at << shift;
        before += table[before..].iter().take_while(|row| u64::from(row.address) < end).count();
        before as u64
    };
    let steps = (0..count.div_ceil(2)).map(move |word| step(2 * word) | step(2 * word + 1) << 32);
    rows.chain(steps)
}

/// How many words a table takes.
#[cfg(feature = "std")]
pub fn word_count(table: &[Row]) -> usize {
    table.len() + step_count(table).div_ceil(2)
}

#[cfg(feature = "std")]
fn step_count(table: &[Row]) -> usize {
    table.last().map_or(0, |row| (u64::from(row.address) >> shift(table)) as usize + 1)
}

/// A block with these modules, whose list is at its beginning. A table that several modules share
/// is there once.
#[cfg(feature = "std")]
pub fn build(modules: &[Module<'_>]) -> Vec<u64> {
    let mut end = 1 + modules.len() * MODULE;
    let mut placed: std::collections::HashMap<(usize, usize), usize> = std::collections::HashMap::new();
    let mut tables = Vec::new();
    let each = modules.iter().map(|module| {
        let table = module.table;
        let first = *placed.entry((table.as_ptr().addr(), table.len())).or_insert_with(|| {
            let first = end;
            tables.push(table);
            end += word_count(table);
            first
        });
        Listed::new(module, first)
    });
    let mut block = list(each.collect());
    block.resize(1 + modules.len() * MODULE, 0);
    block.reserve_exact(end - block.len());
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

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_table_has_the_words_that_are_counted_and_few_steps(
            addresses in prop::collection::btree_set(prop_oneof![0..1000u32, any::<u32>()], 0..200)
        ) {
            let table: Vec<Row> = addresses.into_iter().map(|address| Row { address, rule: address }).collect();
            let words: Vec<u64> = words(&table).collect();
            prop_assert_eq!(words.len(), word_count(&table));
            prop_assert!(step_count(&table) <= table.len() / EACH + 1);
            let module = Module { start: 0, end: u64::MAX, bias: 0, table: &table };
            let words = build(&[module]);
            let index = Index::new(&words, 0);
            for row in &table {
                for address in [row.address.wrapping_sub(1), row.address, row.address.wrapping_add(1)] {
                    let expected = [module].as_slice().rule(address.into(), false);
                    prop_assert_eq!(index.rule(address.into(), false), expected);
                }
            }
        }
    }

    /// What was read goes on being right: rows and lists of other modules come behind.
    #[test]
    fn a_block_grows() {
        let table = [Row { address: 0, rule: 2 }, Row { address: 8, rule: 3 }];
        let module =
            |start, first| Listed::new(&Module { start, end: start + 16, bias: start, table: &table }, first);
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
        assert_eq!(words.len(), 1 + 3 * MODULE + word_count(&rows));
    }
}
