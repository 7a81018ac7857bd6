//! Information about hooks and exits.

use crate::entry::{Conditions, Priority};

/// A known hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookInfo {
    /// Its name.
    pub name: String,
    /// Its declared parameters.
    pub parameters: String,
    /// Whether only one exit may be registered.
    pub exclusive: bool,
    /// Whether an exit is armed.
    pub active: bool,
    /// The number of patchable sites. Tested sites are not counted.
    pub sites: usize,
    /// Its exits in call order.
    pub exits: Vec<ExitInfo>,
}

/// A registered exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitInfo {
    /// Its name; empty if it has none.
    pub name: String,
    /// Its position: 1 is called first.
    pub index: usize,
    /// The requested priority.
    pub priority: Priority,
    /// The conditions while it runs.
    pub conditions: Conditions,
    /// Whether it is armed.
    pub armed: bool,
    /// The number of hits that skipped it: they happened inside an exit, and calling it would have
    /// meant waiting for another thread, or it requires a quiesced hook.
    pub missed: u64,
    /// The number of runs that ended in a panic.
    pub panics: u64,
}
