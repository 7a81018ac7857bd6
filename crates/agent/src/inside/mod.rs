//! The agent's own code: what runs inside a probed process besides trampolines.
//!
//! The workspace's build compiles this module a second time, alone with the interpreter, to a piece of memory that runs at any
//! address below 2 GiB (`build.rs`); [`crate::image`] is that piece. There it has no libc, no thread-local storage, no writable
//! data of its own and no state but what [`layout`] describes; it is called by compiled handlers and returns to them. It makes no system
//! call: the process may be forbidden any, and be killed for it.
//!
//! | file | what it is |
//! |---|---|
//! | `entry` | where compiled code comes in: registers saved, the stack changed |
//! | `handler`, `ring` | a run of the interpreter, and its record |
//! | `machine` | the thread, as the interpreter sees it |
//! | `guarded`, `hidden` | its memory; what of that handlers do not see |
//! | `segment`, `float` | its rarer registers |
//! | `kernel`, `settings` | the processor's number; what it is told of the process |
//! | `memory` | what the compiler takes for granted |

pub mod entry;
mod float;
mod guarded;
mod handler;
mod hidden;
mod kernel;
mod machine;
#[cfg(image)]
mod memory;
mod ring;
mod segment;
mod settings;
