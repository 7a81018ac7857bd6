//! What a hit costs, and whether the program can tell: measured on this machine.
//!
//! A breakpoint's price depends on the machine more than on anything else: how dear a trap, a single step and the
//! wake-up of another processor are. So nothing here is compared with a number from elsewhere. Every way of
//! seeing the calls of one function is measured in the same run, in turn, several times over, and every way's
//! count is checked: a tracer that loses hits is fast.
//!
//! - `bin/trap` measures the trap engine. The subject is `tests/targets/tight.c`. One process runs through the whole
//!   measurement; each tracer attaches, one round of calls is timed by the process itself, the tracer detaches.
//! - `bin/jump` ([`jump`]) measures what happens inside of the process, beside the floor and the peers.
//! - `bin/drain` ([`drain`]) measures the way of records from there to a file.
//! - `bin/arm` ([`arm`]) measures how long it takes to put many probes in and out, and how long the process is held for it.
//! - `bin/convert` ([`convert`]) measures how fast traces are converted to other forms, and in how much memory.
//! - `bin/soak` ([`soak`]) probes servers under load at random, for as long as one likes, and asks whether a client can tell.
//! - `bin/kill` ([`kill`]) kills the tracer at random moments, and asks whether the program was harmed.
//! - `bin/cycles` ([`cycles`]) inserts programs in a session and removes them, thousands of times, and asks what is left of them.
//! - `bin/soundness` ([`soundness`]) asks whether a program can tell that any of its instructions is probed.

use std::io;
use std::process::ExitCode;

pub mod arm;
pub mod build;
mod classic;
pub mod cleanup;
pub mod convert;
pub mod cycles;
pub mod drain;
mod family;
mod figures;
pub mod jump;
pub mod kill;
pub mod machine;
pub mod soak;
pub mod soundness;
mod subject;
mod way;

pub use classic::classic;
pub use figures::Figures;
pub use subject::{Round, Subject};
pub use way::{Way, ways};

/// An error of the bench's own.
pub fn other(what: impl Into<String>) -> io::Error {
    io::Error::other(what.into())
}

/// The status of a bench of that name: 0 where all counts were right, 1 where they were not or it could not measure; then it says so.
pub fn status(name: &str, result: io::Result<bool>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("{name}: something is wrong");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}
