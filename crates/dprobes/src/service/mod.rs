//! The background session: probes that stay when the command has returned.
//!
//! ```text
//!   dprobes --insert FILE  --- socket --->  session: front + tracer  --- ptrace --->  processes
//!   dprobes --query        --- socket --->
//! ```
//!
//! One session per user, started by the first insert, ended by `dprobes session stop`. Its socket lies in a directory
//! that only the user can enter, and it answers that user and root alone. A request is one line of JSON, the answer
//! another. The session compiles the program itself; the client has done so before, for its messages.
//!
//! The program is compiled for both machines that this one runs, x86-64 and i386, and each process gets the version for its own.
//! Where there is none for it, or it cannot be placed in any process of that machine, those processes are refused; a
//! query says which and why.
//!
//! `modtype = user` without `-p` means every process of the user that maps the module. Children of processes that are
//! followed are probed from their first instruction. Others are found by looking: see `scan`.

mod classic;
mod client;
mod daemon;
mod protocol;
mod refused;
mod scan;
mod sink;
mod socket;

pub(crate) use classic::classic_name;
pub(crate) use classic::modern;
pub(crate) use client::{apply, getvars, insert, query, remove, session};
