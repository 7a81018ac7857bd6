//! The errors of reading an ELF file.

use std::path::PathBuf;

/// Why an ELF file, or one part of it, cannot be used. Every variant names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The system could not open or read the file.
    #[error("{}: cannot {action}: {cause}", printable::path(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation: `open`, `read 64 bytes at 0x40`.
        action: String,
        /// The system's answer.
        #[source]
        cause: std::io::Error,
    },
    /// The file is something else.
    #[error("{}: not an ELF file: {found}", printable::path(path))]
    NotElf {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        found: String,
    },
    /// A header or table contradicts itself or the file's length.
    #[error("{}: damaged ELF file: {what} at offset {offset:#x}: {cause}", printable::path(path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The header or table.
        what: String,
        /// Its offset in the file, in bytes.
        offset: u64,
        /// The contradiction.
        cause: String,
    },
    /// A table is larger than in any real file.
    #[error(
        "{}: {what} at offset {offset:#x} is {size} bytes long; at most {limit} are read",
        printable::path(path)
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The table.
        what: String,
        /// Its offset in the file, in bytes.
        offset: u64,
        /// Its length in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
}
