//! What processes share with the tracer and each other: variables, counters, and the numbers in
//! records.

use std::rc::Rc;
use std::sync::Arc;

use crate::forget::Forgotten;
use crate::jump::{Cells, Heartbeat, NextLook, Numbers, Trust};
use crate::reason::NotMapped;
use crate::tables::{Tables, TablesPlan};
use crate::threads::Threads;
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
    /// Makes the maps and constants of a script: [`crate::Tracer::add_tables`].
    pub(crate) fn add_tables(&mut self, plan: TablesPlan) -> Result<(usize, Tables), NotMapped> {
        self.everybody = true;
        let cells = self.cells.as_mut().ok_or(NotMapped::NoneShared)?;
        let domain = cells.domain(&Rc::new(Trust::default())).ok_or(NotMapped::NoneShared)?;
        let tables = Tables::new(plan, cells, domain).ok_or(NotMapped::NoneShared)?;
        self.tables.push(tables.clone());
        Ok((self.tables.len() - 1, tables))
    }

    /// Does what is due: sets the clocks of scripts, and reads the names of threads again.
    pub(crate) fn tick(&self, threads: &mut Threads) {
        self.tables.iter().for_each(Tables::set_clock);
        self.name_threads(threads, self.tables.iter().any(Tables::must_name_again));
    }

    /// Forgets the name of a thread that has ended.
    pub(crate) fn forget_thread(&self, tid: i32) {
        self.tables.iter().for_each(|tables| tables.forget_thread(tid));
    }

    /// Names a thread that is new, or has executed a program, in the maps of scripts.
    pub(crate) fn name_thread(&self, tid: i32) {
        self.tables.iter().for_each(|tables| tables.name_thread(tid));
    }

    /// Names the threads that have no name yet, or all.
    pub(crate) fn name_threads(&self, threads: &mut Threads, all: bool) {
        if self.tables.iter().all(|tables| tables.threads.is_none()) {
            return;
        }
        for (&tid, tracked) in threads.iter_mut() {
            if !std::mem::replace(&mut tracked.named, true) || all {
                self.name_thread(tid);
            }
        }
    }

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
