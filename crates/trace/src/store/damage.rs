//! Errors and damage of a store.

use std::fmt;
use std::io;

/// Why a file cannot be read as a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is not a store, or nothing of a store is left in it.
    #[error("it is not a trace store: {0}")]
    NotAStore(String),
}

/// A part of a store that cannot be read. The reader continues after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The position of the damage, in bytes from the start of the file.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
    /// How many bytes were skipped.
    pub skipped: u64,
    /// How many blocks are lost; none if it is unknown.
    pub blocks: Option<u64>,
    /// How many records are lost; none if it is unknown.
    pub records: Option<u64>,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { offset, what, skipped, blocks, records } = self;
        let count =
            |number: u64, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
        write!(f, "offset {offset:#x}: {what}; skipped {}", count(*skipped, "byte"))?;
        match (blocks, records) {
            (Some(blocks), Some(records)) => {
                write!(f, ", with {} and {}", count(*blocks, "block"), count(*records, "record"))
            }
            _ => f.write_str("; the number of lost records is unknown"),
        }
    }
}
