//! Where the text of a program and of its includes comes from.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Bytes a file may have: 20,000 probes with handlers of a few lines. What it takes to compile is bounded by its tokens.
pub(crate) const LARGEST_FILE: usize = 8 << 20;

/// Gives the text of files.
pub trait Files {
    /// The content of a file of at most `limit` bytes. `include` says that the program text names it.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] where there is no such file, so that the next directory is searched;
    /// [`io::ErrorKind::FileTooLarge`] beyond the limit.
    fn read(&self, path: &Path, limit: usize, include: bool) -> io::Result<Vec<u8>>;

    /// The path by which a file is known again: two names of one file give one path.
    fn identity(&self, path: &Path) -> PathBuf;
}

/// The files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFiles;

impl Files for DiskFiles {
    fn read(&self, path: &Path, limit: usize, include: bool) -> io::Result<Vec<u8>> {
        // A program text must not make us wait on a pipe or a terminal; a user's own argument may.
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
