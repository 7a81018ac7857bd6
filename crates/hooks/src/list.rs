//! What there is, told to whoever asks.

use crate::entry::{Conditions, Priority};

/// A hook that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookInfo {
    /// Its name.
    pub name: String,
    /// Its parameters, as declared.
    pub parameters: String,
    /// Whether it takes one exit only.
    pub exclusive: bool,
    /// Whether an exit is armed.
    pub active: bool,
    /// How many sites it has that are patched. Tested sites are not counted.
    pub sites: usize,
    /// Its exits, in the order in which they are called.
    pub exits: Vec<ExitInfo>,
}

/// A registered exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitInfo {
    /// Its name; empty if it has none.
    pub name: String,
    /// Its place: 1 is called first.
    pub index: usize,
    /// What it asked for.
    pub priority: Priority,
    /// What holds while it runs.
    pub conditions: Conditions,
    /// Whether it is armed.
    pub armed: bool,
    /// Hits that it was not called for: they happened inside of an exit, and calling it would have meant to wait for
    /// another thread, or it wants the hook for itself.
    pub missed: u64,
    /// Runs that ended by a panic.
    pub panics: u64,
}
