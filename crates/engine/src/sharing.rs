//! What processes share with the tracer and each other: variables, counters, and the numbers in
//! records.

use std::sync::Arc;

use crate::forget::Forgotten;
use crate::jump::{Cells, Heartbeat, NextLook, Numbers};
use crate::tables::Tables;
use crate::variables::Globals;

/// What is shared by all processes that are followed.
pub(crate) struct Sharing {
    pub(crate) globals: Globals,
    /// The maps and constants of scripts, by number.
    pub(crate) tables: Vec<Tables>,
    /// Memory shared with processes. Without it all probes are traps.
    pub(crate) cells: Option<Cells>,
    /// The page that tells processes that the tracer still reads their records.
    pub(crate) sign: Option<Arc<Heartbeat>>,
    /// When to check next for processes that changed their trust domain without an exec.
    pub(crate) next_look: NextLook,
    /// Whether all processes are in one domain.
    pub(crate) everybody: bool,
    /// The numbers in records of jumps; each stands for a handler at a site.
    pub(crate) numbers: Numbers,
    /// Probes with compiled handlers that can end them: program and probe.
    pub(crate) mortal: Vec<(usize, usize)>,
    /// Removed programs that processes may still refer to.
    pub(crate) forgotten: Vec<Forgotten>,
}

impl Sharing {
    /// Nothing is shared yet. `sign` is the ledger's, if there is one.
    pub(crate) fn new(sign: Option<Arc<Heartbeat>>) -> Sharing {
        let mut cells = sign.as_ref().and_then(|_| Cells::new().ok());
        Sharing {
            globals: Globals::new(cells.as_mut()),
            tables: Vec::new(),
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
