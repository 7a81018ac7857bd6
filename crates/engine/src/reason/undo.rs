//! Why the changes of a killed tracer stay.

use process::Error;

/// Why a process that a killed tracer has changed stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotUndone {
    /// A thread does not come back from a call.
    #[error("a thread is still in a call that it made for the tracer")]
    InCall,
    /// Its guard is gone, which would tell.
    #[error("it cannot be verified that it is still the same program")]
    Unverified,
    /// It has executed another program.
    #[error("it has executed another program")]
    OtherProgram,
    /// The memory may be in use.
    #[error("a thread may still be in it, or another process has the same memory")]
    InUse,
    /// It cannot be made to call the kernel.
    #[error("no system call instruction was found in it")]
    NoSystemCall,
    /// Its threads do not stop.
    #[error("its threads could not be stopped")]
    NotStopped,
}

impl NotUndone {
    /// The error of process `pid`.
    pub(crate) fn of(self, pid: i32) -> Error {
        Error::Unsuitable { pid, reason: self.to_string() }
    }
}
