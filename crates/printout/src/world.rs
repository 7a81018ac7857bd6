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
    pub inlined: Vec<Inlined>,
    /// The source line of the address in it, as `file.c:12`, if that is to be shown.
    pub line: Option<String>,
}

/// A function that was inlined at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inlined {
    /// Its name.
    pub name: String,
    /// The source line, if that is to be shown.
    pub line: Option<String>,
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

    /// The function of a frame of a process, with what was inlined there. All frames but the first
    /// have the address to which a call returns.
    fn frame(&mut self, address: u64, pid: u32, is_first: bool) -> Option<Symbol> {
        let _ = is_first;
        self.user_symbol(address, pid)
    }

    /// The function at an address of the kernel.
    fn kernel_symbol(&mut self, address: u64) -> Option<Symbol>;

    /// The addresses of a stack by its number, the innermost one first.
    fn stack(&mut self, number: u64) -> Option<Vec<u64>>;

    /// The path of a cgroup in the hierarchies that a filter matches, as in `unified:/user.slice`.
    fn cgroup(&mut self, number: u64, filter: &[u8]) -> String;

    /// The name of a user; of one without a name, its number.
    fn user(&mut self, number: u32) -> String;

    /// The name of a process, which may have ended; empty if nobody knows it.
    fn process(&mut self, pid: u32) -> Vec<u8>;

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

    /// Takes the watchpoints at an address out.
    fn unwatch(&mut self, address: u64) {
        let _ = address;
    }

    /// Whether it takes what `printf` says, which is not printed then.
    fn takes_messages(&self) -> bool {
        false
    }

    /// Takes what a `printf` says, by its number among the events, as its template shows it
    /// ([`Reader::templates`](crate::Reader::templates)).
    fn message(&mut self, number: usize, data: Vec<u8>) {
        let _ = (number, data);
    }

    /// Shows a message to the user: a line without its end, not a part of the output.
    fn report(&mut self, message: &[u8]);
}
