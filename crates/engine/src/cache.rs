//! What was found out about modules, and is kept for processes that are still to come.

use process::ImageCache;

use crate::guard::Blocks;
use crate::jump::{Armings, Texts};
use crate::loader::Loaders;
use crate::place::Plan;
use crate::space::ModuleKey;

/// What is known of modules.
#[derive(Default)]
pub(crate) struct Cache {
    pub(crate) images: ImageCache,
    pub(crate) loaders: Loaders,
    pub(crate) blocks: Blocks,
    /// What arming them came to.
    pub(crate) armings: Armings,
    /// Their code.
    pub(crate) texts: Texts,
    /// What was planned to see whether something is refused, by program and module.
    pub(crate) checked: Vec<((usize, ModuleKey), Plan)>,
}
