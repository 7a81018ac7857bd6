//! What the reader asks of the outside world.

use std::io;

use jiff::tz::TimeZone;
use maps::Entry;
use script::At;

/// A function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// How far behind its beginning the address is.
    pub offset: u64,
    /// The file, or the module of the kernel, that it belongs to.
    pub module: Option<String>,
    /// The functions that were inlined at the address, the innermost one first.
    pub inlined: Vec<String>,
}

/// The clock that a time of `strftime()` is of, by the number that the event has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Since the system was started, without the time that it was suspended.
    Monotonic = 0,
    /// Since the system was started.
    Boot = 2,
    /// Since 1970.
    Real = 3,
}

impl Clock {
    /// The clock with this number.
    pub(crate) fn from_number(number: u64) -> Option<Clock> {
        [Clock::Monotonic, Clock::Boot, Clock::Real].into_iter().find(|clock| *clock as u64 == number)
    }
}

/// A place in the script, as messages name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The column, from 1.
    pub column: u64,
    /// The column after the place, if it ends in the same line.
    pub end: u64,
}

/// The outside world.
pub trait World {
    /// The function at an address of a process, which may have ended.
    fn user_symbol(&mut self, address: u64, pid: u32) -> Option<Symbol>;

    /// The function whose call returns to an address of a process.
    fn calling_symbol(&mut self, address: u64, pid: u32) -> Option<Symbol> {
        self.user_symbol(address, pid)
    }

    /// The function at an address of the kernel.
    fn kernel_symbol(&mut self, address: u64) -> Option<Symbol>;

    /// The addresses of a stack by its number, the innermost one first.
    fn stack(&mut self, number: u64) -> Option<Vec<u64>>;

    /// The path of a cgroup in the hierarchies that a filter matches, as in `unified:/user.slice`.
    fn cgroup(&mut self, number: u64, filter: &[u8]) -> String;

    /// The time now, in nanoseconds since 1970.
    fn now(&mut self) -> i128;

    /// The time in nanoseconds since 1970 of what a clock showed.
    fn time_of(&mut self, clock: Clock, nanoseconds: u64) -> i128;

    /// The time in nanoseconds since 1970 at which an interval of a time series begins.
    fn time_of_interval(&mut self, begin: i64) -> i128;

    /// The time zone in which times are shown.
    fn zone(&mut self) -> TimeZone {
        TimeZone::system()
    }

    /// All entries of a map, in any order.
    fn entries(&mut self, map: usize) -> Vec<Entry>;

    /// Removes all entries of a map.
    fn clear(&mut self, map: usize);

    /// Sets the values of all entries of a map to 0.
    fn zero(&mut self, map: usize);

    /// Runs a command with the shell and returns what it prints.
    ///
    /// The command has strings of the probed process in it, and a hostile process can log any of
    /// the script's commands at any time: it must only be run if the user allowed that.
    ///
    /// # Errors
    ///
    /// Why it is not run.
    fn system(&mut self, command: &[u8]) -> io::Result<Vec<u8>>;

    /// The first bytes of a file, at most `most`.
    ///
    /// # Errors
    ///
    /// Why it cannot be read.
    fn read_file(&mut self, path: &[u8], most: usize) -> io::Result<Vec<u8>>;

    /// Where a place of the script is.
    fn locate(&mut self, at: At) -> Location;

    /// Shows a message to the user: a line without its end, not a part of the output.
    fn report(&mut self, message: &[u8]);
}
