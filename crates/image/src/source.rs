//! The bytes of an ELF file, read piece by piece.
//!
//! Files are read with `pread`, never mapped: if someone truncates a mapped file (a package
//! manager, a build), its reader dies of SIGBUS, and a tracer must survive changes of its targets'
//! files. Only the needed tables are read, so a debug build of gigabytes costs no more than its
//! symbols.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc;

use super::error::ImageError;

/// A file and its state: equal values mean equal contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The device, `st_dev` of `stat`.
    pub device: u64,
    /// The inode's number on that device.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Time of the last change of the contents: seconds and nanoseconds since 1970.
    pub modified: (i64, i64),
}

impl FileId {
    /// Whether both are the same file, whatever has happened to its contents.
    pub fn is_same_file(&self, other: &FileId) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// The id of a file with this metadata.
    pub fn of(metadata: &std::fs::Metadata) -> FileId {
        FileId {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// Opens a regular file for reading, and nothing else: a FIFO would block, a device might act.
///
/// # Errors
///
/// It cannot be opened, or is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<(File, FileId)> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok((file, FileId::of(&metadata)))
}

#[derive(Debug)]
enum Data {
    File(File),
    Memory(Vec<u8>),
}

/// An ELF file on disk or in memory.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    data: Data,
    len: u64,
}

impl Source {
    pub(crate) fn file(path: &Path, file: File, len: u64) -> Source {
        Source { path: path.to_owned(), data: Data::File(file), len }
    }

    pub(crate) fn memory(path: &Path, data: Vec<u8>) -> Source {
        let len = data.len() as u64;
        Source { path: path.to_owned(), data: Data::Memory(data), len }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The `size` bytes at `offset`. `what` names them in an error; more than `limit` bytes are
    /// refused before anything is allocated.
    pub(crate) fn read(&self, what: &str, offset: u64, size: u64, limit: u64) -> Result<Vec<u8>, ImageError> {
        let Some(end) = offset.checked_add(size).filter(|end| *end <= self.len) else {
            let cause = format!("{size} bytes extend past the end of the file, which has {} bytes", self.len);
            return Err(self.damaged(what, offset, cause));
        };
        if size > limit {
            let path = self.path.clone();
            return Err(ImageError::TooLarge { path, what: what.to_owned(), offset, size, limit });
        }
        match &self.data {
            Data::Memory(bytes) => Ok(bytes[offset as usize..end as usize].to_vec()),
            Data::File(file) => {
                let mut bytes = vec![0; size as usize];
                file.read_exact_at(&mut bytes, offset).map_err(|cause| ImageError::Io {
                    path: self.path.clone(),
                    action: format!("read the {what}, {size} bytes at {offset:#x}"),
                    cause,
                })?;
                Ok(bytes)
            }
        }
    }

    /// An error about damage in this file.
    pub(crate) fn damaged(&self, what: &str, offset: u64, cause: impl Into<String>) -> ImageError {
        ImageError::Damaged { path: self.path.clone(), what: what.to_owned(), offset, cause: cause.into() }
    }
}
