//! Detaches from processes, at the end of a session or before: restores every byte and lets every
//! thread run on untraced.
//!
//! The sites are restored at once. Then each thread is stopped briefly, moved from a slot or stub
//! to where it would be in the unprobed program, and detached. The last thread of an address space
//! unmaps the slots first: by then no thread can be in them.

use std::collections::HashSet;
use std::time::Duration;

mod followed;

mod tracer;

/// How long threads may take to stop. A thread in an uninterruptible wait may never stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// The limit for the whole detaching, whatever threads do meanwhile.
const DETACH_TIMEOUT: Duration = Duration::from_secs(120);

/// Idle rounds before looking for threads that ended unreported.
const LOOK_AFTER: u32 = 64;

/// Idle rounds before asking threads again that were resumed.
const ASK_AFTER: u32 = 16;

/// The state of detaching.
#[derive(Debug, Default)]
pub(crate) struct Departure {
    pub(crate) who: Leaving,
    /// Whether threads of the processes being detached stop waiting for room in a ring.
    pub(crate) gives_up: bool,
    /// Whether threads are being detached just now.
    pub(crate) is_parting: bool,
}

/// Which processes are being detached.
#[derive(Debug, Default)]
pub(crate) enum Leaving {
    /// None.
    #[default]
    Nobody,
    /// These, and their children.
    These(HashSet<i32>),
    /// All: the session ends.
    Everybody,
}

impl Leaving {
    pub(crate) fn includes(&self, pid: i32) -> bool {
        match self {
            Leaving::Nobody => false,
            Leaving::These(processes) => processes.contains(&pid),
            Leaving::Everybody => true,
        }
    }

    /// Adds the new child of a process, if the process is among them.
    pub(crate) fn born(&mut self, parent: i32, child: i32) {
        if let Leaving::These(processes) = self
            && processes.contains(&parent)
        {
            processes.insert(child);
        }
    }
}
