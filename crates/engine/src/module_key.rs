//! Identifies a module as it is mapped in one place, and one state of an address space.

use std::sync::atomic::{AtomicU64, Ordering};

use process::Module;

/// Identifies a module as it is mapped in one place: device, inode, load bias.
pub(crate) type ModuleKey = ((u32, u32), u64, u64);

/// The key of a module in its address space.
pub(crate) fn module_key(module: &Module) -> ModuleKey {
    (module.device, module.inode, module.bias)
}

/// A unique number for one state of an address space. No two states, of one space or of several,
/// have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u64);

impl Generation {
    /// A new one.
    pub(crate) fn next() -> Generation {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Generation(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Default for Generation {
    fn default() -> Self {
        Self::next()
    }
}
