//! Why a process is held while its core dump is written.

use super::{Cause, NotMapped};

/// Why a process is not copied for its dump.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotForked {
    /// It runs 32-bit code.
    #[error("it runs 32-bit code")]
    Narrow,
    /// The thread has a shadow stack.
    #[error("its thread has a shadow stack")]
    ShadowStack,
    /// Threads could not be stopped: they may hold the lock of its memory.
    #[error("not all of its threads could be stopped")]
    NotStopped,
    /// It has no memory of the tracer's, from which a thread could return without it.
    #[error("it has no memory of the tracer's")]
    NoGuard,
    /// Orphans become its children, and so would the copy.
    #[error("orphans become its children")]
    Adopts,
    /// Its children are born in another pid namespace.
    #[error("its children get a pid namespace of their own")]
    Namespace,
    /// It handles page faults by a userfaultfd, which may have to be told of a fork.
    #[error("it uses a userfaultfd")]
    Userfaultfd,
    /// No system call can be made in it.
    #[error("{0}")]
    NoCalls(NotMapped),
    /// The kernel refused.
    #[error("{0}")]
    Refused(Cause),
}
