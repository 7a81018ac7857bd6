//! Data about modules that is kept for later processes.

use process::ImageCache;

use crate::guard::MaskCalls;
use crate::jump::{Armings, CodeCache};
use crate::loader::Loaders;
use crate::module_key::ModuleKey;
use crate::site_plans::Plan;
use crate::unwinding::UnwindTables;

/// Caches by module.
#[derive(Default)]
pub(crate) struct Cache {
    pub(crate) images: ImageCache,
    pub(crate) loaders: Loaders,
    pub(crate) blocks: MaskCalls,
    /// The results of arming them.
    pub(crate) armings: Armings,
    /// Their code.
    pub(crate) texts: CodeCache,
    /// Their tables for walking stacks.
    pub(crate) unwinding: UnwindTables,
    /// Plans made while checking for refusals, by program and module.
    pub(crate) checked: Vec<((usize, ModuleKey), Plan)>,
}
