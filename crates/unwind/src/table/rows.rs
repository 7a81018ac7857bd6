//! Collects rows by ascending address, and merges equal ones.

use std::vec::Vec;

use crate::row::{Row, Rule};

/// The most rows of a table: 128 MiB of them. Chromium has 3 million.
const ROWS: usize = 1 << 24;

/// Rows as they are added, by ascending address.
pub(super) struct Rows {
    base: u64,
    rows: Vec<Row>,
}

impl Rows {
    /// No rows yet, relative to a virtual address.
    pub(super) fn new(base: u64) -> Rows {
        Rows { base, rows: Vec::new() }
    }

    /// All rows.
    pub(super) fn finish(mut self) -> Vec<Row> {
        self.rows.shrink_to_fit();
        self.rows
    }

    /// Adds a row, unless it is the same as the one before. It replaces one of the same address.
    pub(super) fn push(&mut self, vaddr: u64, rule: Rule) {
        let Ok(address) = u32::try_from(vaddr.wrapping_sub(self.base)) else { return };
        if self.rows.last().is_some_and(|last| last.address > address) {
            return;
        }
        while self.rows.last().is_some_and(|last| last.address == address) {
            self.rows.pop();
        }
        // The last row that there is room for ends the table.
        let rule = if self.rows.len() < ROWS { rule.pack() } else { Rule::Unsupported.pack() };
        let before = self.rows.last().map_or(Rule::Unsupported.pack(), |last| last.rule);
        if before != rule {
            self.rows.push(Row { address, rule });
        }
    }
}
