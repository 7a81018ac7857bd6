//! Whether a dump that is written from a copy is to go on.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use process::Copied;

use crate::reason::NotDumped;

/// What a writer looks at while it writes.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) copied: Arc<Copied>,
    pub(super) stop: Arc<AtomicBool>,
}

impl Watch {
    /// Whether to go on.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn look(&self) -> io::Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("the session has ended, and it was not complete in time"));
        }
        // The memory of a process that has ended reads as zeros.
        if !self.copied.lives() {
            return Err(io::Error::other(NotDumped::CopyKilled));
        }
        Ok(())
    }
}
