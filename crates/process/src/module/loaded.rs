//! A module: an image at the addresses where a process has loaded it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::naming;
use crate::maps::Mapping;
use image::Image;

/// One module in one process.
#[derive(Clone, Debug)]
pub struct Module {
    /// The file, as the process's mappings show it; `[vdso]` for the vDSO.
    pub path: PathBuf,
    /// Its contents.
    pub image: Arc<Image>,
    /// The number to add (wrapping) to an address of the image to get the address in the process.
    pub bias: u64,
    /// Its mappings, by address, without the anonymous memory after its data.
    pub mappings: Vec<Mapping>,
    /// Major and minor number of the file's device, as the mappings show it.
    pub device: (u32, u32),
    /// The file's inode, as the mappings show it; 0 for the vDSO.
    pub inode: u64,
}

impl Module {
    /// Converts an address of the image to one of the process.
    pub fn address(&self, vaddr: u64) -> u64 {
        vaddr.wrapping_add(self.bias)
    }

    /// Converts an address of the process to one of the image.
    pub fn vaddr(&self, address: u64) -> u64 {
        address.wrapping_sub(self.bias)
    }

    /// Whether one of its mappings contains an address of the process.
    pub fn contains(&self, address: u64) -> bool {
        self.mappings.iter().any(|mapping| mapping.contains(address))
    }

    /// The addresses from its first mapping to its last, gaps included.
    pub fn span(&self) -> Range<u64> {
        let start = self.mappings.iter().map(|mapping| mapping.start).min().unwrap_or_default();
        let end = self.mappings.iter().map(|mapping| mapping.end).max().unwrap_or_default();
        start..end
    }

    /// Whether a user's module name matches this module. `root` is the process's root directory,
    /// `/proc/PID/root`.
    ///
    /// A name with a slash is a path. It matches the file that it leads to through symbolic links,
    /// seen from the process's root and from this process; if that file is gone, it matches the
    /// path itself. A name without a slash matches the file's own name, its DT_SONAME, a link in
    /// the file's directory, or one of these without its version (`libc` for `libc.so.6`). `a.out`
    /// matches the process's own program, whatever its name. A pattern ([`image::Pattern`]) matches
    /// all modules whose names match.
    pub fn is_named(&self, name: &str, root: &Path) -> bool {
        naming::is_named(self, name, root)
    }
}
