//! What was attached, and what was refused.

use bpf::{AttachError, Link};

/// A program attached to places; it is detached when this is dropped.
#[derive(Debug, Default)]
pub struct Attached {
    pub(super) links: Vec<Link>,
    /// The places that the kernel refuses: their indices among those that were asked for, and why.
    pub refused: Vec<(usize, AttachError)>,
}

impl Attached {
    /// Whether it is attached anywhere.
    pub fn is_anywhere(&self) -> bool {
        !self.links.is_empty()
    }
}
