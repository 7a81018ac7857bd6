//! Why threads are not held.

use super::Cause;

/// Why the threads of an address space could not all be stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotHeld {
    /// The process has executed another program.
    #[error("the process has replaced its program")]
    Replaced,
    /// A thread did not stop in time.
    #[error("its threads could not be stopped all at once")]
    NotAllAtOnce,
    /// Threads could not be waited for.
    #[error("{0}")]
    Wait(Cause),
}
