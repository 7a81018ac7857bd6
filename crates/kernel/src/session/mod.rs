//! Attaches loaded programs: to instructions of files, in all processes or one, and to instructions
//! of the kernel.
//!
//! One call attaches one program to the places of one probe in one file. The places that the kernel
//! refuses are found and told; the others are attached.
//!
//! | file | what it is |
//! |---|---|
//! | `attached` | what was attached, and what was refused |
//! | `uprobes` | instructions of files |
//! | `kprobes` | instructions of the kernel |
//! | `breakpoints` | accesses to memory |
//! | `tracepoints` | tracepoints of the kernel |
//! | `halving` | which of many places the kernel refuses |

mod attached;
mod breakpoints;
mod halving;
mod kprobes;
mod tracepoints;
mod uprobes;

#[cfg(test)]
mod tests;

pub use attached::Attached;
pub use breakpoints::Watchpoint;
pub use kprobes::{KernelSite, attach_kernel};
pub use tracepoints::{TracepointSite, attach_tracepoints};
pub use uprobes::{Site, Uprobes};
