//! What processes share with the tracer, and with one another: variables and counters, and the numbers that records have.

use std::sync::Arc;

use crate::forget::Forgotten;
use crate::jump::{Cells, NextLook, Numbers, Sign};
use crate::variables::Globals;

/// What is shared by all processes that are followed.
pub(crate) struct Sharing {
    pub(crate) globals: Globals,
    /// Memory that is shared with processes. Without it all probes are traps.
    pub(crate) cells: Option<Cells>,
    /// By what they see that their records are read.
    pub(crate) sign: Option<Arc<Sign>>,
    /// When those are looked at that may become one of another domain without executing a program.
    pub(crate) next_look: NextLook,
    /// Whether all processes are of one domain.
    pub(crate) everybody: bool,
    /// What records of jumps have in common.
    pub(crate) numbers: Numbers,
    /// The probes that have handlers in processes, by program and number in it, and that their handlers can end.
    pub(crate) mortal: Vec<(usize, usize)>,
    /// Programs that were removed, of which something may be left in processes.
    pub(crate) forgotten: Vec<Forgotten>,
}

impl Sharing {
    /// Nothing is shared yet. `sign` is the ledger's, if there is one.
    pub(crate) fn new(sign: Option<Arc<Sign>>) -> Sharing {
        let mut cells = sign.as_ref().and_then(|_| Cells::new().ok());
        Sharing {
            globals: Globals::new(cells.as_mut()),
            cells,
            sign,
            next_look: NextLook::Never,
            everybody: false,
            numbers: Numbers::default(),
            mortal: Vec::new(),
            forgotten: Vec::new(),
        }
    }
}
