//! From an ELF file to a table of rows.

mod elf;
mod entries;
mod rules;
mod stubs;

use std::vec::Vec;

use thiserror::Error;

use super::row::{Row, Rule};
use elf::Sections;
use entries::Entries;

/// The most rows of a table: 128 MiB of them. Chromium has some 5 million.
const ROWS: usize = 1 << 24;

/// The unwinding information of an ELF file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The virtual address that the rows are relative to: that of the page where the file's first
    /// segment begins. Mapped, it is where the module starts.
    pub base: u64,
    /// The rows, ascending. Two in sequence are not equal.
    pub rows: Vec<Row>,
}

/// Why a file has no table.
#[derive(Debug, Error)]
pub enum TableError {
    /// It is no ELF file, or its headers are damaged.
    #[error("this is not a sound ELF file: {0}")]
    Damaged(#[from] object::Error),
    /// It is for another machine.
    #[error("this is a file for machine {0} (ELF's number), not for x86-64 (62)")]
    Machine(u16),
    /// It has more unwinding information than is read.
    #[error("{section} has {size} bytes, and at most {limit} are read")]
    Large {
        /// The section.
        section: &'static str,
        /// Its size, uncompressed.
        size: u64,
        /// The limit.
        limit: u64,
    },
}

impl Table {
    /// Reads the bytes of an ELF file, or of an image in memory such as the vdso: its `.eh_frame`,
    /// and its `.debug_frame` for functions that `.eh_frame` does not have. A file without either
    /// has a table without rows, or with those of its procedure linkage table.
    ///
    /// Damaged information ends where the damage is: what follows is [`Rule::Unsupported`].
    ///
    /// # Errors
    /// [`TableError`]
    pub fn read(file: &[u8]) -> Result<Table, TableError> {
        let sections = Sections::read(file)?;
        let entries = Entries::list(&sections);
        let mut rows = Rows { base: sections.base, rows: Vec::new() };
        let mut reached = 0;
        let mut translator = rules::Translator::new(&sections);
        for (at, entry) in entries.list.iter().enumerate() {
            stubs::fill(&sections, reached..entry.start, &mut rows);
            let next = entries.list.get(at + 1).map_or(u64::MAX, |next| next.start);
            let end = entry.end.min(next);
            if stubs::is_trampoline(&sections, entry.start) {
                rows.push(entry.start, Rule::Signal);
            } else {
                translator.translate(entry, end, &mut rows);
            }
            if !stubs::is_padding(&sections, end..next) {
                rows.push(end, Rule::Unsupported);
            }
            reached = end;
        }
        stubs::fill(&sections, reached..u64::MAX, &mut rows);
        rows.rows.shrink_to_fit();
        Ok(Table { base: sections.base, rows: rows.rows })
    }
}

/// Rows as they are added, by ascending address.
struct Rows {
    base: u64,
    rows: Vec<Row>,
}

impl Rows {
    /// Adds a row, unless it is the same as the one before. It replaces one of the same address.
    fn push(&mut self, vaddr: u64, rule: Rule) {
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
