//! What dprobes puts into a probed process besides trampolines.
//!
//! * [`layout`]: the memory that the process and the tracer share, field by field. Compiled handlers, the agent's own
//!   code and the tracer all address it by these definitions and no others.
//! * [`thread_id`]: the numbers of a thread, where it can read them.
//! * [`hidden`]: the table of what handlers do not see.
//! * [`inside`]: the agent's own code.
//! * [`image`]: the same as bytes, to be put into a process.
//!
//! The design as a whole is in `docs/jump-engine.md`.
#![cfg_attr(not(test), no_std)]

#[cfg(not(image))]
extern crate alloc;

pub mod hidden;
#[cfg(not(image))]
pub mod image;
pub mod inside;
pub mod layout;
pub mod thread_id;
