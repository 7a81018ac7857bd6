//! The modules of a process: which ELF files it runs code of, and where.
//!
//! A module is an [`Image`] at a load bias. One file loaded twice (by `dlmopen`, say) makes two modules; one image
//! serves all processes that map the same file. The kernel's vDSO is a module too, without a file.
//!
//! What is mapped executable and is not a module is listed as [`Skipped`], with the reason.

mod find;
mod naming;
mod open;

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::maps::Mapping;
use image::{FileId, Image, ImageError};

pub use self::find::{Skipped, Survey, modules, modules_in, survey};

/// Why the modules of a process, or one of them, cannot be told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModuleError {
    /// The system refused to tell about the process.
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
    /// The file is no sound ELF file.
    #[error(transparent)]
    Image(#[from] ImageError),
}

/// One module in one process.
#[derive(Clone, Debug)]
pub struct Module {
    /// The file, as the process's mappings show it; `[vdso]` for the kernel's.
    pub path: PathBuf,
    /// Its contents.
    pub image: Arc<Image>,
    /// What to add (wrapping) to an address of the image to get the address in the process.
    pub bias: u64,
    /// Where it is mapped, by address; without the anonymous memory behind its data.
    pub mappings: Vec<Mapping>,
    /// Major and minor number of the file's device, as the mappings show it.
    pub device: (u32, u32),
    /// The file's inode, as the mappings show it; 0 for the vDSO.
    pub inode: u64,
}

impl Module {
    /// The address in the process of an address of the image.
    pub fn address(&self, vaddr: u64) -> u64 {
        vaddr.wrapping_add(self.bias)
    }

    /// The address in the image of an address in the process.
    pub fn vaddr(&self, address: u64) -> u64 {
        address.wrapping_sub(self.bias)
    }

    /// Whether one of its mappings holds an address of the process.
    pub fn contains(&self, address: u64) -> bool {
        self.mappings.iter().any(|mapping| mapping.contains(address))
    }

    /// The addresses from its first mapping to its last, gaps included.
    pub fn span(&self) -> Range<u64> {
        let start = self.mappings.iter().map(|mapping| mapping.start).min().unwrap_or_default();
        let end = self.mappings.iter().map(|mapping| mapping.end).max().unwrap_or_default();
        start..end
    }

    /// Whether a name that a person gave means this module. `root` is the process's root directory,
    /// `/proc/PID/root`.
    ///
    /// With a slash, the name is a path: it means the file it leads to, symbolic links followed, seen from the
    /// process's root and from our own place; or, where that file is gone, the path itself. Without a slash it is
    /// the file's own name, the name the library gives itself (DT_SONAME), a link in the file's directory, or one of
    /// these without its version (`libc` for `libc.so.6`); `a.out` is the process's own program, whatever it is
    /// called; and a pattern ([`image::Pattern`]) means all whose names match.
    pub fn is_named(&self, name: &str, root: &Path) -> bool {
        naming::is_named(self, name, root)
    }
}

/// Images that have been read, to be shared by processes and modules. Keyed by file and state, so a file that was
/// replaced is read again.
#[derive(Debug, Default)]
pub struct ImageCache {
    images: HashMap<FileId, Arc<Image>>,
    /// What has no file, by its bytes.
    in_memory: Vec<(Vec<u8>, Arc<Image>)>,
}

impl ImageCache {
    /// Images that are kept though no module uses them.
    const KEPT: usize = 512;
    /// Images without a file: the vDSO of each kind of process.
    const IN_MEMORY: usize = 4;

    /// An empty cache.
    pub fn new() -> ImageCache {
        ImageCache::default()
    }

    fn get(&self, id: &FileId) -> Option<Arc<Image>> {
        self.images.get(id).cloned()
    }

    fn insert(&mut self, id: FileId, image: Arc<Image>) {
        if self.images.len() >= ImageCache::KEPT {
            self.images.retain(|_, image| Arc::strong_count(image) > 1);
        }
        self.images.insert(id, image);
    }
}
