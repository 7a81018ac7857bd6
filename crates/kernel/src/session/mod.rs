//! Attaches loaded programs: to instructions of files, in all processes or one, and to instructions
//! of the kernel.
//!
//! In: a loaded program, and places. Out: `Attached`, which detaches the program when it is
//! dropped, with the places that the kernel refuses.
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
//! | `typed` | tracepoints by name, functions by type |
//! | `events` | events that are counted, and time |
//! | `following` | the children of traced processes |
//! | `halving` | which of many places the kernel refuses |

mod attached;
mod breakpoints;
mod events;
mod following;
mod halving;
mod kprobes;
mod tracepoints;
mod typed;
mod uprobes;

#[cfg(test)]
mod tests;

pub use attached::Attached;
pub use breakpoints::Watchpoint;
pub use events::attach_event;
pub use following::follow_children;
pub use kprobes::{KernelSite, attach_kernel};
pub use tracepoints::{TracepointSite, attach_tracepoints};
pub use typed::{attach_function, attach_raw_tracepoint};
pub use uprobes::{Site, Uprobes};
