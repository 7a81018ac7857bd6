//! What the engine tells its user.

use std::io;
use std::path::PathBuf;

use trace::Record;

/// Takes what the engine has to say, as it happens.
pub trait Observer {
    /// Takes a record of a program, by its number, whose instruction has completed.
    ///
    /// # Errors
    /// The record could not be written; it is counted as dropped.
    fn record(&mut self, program: usize, record: &Record) -> io::Result<()>;

    /// Takes a message.
    fn note(&mut self, note: &Note);

    /// Called when there is nothing to do: a buffer may be written out.
    fn idle(&mut self) {}

    /// Whether records can be taken now without waiting for a slow device or reader. As long as they cannot, those of jumps
    /// stay in the memory that they were logged to, and the tracer has time for all else; at the end, and where a
    /// breakpoint has made one, records come all the same.
    fn is_ready(&mut self) -> bool {
        true
    }
}

/// A message to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A module that is probed is mapped now, and its probes are armed.
    Armed {
        /// The process.
        pid: i32,
        /// The module's file.
        module: PathBuf,
        /// How many probepoints.
        probes: usize,
    },
    /// A program's module is not mapped in a process; it is waited for.
    Waiting {
        /// The process.
        pid: i32,
        /// The module's name in the program.
        module: String,
    },
    /// A probepoint is placed, and something about it should be known.
    Remark {
        /// The probepoint.
        point: String,
        /// What.
        remark: String,
    },
    /// A process that is followed cannot be probed.
    NotProbed {
        /// The process.
        pid: i32,
        /// Why.
        reason: String,
    },
    /// What came of a handler's exit to another facility, in the form of the kernel's log: `DProbes(major,minor) ...`.
    Exit(String),
    /// Anything else worth a line.
    Other(String),
}
