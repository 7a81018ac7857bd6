//! Remembers what was reported, so that it is reported once.

use std::collections::HashSet;

use crate::losses::Losses;

/// What was reported.
#[derive(Default)]
pub(crate) struct Reported {
    /// Keys of notes that are reported once in a session.
    notes: HashSet<String>,
    /// Programs reported to wait for their module.
    pub(crate) waiting: HashSet<usize>,
    pub(crate) losses: Losses,
}

impl Reported {
    /// Notes a key. Returns whether it is new.
    pub(crate) fn is_new(&mut self, key: String) -> bool {
        self.notes.insert(key)
    }

    /// Forgets a program.
    pub(crate) fn forget(&mut self, program: usize) {
        self.waiting.remove(&program);
        self.losses.forget(program);
    }
}
