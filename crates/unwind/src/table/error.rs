//! Why a file has no table.

use thiserror::Error;

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
