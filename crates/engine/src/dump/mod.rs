//! Core dumps of processes that continue to run.
//!
//! The thread that hit the probe is already stopped. All other threads of its process are stopped
//! too (`hold`), so that the dump is consistent; their events are handled afterwards, as if they
//! came then. While they are stopped, the process is copied, and the dump is written from the copy
//! (`dumper`, `writer`) while the process goes on; `dumps` says which exits write one, and
//! `disk_space` whether there is room. Threads are shown where they would be in the unprobed
//! program (`threads`). So is the memory: without slots, and with the program's own bytes at sites
//! (`memory`). The file (`file`) is as the kernel would write it with its default
//! `coredump_filter` (man page core(5)):
//!
//! ```text
//!   ELF header, program headers
//!   notes      PRPSINFO; for each thread PRSTATUS, PRFPREG, X86_XSTATE, SIGINFO; AUXV; FILE
//!   memory     what belongs to the process alone, and the first page of each ELF file; zeros take no room
//! ```
//!
//! A hit of the kernel engine's is dumped the same way, from outside (`kernel_hit`).
//!
//! The note of mapped files is in `files`. The file of a 32-bit process is a 32-bit file
//! (`narrow`).
//!
//! Nothing that the process can see is changed, and no page is allocated in it except those that it
//! writes while it shares them with its copy.

mod auxiliary;
mod breakpoints;
mod disk_space;
mod dumper;
mod dumps;
mod executed;
mod file;
mod files;
mod hold;
mod kernel_hit;
mod memory;
mod moment;
mod narrow;
mod take;
mod threads;
mod watch;
mod write;
mod writer;

pub(crate) use dumper::Dumper;
pub(crate) use dumps::{Dumps, Refusal, Wanted};
pub use kernel_hit::KernelHit;
