//! Access to the text of a program and of the files that it includes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Maximum size of a file in bytes, enough for 20,000 probes with handlers of a few lines. The cost
/// of compiling is bounded by the number of tokens.
pub const MAX_FILE_BYTES: usize = 8 << 20;

/// Reads files.
pub trait Files {
    /// The content of a file of at most `limit` bytes. `include` is true if the program text names
    /// the file.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if there is no such file, so that the next directory is
    /// searched; [`io::ErrorKind::FileTooLarge`] beyond the limit.
    fn read(&self, path: &Path, limit: usize, include: bool) -> io::Result<Vec<u8>>;

    /// The canonical path of a file: all names of one file give the same path.
    fn identity(&self, path: &Path) -> PathBuf;
}

/// The files on disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFiles;

impl Files for DiskFiles {
    fn read(&self, path: &Path, limit: usize, include: bool) -> io::Result<Vec<u8>> {
        // A program text must not make the compiler wait on a pipe or a terminal; the user's own
        // argument may.
        if include && !fs::metadata(path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let mut bytes = Vec::new();
        let room = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
        File::open(path)?.take(room).read_to_end(&mut bytes)?;
        if bytes.len() > limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(bytes)
    }

    fn identity(&self, path: &Path) -> PathBuf {
        path.canonicalize().unwrap_or_else(|_| path.to_owned())
    }
}

/// Files held in memory, by path.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles(pub BTreeMap<PathBuf, String>);

impl Files for MemoryFiles {
    fn read(&self, path: &Path, limit: usize, _include: bool) -> io::Result<Vec<u8>> {
        let text = self.0.get(path).ok_or(io::ErrorKind::NotFound)?;
        if text.len() > limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(text.clone().into_bytes())
    }

    fn identity(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }
}
