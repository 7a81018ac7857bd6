//! The crate's errors, with their numbers in C.

use std::fmt;

/// Why an exit or hook could not be registered, armed or removed.
///
/// The first three have the original's numbers; the others are this library's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Error {
    /// -1: the hook allows one exit only, or a registered exit must be the only one, or this one
    /// must be and others are registered.
    Exclusive = -1,
    /// -2: another exit is registered as the first.
    FirstTaken = -2,
    /// -4: another exit is registered as the last.
    LastTaken = -4,
    /// -16: the hook was never identified, or was deleted.
    UnknownHook = -16,
    /// -17: the exit is not registered.
    NotRegistered = -17,
    /// -18: the exit is registered already.
    Registered = -18,
    /// -19: the exit's record is invalid: several priorities, or no function.
    Invalid = -19,
    /// -20: exits are registered, and `force` was not given.
    InUse = -20,
    /// -21: the text of a site could not be written by any means. Nothing was armed.
    Text = -21,
}

impl Error {
    /// The number in C.
    pub fn code(self) -> i32 {
        self as i32
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Exclusive => {
                "an exclusive exit is registered, or the new exit is exclusive and others are registered"
            }
            Error::FirstTaken => "another exit is registered as the first",
            Error::LastTaken => "another exit is registered as the last",
            Error::UnknownHook => "the hook was not identified, or was deleted",
            Error::NotRegistered => "the exit is not registered",
            Error::Registered => "the exit is registered already",
            Error::Invalid => "the exit has several priorities, or no function",
            Error::InUse => "exits are still registered",
            Error::Text => {
                "the program's code cannot be changed on this system; build with the feature `tested-sites`"
            }
        })
    }
}

impl std::error::Error for Error {}
