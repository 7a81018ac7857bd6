//! Shared by the tests: programs to probe, runs of the real command, and ways to inspect a process
//! from outside.

mod attach;
mod collector;
mod elf;
mod jumps;
mod metrics;
mod program;
mod python;
mod run;
mod server;
mod session;
mod stats;

pub(crate) use attach::{Attached, attach, attach_file, attach_to_pipe, make_pipe};
pub(crate) use collector::Collector;
pub(crate) use elf::{
    address_of_offset, changed_text, file_offset, is_traced, memory, site_address, symbol_address,
    text_differences,
};
pub(crate) use jumps::{ends_well, is_right, start_jumps};
pub(crate) use metrics::{Metrics, READ, value};
pub(crate) use program::{calls_of_work, counting};
pub(crate) use python::{python, script};
pub(crate) use run::{FORGED, Outcome, Run, dprobes, engine, finish, run};
pub(crate) use server::Server;
pub(crate) use session::{Session, becomes_traced, start_server};
pub(crate) use stats::{Place, Stats};
pub(crate) use testing::{Scratch, find_program, go_target, need, repository, target, variant};
