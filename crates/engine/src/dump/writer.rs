//! The thread that writes a core dump from a copy of the process, while the process and its tracer
//! go on. It makes no ptrace requests: they are for the tracer's thread only.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::sys::signal::{SigSet, SigmaskHow};

use super::file::CoreFile;
use super::moment::{Moment, Origin, Written};
use super::watch::Watch;
use super::write::write_moment;
use crate::reason::NotDumped;

/// A dump to be written.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) file: CoreFile,
    pub(super) moment: Moment,
    pub(super) origin: Origin,
    pub(super) watch: Arc<Watch>,
}

impl Job {
    /// Begins to write.
    ///
    /// # Errors
    /// No thread can be made.
    pub(super) fn begin(self) -> io::Result<JoinHandle<Result<Written, NotDumped>>> {
        // Signals are for the tracer's thread, which they wake.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
        let thread = std::thread::Builder::new().name("core dump".to_owned()).spawn(move || self.write());
        if let Ok(before) = before {
            // It was the thread's mask, so it can be set.
            let _ = before.thread_set_mask();
        }
        thread
    }

    /// Writes the file, and ends the copy.
    fn write(self) -> Result<Written, NotDumped> {
        let Job { mut file, moment, origin, watch } = self;
        file.watch(Arc::clone(&watch));
        let written = write_moment(&mut file, moment, &origin);
        // Whatever became of it: the memory of a process that has ended reads as zeros, or not.
        let written = if watch.copied.has_memory() { written } else { Err(NotDumped::CopyKilled) };
        watch.copied.kill();
        written.map_err(|reason| file.discard(reason))
    }
}
