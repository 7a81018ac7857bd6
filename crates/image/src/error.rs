//! What can be wrong with an ELF file.

use std::path::PathBuf;

/// Why an ELF file, or one part of it, cannot be used. Every variant names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The system refused to open or read the file.
    #[error("{}: cannot {action}: {cause}", printable::path(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried: `open`, `read 64 bytes at 0x40`.
        action: String,
        /// The system's answer.
        #[source]
        cause: std::io::Error,
    },
    /// The file exists, but holds something else.
    #[error("{}: not an ELF file: {found}", printable::path(path))]
    NotElf {
        /// The file.
        path: PathBuf,
        /// What stands there instead.
        found: String,
    },
    /// A header or table contradicts itself or the file's length.
    #[error("{}: damaged ELF file: {what} at offset {offset:#x}: {cause}", printable::path(path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The header or table.
        what: String,
        /// Where it stands, in bytes from the start of the file.
        offset: u64,
        /// The contradiction.
        cause: String,
    },
    /// A table is larger than any sound file's.
    #[error(
        "{}: {what} at offset {offset:#x} is {size} bytes long; at most {limit} are read",
        printable::path(path)
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The table.
        what: String,
        /// Where it stands, in bytes from the start of the file.
        offset: u64,
        /// Its length in bytes.
        size: u64,
        /// The longest that is read, in bytes.
        limit: u64,
    },
}
