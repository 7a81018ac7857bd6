//! The agent's own code, which runs inside a probed process.
//!
//! The build compiles this module a second time, with only the interpreter, to a block of memory
//! that runs at any address below 2 GiB (`build.rs`, [`crate::image`]). There it has no libc, no
//! thread-local storage, no writable data of its own and no state except what [`layout`] describes.
//! Compiled handlers call it and it returns to them. It makes no system calls: the process may be
//! forbidden any, and be killed for one.
//!
//! | file | what it is |
//! |---|---|
//! | `entry` | entry from compiled code: saves registers, switches stacks |
//! | `handler`, `ring` | a run of the interpreter, and its record |
//! | `map_call` | an instruction on a map, for compiled code |
//! | `machine` | the thread, as the interpreter sees it |
//! | `guarded`, `hidden` | access to its memory; the memory hidden from handlers |
//! | `stack` | its stack |
//! | `segment`, `float` | its segment and floating-point registers |
//! | `kernel`, `settings` | the processor's number; parameters of the process |
//! | `memory` | functions that the compiler expects, such as `memcpy` |

pub mod entry;
mod float;
mod guarded;
mod handler;
mod hidden;
mod kernel;
mod machine;
mod map_call;
#[cfg(image)]
mod memory;
mod ring;
mod segment;
mod settings;
mod stack;
