//! The background session: keeps probes inserted after the command has returned.
//!
//! ```text
//!   dprobes --insert FILE  --- socket --->  session: front + tracer  --- ptrace --->  processes
//!   dprobes --query        --- socket --->
//! ```
//!
//! There is one session per user, started by the first insert or by `dprobes session start`, as a
//! service if it stays in the foreground, and ended by `dprobes session stop`.
//! Its socket is in a directory that only the user can enter, and it answers only that user and
//! root. A request is one line of JSON, the answer another. The client compiles the program too, to
//! print its messages; the session compiles it again.
//!
//! The program is compiled for both machines that this one runs, x86-64 and i386, and each process
//! gets the version for its machine. If there is none for a machine, or it cannot be placed in the
//! processes of that machine, these processes are refused; a query shows which and why.
//!
//! The kernel runs programs for the kernel, those for the processes of all users, and others with
//! `--engine kernel`: each has a thread in the session, see `in_kernel`. What runs a program is
//! decided in `choice`.
//!
//! For the tracer, `modtype = user` without `-p` means every process of the user that maps the
//! module. Children of followed processes are probed from their first instruction. The session
//! searches for others: see `scan`.

mod choice;
mod classic;
mod client;
mod daemon;
mod in_kernel;
mod insert;
mod metrics;
mod observer;
mod protocol;
mod refused;
mod said;
mod scan;
mod session;
mod socket;
mod supervisor;

pub(crate) use classic::classic_name;
pub(crate) use classic::modern;
pub(crate) use client::{apply, getvars, insert, query, remove, session};
