//! Why a process is not probed.

use std::path::PathBuf;

use process::{Error, Obstacle};

use super::{Cause, NotArmed};

/// Why a process cannot be probed, or not any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotProbed {
    /// It is the tracer.
    #[error("it is dprobes itself")]
    Itself,
    /// It is a zombie.
    #[error("it has ended and only waits for its parent")]
    Ended,
    /// It is a kernel thread.
    #[error("it is a thread of the kernel")]
    Kernel,
    /// It has a tracer.
    #[error("process {pid} ({}) traces it already", printable::text(name))]
    Traced {
        /// The tracer.
        pid: i32,
        /// Its name.
        name: String,
    },
    /// It is a thread of a process.
    #[error("it is a thread of process {0}; give that process")]
    Thread(i32),
    /// The kernel does not allow it.
    #[error("the kernel forbids it: {0}")]
    Forbidden(Obstacle),
    /// It cannot be traced or read.
    #[error("{0}")]
    Failed(Cause),
    /// New threads appear all the time.
    #[error("its threads are born faster than they can be traced")]
    TooManyThreads,
    /// Its code is another machine's.
    #[error("it is no x86-64 or i386 program")]
    OtherMachine,
    /// Its modules cannot be determined.
    #[error("{0}")]
    Modules(Cause),
    /// The probes of a module cannot be armed.
    #[error("{}: {reason}", printable::path(module))]
    Module {
        /// The module's file.
        module: PathBuf,
        /// Why.
        reason: NotArmed,
    },
    /// The tracer has no memory for it.
    #[error("there are too many trust domains, or there is no memory")]
    Domains,
}

impl NotProbed {
    /// The error that process `pid` cannot be probed for this reason.
    pub(crate) fn of(self, pid: i32) -> Error {
        Error::Unsuitable { pid, reason: self.to_string() }
    }
}
