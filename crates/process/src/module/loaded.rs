//! An image where a process has loaded it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::naming;
use crate::maps::Mapping;
use image::Image;

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
