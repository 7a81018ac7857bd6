//! The places to which control may come otherwise than by falling through or by a call's return, as `landing` finds them.

use std::ops::Range;

/// Addresses to which control may come.
#[derive(Debug, Default)]
pub struct Landings {
    /// Ascending.
    pub(super) all: Vec<u64>,
    /// Whether all were looked for.
    pub(super) complete: bool,
}

impl Landings {
    /// Those in a range, ascending; nothing where they cannot be told.
    pub fn within(&self, range: Range<u64>) -> Option<&[u64]> {
        let from = self.all.partition_point(|landing| *landing < range.start);
        let to = self.all.partition_point(|landing| *landing < range.end);
        self.complete.then(|| &self.all[from..to.max(from)])
    }
}
