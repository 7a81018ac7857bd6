//! Reads the tables of files, once each.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use image::{FileId, Image};
use unwind::{Row, Table};

/// The most rows that are kept of all files together: 512 MiB of them.
const ROWS: usize = 64 << 20;
/// How many images without a file are kept: the vDSO of each kind of process.
const IN_MEMORY: usize = 4;

/// The table of a file.
#[derive(Debug)]
pub(crate) struct FileTable {
    /// A number that no other table has.
    number: u64,
    table: Table,
}

impl FileTable {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The virtual address that its rows are relative to.
    pub(crate) fn base(&self) -> u64 {
        self.table.base
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.table.rows
    }

    #[cfg(test)]
    pub(super) fn of(rows: Vec<Row>) -> Rc<FileTable> {
        FileTable::new(Table { base: 0, rows })
    }

    fn new(table: Table) -> Rc<FileTable> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Rc::new(FileTable { number: NEXT.fetch_add(1, Ordering::Relaxed), table })
    }
}

/// The tables of files, shared by all processes.
#[derive(Debug, Default)]
pub(crate) struct UnwindTables {
    by_file: HashMap<FileId, Rc<FileTable>>,
    /// Those of images without a file.
    in_memory: Vec<(Arc<Image>, Rc<FileTable>)>,
}

impl UnwindTables {
    /// The table of an image. `None` if it has no rows, or there is no room for more.
    pub(crate) fn of(&mut self, image: &Arc<Image>) -> Option<Rc<FileTable>> {
        let known = match image.file_id() {
            Some(id) => self.by_file.get(id),
            None => self.in_memory.iter().find(|(other, _)| Arc::ptr_eq(other, image)).map(|known| &known.1),
        };
        let table = match known {
            Some(table) => Rc::clone(table),
            None => self.read(image),
        };
        (!table.rows().is_empty()).then_some(table)
    }

    /// Reads a table and keeps it.
    fn read(&mut self, image: &Arc<Image>) -> Rc<FileTable> {
        let mut table = image
            .loaded_parts(&[".debug_frame"])
            .and_then(|file| Table::read(&file).ok())
            .unwrap_or_default();
        if self.rows() + table.rows.len() > ROWS {
            self.by_file.retain(|_, table| Rc::strong_count(table) > 1);
        }
        if self.rows() + table.rows.len() > ROWS {
            table.rows = Vec::new();
        }
        let table = FileTable::new(table);
        match image.file_id() {
            Some(id) => drop(self.by_file.insert(*id, Rc::clone(&table))),
            None => {
                self.in_memory.truncate(IN_MEMORY - 1);
                self.in_memory.insert(0, (Arc::clone(image), Rc::clone(&table)));
            }
        }
        table
    }

    /// How many rows are kept.
    fn rows(&self) -> usize {
        self.by_file.values().map(|table| table.rows().len()).sum()
    }
}
