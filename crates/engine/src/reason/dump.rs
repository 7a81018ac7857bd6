//! Why no core dump is written.

use std::path::PathBuf;
use std::time::Duration;

use super::Cause;

/// Why no core dump of a process is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotDumped {
    /// The file cannot be created.
    #[error("{}: {cause}", printable::path(path))]
    Create {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: Cause,
    },
    /// All names are taken.
    #[error("there are {0} core files of this process already")]
    NoName(u32),
    /// The file system has less room than the dump may need.
    #[error("it may need {} MiB, and {} MiB are free", needed.div_ceil(1 << 20), free / (1 << 20))]
    NoRoom {
        /// Bytes that the dump needs at most, with a margin.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The tracer has no thread to write it.
    #[error("no thread to write it: {0}")]
    NoThread(Cause),
    /// The thread that wrote it has failed.
    #[error("it could not be written")]
    Panicked,
    /// The copy from which it was written has been killed.
    #[error("the copy of the process was killed, perhaps for want of memory")]
    CopyKilled,
    /// The process cannot be read.
    #[error("{0}")]
    Read(Cause),
    /// The file cannot be written.
    #[error("{0}")]
    Write(Cause),
    /// It is not known which pages the process has.
    #[error("reading which pages it has: {0}")]
    Pages(Cause),
    /// The process has executed another program.
    #[error("the process has replaced its program")]
    Replaced,
    /// The process has been killed.
    #[error("the process was killed meanwhile")]
    Killed,
    /// The thread that has hit the probe did not wait as long as it took.
    #[error("its thread has gone on: the tracer came {} ms after the hit", .0.as_millis())]
    Late(Duration),
    /// The thread that has hit the probe does not stop.
    #[error("its thread does not stop")]
    NotStopped,
    /// What the probed instruction changes is not known afterwards.
    #[error(
        "its probed instruction {0}, which the thread executes before it stops; the other engines (with -p PID) stop it before"
    )]
    Executed(NotKept),
    /// The process is not followed any more.
    #[error("its memory layout is not known")]
    NoLayout,
    /// A core file cannot have so many mappings; with the most that it can.
    #[error("it has more than {0} mappings, the most that a core file can have")]
    TooManyMappings(usize),
    /// A 32-bit core file cannot have so many mappings.
    #[error("it has too many mappings for a core file")]
    TooManyFor32,
    /// A 32-bit core file cannot have so much memory.
    #[error("its memory does not fit into a 32-bit core file")]
    TooLargeFor32,
    /// The file was begun.
    #[error(
        "{reason}; the incomplete file {} {}",
        printable::path(path),
        match left { None => "was removed".to_owned(), Some(cause) => format!("could not be removed: {cause}") }
    )]
    Incomplete {
        /// Why it could not be completed.
        reason: Box<NotDumped>,
        /// The file.
        path: PathBuf,
        /// Why it is still there, if it is.
        left: Option<Cause>,
    },
}

/// Why the effects of an instruction cannot be left out of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotKept {
    /// Its bytes are none.
    #[error("cannot be read")]
    Unknown,
    /// It changes vector, floating point or segment registers.
    #[error("changes registers that the kernel does not save at a hit")]
    Registers,
    /// It changes memory whose addresses are not known before, or that is long.
    #[error("changes memory at addresses that are not known before")]
    Memory,
    /// It calls the kernel.
    #[error("calls the kernel")]
    Call,
}
