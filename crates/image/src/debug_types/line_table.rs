//! The line tables of a module, whole: which source line each stretch of code is of.
//!
//! In: the line programs of all units. Out: rows by address, each with the end of its code, and the
//! paths of the source files, each once.

use std::collections::{HashMap, HashSet};

use super::kinds::NoTypes;
use super::lines::path;
use super::reader::Reader;

/// The line tables of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineTable {
    /// The paths of the source files, absolute where the compiler has said in which directory it
    /// ran.
    pub files: Vec<String>,
    /// The rows, by address; of one address, in the order of the table.
    pub rows: Vec<LineRow>,
}

/// A row of a line table: a stretch of code and its source line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRow {
    /// The address of its first instruction.
    pub start: u64,
    /// Where the code of the next row begins; `start` if the row has no code of its own.
    pub end: u64,
    /// The index of its file in [`LineTable::files`].
    pub file: usize,
    /// Its line, from 1.
    pub line: u64,
    /// Whether a statement begins here, as the compiler sees it.
    pub is_statement: bool,
}

/// Reads the line tables of all units, each once.
pub(super) fn line_table(reader: &Reader<'_>) -> Result<LineTable, NoTypes> {
    let mut table = LineTable::default();
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut seen = HashSet::new();
    for &offset in reader.units {
        // One unit that is damaged does not hide the others.
        let unit = match reader.unit(offset) {
            Err(NoTypes::TooLong) => return Err(NoTypes::TooLong),
            Err(_) => continue,
            Ok(unit) => unit,
        };
        let Some(program) = unit.line_program.clone() else { continue };
        // Units of types share the table of their code.
        if !seen.insert(program.header().offset().0) {
            continue;
        }
        let mut files: HashMap<u64, Option<usize>> = HashMap::new();
        let mut rows = program.rows();
        let mut sequence: Vec<LineRow> = Vec::new();
        while let Some((header, row)) = rows.next_row()? {
            reader.spend(1)?;
            if let Some(last) = sequence.last_mut() {
                last.end = row.address().max(last.start);
            }
            if row.end_sequence() {
                // What the linker has removed is left at address 0. Line 0 is code of no line.
                let removed = sequence.first().is_none_or(|first| first.start == 0);
                let kept = sequence.drain(..).filter(|row| !removed && row.line > 0);
                table.rows.extend(kept);
                continue;
            }
            let file = *files.entry(row.file_index()).or_insert_with(|| {
                let path = normal(&path(reader, &unit, header, row.file_index())?);
                let next = numbers.len();
                Some(*numbers.entry(path).or_insert(next))
            });
            let (line, file) = match file {
                Some(file) => (row.line().map_or(0, |line| line.get()), file),
                None => (0, 0),
            };
            let start = row.address();
            sequence.push(LineRow { start, end: start, file, line, is_statement: row.is_stmt() });
        }
    }
    table.files = vec![String::new(); numbers.len()];
    numbers.into_iter().for_each(|(path, number)| table.files[number] = path);
    table.rows.sort_by_key(|row| row.start);
    Ok(table)
}

/// A path without `.` and `..`, as far as that needs no file system.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let is_absolute = path.starts_with('/');
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            ".." if is_absolute => {}
            part => parts.push(part),
        }
    }
    format!("{}{}", if is_absolute { "/" } else { "" }, parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::normal;

    #[test]
    fn paths_lose_what_leads_nowhere() {
        assert_eq!(normal("/a/./b//c.c"), "/a/b/c.c");
        assert_eq!(normal("/a/b/../../../c.c"), "/c.c");
        assert_eq!(normal("./a/../../b.c"), "../b.c");
        assert_eq!(normal("x.c"), "x.c");
    }
}
