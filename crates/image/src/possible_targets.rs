//! The addresses that control may reach other than by fallthrough or a call's return; module
//! `landing` finds them.

use std::ops::Range;

/// Addresses that control may reach.
#[derive(Debug, Default)]
pub struct PossibleTargets {
    /// Ascending.
    pub(super) all: Vec<u64>,
    /// Whether all of the file was searched.
    pub(super) complete: bool,
}

impl PossibleTargets {
    /// The addresses in a range, ascending; `None` if not all were searched.
    pub fn within(&self, range: Range<u64>) -> Option<&[u64]> {
        let from = self.all.partition_point(|landing| *landing < range.start);
        let to = self.all.partition_point(|landing| *landing < range.end);
        self.complete.then(|| &self.all[from..to.max(from)])
    }
}
