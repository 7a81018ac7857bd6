//! From an ELF file to a table of rows.

mod elf;
mod entries;
mod error;
mod rows;
mod rules;
mod stubs;

use std::vec::Vec;

use super::row::{Row, Rule};
use elf::Sections;
use entries::Entries;
pub use error::TableError;
use rows::Rows;

/// The unwinding information of an ELF file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The virtual address that the rows are relative to: that of the page where the file's first
    /// segment begins. Mapped, it is where the module starts.
    pub base: u64,
    /// The rows, ascending. Two in sequence are not equal.
    pub rows: Vec<Row>,
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
        let mut rows = Rows::new(sections.base);
        let mut reached = 0;
        let mut translator = rules::Translator::new(&sections);
        for (at, entry) in entries.list.iter().enumerate() {
            stubs::fill(&sections, reached..entry.start, &mut rows);
            let next = entries.list.get(at + 1).map_or(u64::MAX, |next| next.start);
            let end = entry.end.min(next);
            if stubs::is_trampoline(&sections, entry.start) {
                rows.push(entry.start, Rule::Signal);
            } else {
                // Of an entry that is damaged from its beginning comes no row.
                rows.push(entry.start, Rule::Unsupported);
                translator.translate(entry, end, &mut rows);
            }
            if !stubs::is_padding(&sections, end..next) {
                rows.push(end, Rule::Unsupported);
            }
            reached = end;
        }
        stubs::fill(&sections, reached..u64::MAX, &mut rows);
        Ok(Table { base: sections.base, rows: rows.finish() })
    }
}
