//! Measures what a hit costs, and checks whether programs notice probes, on this machine.
//!
//! The cost of a breakpoint depends mostly on the machine: on traps, single steps and wake-ups of
//! other processors. So results are never compared with numbers from elsewhere. All ways to trace
//! the calls of one function are measured in the same run, in turn, several times, and every way's
//! count is checked, since a tracer that loses hits is fast.
//!
//! - `bin/trap` measures the trap engine. The subject is `tests/targets/tight.c`. One process runs
//!   through the whole measurement; each tracer attaches, the process itself times one round of
//!   calls, the tracer detaches.
//! - `bin/jump` ([`jump`]) measures hits inside the process, compared with hand-written trampolines
//!   and other tracers.
//! - `bin/drain` ([`drain`]) measures the way of records to a file.
//! - `bin/arm` ([`arm`]) measures how long it takes to insert and remove many probes, and how long
//!   the process is held.
//! - `bin/coverage` measures how much slower a program is while its lines are measured.
//! - `bin/kernel` measures hits of the kernel engine, compared with other tracers that use the
//!   kernel's events.
//! - `bin/machine` measures hits of probes in the kernel, compared with bpftrace, in a virtual
//!   machine.
//! - `bin/script` measures hits of scripts, compared with bpftrace.
//! - `bin/convert` ([`convert`]) measures how fast traces are converted, and in how much memory.
//! - `bin/paper` ([`paper`]) measures the experiments of the paper of 2001.
//! - `bin/recording` ([`recording`]) makes the picture that README shows.
//! - `bin/soak` ([`soak`]) probes servers under load at random for any time, and checks whether a
//!   client notices.
//! - `bin/kill` ([`kill`]) kills the tracer at random moments, and checks whether the program was
//!   harmed.
//! - `bin/cycles` ([`cycles`]) inserts and removes programs in a session thousands of times, and
//!   checks what is left of them.
//! - `bin/soundness` ([`soundness`]) checks whether a program notices that any of its instructions
//!   is probed.

use std::io;
use std::process::ExitCode;

pub mod arm;
mod beside;
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
pub mod paper;
pub mod recording;
pub mod soak;
pub mod soundness;
mod subject;
mod way;
mod worker;

pub use beside::Beside;
pub use classic::classic;
pub use figures::Figures;
pub use subject::{Round, Subject};
pub use way::{Way, ways};
pub use worker::{Worker, wait};

/// An error with this message.
pub fn other(what: impl Into<String>) -> io::Error {
    io::Error::other(what.into())
}

/// The exit status of the bench `name`: 0 if all counts were right, 1 if not or if it could not
/// measure; then prints why.
pub fn status(name: &str, result: io::Result<bool>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("{name}: a check failed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}
