//! The errors of looking up a process's modules.

use std::path::PathBuf;

use image::ImageError;

use crate::Obstacle;

/// Why a process's modules, or one of them, cannot be determined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModuleError {
    /// The system did not give information about the process.
    #[error("process {pid}: cannot {action}: {cause}")]
    Process {
        /// The process.
        pid: i32,
        /// What was tried.
        action: String,
        /// The system's answer.
        #[source]
        cause: std::io::Error,
    },
    /// The kernel does not allow it.
    #[error("process {pid} cannot be traced: the kernel forbids it: {obstacle}")]
    Forbidden {
        /// The process.
        pid: i32,
        /// Why.
        obstacle: Obstacle,
    },
    /// The process runs a file that its path no longer leads to: it was replaced or deleted.
    #[error(
        "{}: the file that process {pid} runs has been replaced or deleted ({why}); restart the process, or trace \
         as root to read the old file",
        printable::path(path)
    )]
    Replaced {
        /// The process.
        pid: i32,
        /// The path, as the process's mappings show it.
        path: PathBuf,
        /// How that was seen.
        why: String,
    },
    /// The file is not a valid ELF file.
    #[error(transparent)]
    Image(#[from] ImageError),
}
