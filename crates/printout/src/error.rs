//! What can go wrong while a record is printed.

use std::fmt::{self, Display, Formatter};
use std::io;

use thiserror::Error;

/// Where a record comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// When it was made, in nanoseconds since the system was started.
    pub time: u64,
}

impl Display for Context {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Context { pid, tid, time } = self;
        write!(out, "the record of thread {tid} of process {pid} at {time} ns")
    }
}

/// A record that was not printed, or not all of it.
#[derive(Debug, Error)]
pub enum Error {
    /// The log ends within the number of an event.
    #[error("{context} is skipped from byte {offset} on, where an event should begin: {why}")]
    NoNumber {
        /// The record.
        context: Context,
        /// Where it is in the log.
        offset: usize,
        /// What is wrong.
        why: Wrong,
    },
    /// The log has a number that is no event of the script.
    #[error("{context} is skipped from byte {offset} on: it has event {number}, the script has {events}")]
    NoSuchEvent {
        /// The record.
        context: Context,
        /// The number found.
        number: u64,
        /// Where it is in the log.
        offset: usize,
        /// The number of events that the script has.
        events: usize,
    },
    /// An event's arguments do not have the form of their types.
    #[error("{context} is skipped from byte {offset} on: event {number} is not as the script logs it: {why}")]
    Malformed {
        /// The record.
        context: Context,
        /// The event.
        number: usize,
        /// Where it is in the log.
        offset: usize,
        /// What is wrong.
        why: Wrong,
    },
    /// An entry of a map does not have the form of its types.
    #[error("an entry of the map @{map} is not as the script stores it: {why}")]
    MalformedEntry {
        /// The map's name.
        map: String,
        /// What is wrong.
        why: Wrong,
    },
    /// The output cannot be written.
    #[error("the output cannot be written: {0}")]
    Write(#[from] io::Error),
}

/// What is wrong with bytes that should be a value.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Wrong {
    /// They end within a value.
    #[error("{wanted} bytes are needed, {left} are left")]
    TooShort {
        /// The bytes needed.
        wanted: u64,
        /// The bytes that are left.
        left: usize,
    },
    /// A type that has no values, or none of this form.
    #[error("values of this type are not logged")]
    NoValue,
    /// The layout of a struct is not known, or has parts in parts without end.
    #[error("the layout of the type is not known")]
    NoLayout,
    /// A clock or a form of stacks that does not exist.
    #[error("{0} is no clock and no form of a stack")]
    NoMode(u64),
    /// A constant that the script does not have.
    #[error("the script has no constant {0:#x}")]
    NoConstant(u64),
}
