//! The errors of operations on a process.

use std::io;

use crate::Obstacle;

/// An operation on a process that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process or thread does not exist any more.
    #[error("no process {pid}")]
    Gone {
        /// The process or thread.
        pid: i32,
    },
    /// The kernel refused an operation.
    #[error("process {pid}: {what} failed: {cause}")]
    Refused {
        /// The operation.
        what: &'static str,
        /// The process or thread.
        pid: i32,
        /// The kernel's reason.
        cause: io::Error,
    },
    /// A command could not be started.
    #[error("cannot run `{}`: {cause}", printable::text(command))]
    Start {
        /// The command's name.
        command: String,
        /// The kernel's reason.
        cause: io::Error,
    },
    /// A file below /proc could not be read or understood.
    #[error("{path}: {cause}")]
    Proc {
        /// The file.
        path: String,
        /// Why.
        cause: io::Error,
    },
    /// A system call made on behalf of the tracer inside the process failed.
    #[error("{call} inside process {pid}: {cause}")]
    Remote {
        /// The system call.
        call: &'static str,
        /// The process.
        pid: i32,
        /// The kernel's reason.
        cause: io::Error,
    },
    /// The process cannot be traced, for the reason given.
    #[error("process {pid} cannot be traced: {reason}")]
    Unsuitable {
        /// The process.
        pid: i32,
        /// Why, and what to do about it.
        reason: String,
    },
}

impl Error {
    /// The error of the last system call on `pid`: gone, or refused.
    pub(crate) fn last(what: &'static str, pid: i32) -> Error {
        Error::from_io(what, pid, io::Error::last_os_error())
    }

    /// The error `cause` on `pid`: gone, or refused.
    pub(crate) fn from_io(what: &'static str, pid: i32, cause: io::Error) -> Error {
        match cause.raw_os_error() {
            Some(libc::ESRCH) => Error::Gone { pid },
            _ => Error::Refused { what, pid, cause },
        }
    }

    /// The error `cause` of a file of process `pid` below /proc. If the kernel forbids it, the
    /// error says why.
    pub(crate) fn of_proc(pid: i32, path: String, cause: io::Error) -> Error {
        match cause.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                Error::Unsuitable { pid, reason: format!("the kernel forbids it: {}", Obstacle::to(pid)) }
            }
            _ => Error::Proc { path, cause },
        }
    }

    /// Whether the process or thread has ended or been killed.
    pub fn is_gone(&self) -> bool {
        match self {
            Error::Gone { .. } => true,
            Error::Proc { cause, .. } | Error::Remote { cause, .. } => {
                matches!(cause.raw_os_error(), Some(libc::ESRCH | libc::ENOENT))
            }
            _ => false,
        }
    }
}
