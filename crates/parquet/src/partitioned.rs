//! A trace as several files, one for each machine and hour, as DuckDB, Spark and ClickHouse find
//! them: they read only those that a query asks for.
//!
//! ```text
//! DIR/host=db1/hour=2026-11-28T21/part-1764365000123456789-0.parquet
//!          |        |                  |                   `-- a number, from 0: the parts of this hour
//!          |        |                  `-- when the trace began
//!          |        `-- of its records, in UTC
//!          `-- the machine
//! ```
//!
//! Traces of all machines may be in one directory. A trace that is converted again has the same
//! names, and replaces its files.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use convert::{Columns, Event, Form, TemplateSet, TraceFacts};
use trace::Items;

use crate::group::Parquet;
use crate::schema::taken;

/// The most hours whose files are written at the same time: each has a row group in memory.
const OPEN: usize = 3;

/// The most files of a trace.
const FILES: usize = 500;

/// Nanoseconds of an hour.
const HOUR: u64 = 3_600_000_000_000;

/// Writes each record as a row of the file of its hour.
pub struct Partitioned<W: Write, O> {
    /// Begins a file, by its path in the directory.
    open: O,
    host: String,
    start: u64,
    columns: Columns,
    /// The files that are being written, by their hours since 1970; none: the time is unknown.
    parts: BTreeMap<Option<u64>, Parquet<W>>,
    /// How many files each hour has.
    files: BTreeMap<Option<u64>, usize>,
}

impl<W: Write, O> fmt::Debug for Partitioned<W, O> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Partitioned").field("files", &self.files).finish_non_exhaustive()
    }
}

impl<W: Write, O: FnMut(&str) -> io::Result<W>> Partitioned<W, O> {
    /// Writes to what `open` gives for each path. `host` is the name of the machine that the trace
    /// is of.
    pub fn new(open: O, host: &str, known: &TraceFacts, sheet: &TemplateSet) -> Partitioned<W, O> {
        Partitioned {
            open,
            host: host.to_owned(),
            start: known.start,
            columns: Columns::new(known, sheet, &taken()),
            parts: BTreeMap::new(),
            files: BTreeMap::new(),
        }
    }

    /// The file of an hour, which is begun if need be. The earliest hour is ended for it: records
    /// come in order of time, but for a few.
    fn part(&mut self, hour: Option<u64>) -> io::Result<&mut Parquet<W>> {
        if !self.parts.contains_key(&hour) {
            if self.parts.len() >= OPEN
                && let Some((_, mut part)) = self.parts.pop_first()
            {
                part.finish()?;
            }
            if self.files.values().sum::<usize>() >= FILES {
                return Err(io::Error::other(format!(
                    "the trace has records of more than {FILES} hours; --from and --until select some"
                )));
            }
            let number = self.files.entry(hour).or_default();
            let (host, hour_name, start) = (escaped(&self.host), name(hour), self.start);
            let path = format!("host={host}/hour={hour_name}/part-{start}-{number}.parquet");
            *number += 1;
            let part = Parquet::with_columns((self.open)(&path)?, self.columns.clone())?;
            self.parts.insert(hour, part);
        }
        self.parts.get_mut(&hour).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl<W: Write, O: FnMut(&str) -> io::Result<W>> Form for Partitioned<W, O> {
    fn record(&mut self, event: &Event<'_>) -> io::Result<()> {
        let hour = event.place.items.contains(Items::TSC).then_some(event.record.time / HOUR);
        self.part(hour)?.record(event)
    }

    fn finish(&mut self) -> io::Result<Vec<String>> {
        while let Some((_, mut part)) = self.parts.pop_first() {
            part.finish()?;
        }
        Ok(Vec::new())
    }
}

/// An hour in UTC: `2026-11-28T21`.
fn name(hour: Option<u64>) -> String {
    let Some(hour) = hour else { return "unknown".to_owned() };
    let begin = UNIX_EPOCH + Duration::from_secs(hour.saturating_mul(3600));
    let mut text = humantime::format_rfc3339_seconds(begin).to_string();
    text.truncate("2026-11-28T21".len());
    text
}

/// A name as Hive has it in paths: `%` and two digits for what means something there.
fn escaped(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let name: String = name
        .bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    // Hive's name for what is empty.
    if name.is_empty() { "__HIVE_DEFAULT_PARTITION__".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_dates_of_utc() {
        let at = |seconds: u64| name(Some(seconds / 3600));
        assert_eq!(at(0), "1970-01-01T00");
        assert_eq!(at(951_825_599), "2000-02-29T11");
        assert_eq!(at(1_700_000_000), "2023-11-14T22");
        assert_eq!(at(4_107_542_399), "2100-02-28T23");
        assert_eq!(at(4_107_542_400), "2100-03-01T00");
        assert_eq!(name(Some(u64::MAX / HOUR)), "2554-07-21T23");
        assert_eq!(name(None), "unknown");
    }

    #[test]
    fn a_hostile_name_stays_in_its_directory() {
        assert_eq!(escaped("db-1.example"), "db-1.example");
        assert_eq!(escaped("../a=b c"), "..%2Fa%3Db%20c");
        assert_eq!(escaped(""), "__HIVE_DEFAULT_PARTITION__");
    }
}
