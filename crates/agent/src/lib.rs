//! What dprobes puts into a probed process besides trampolines.
//!
//! * [`layout`]: the memory that the process and the tracer share, field by field. Compiled handlers, the agent's own
//!   code and the tracer all address it by these definitions and no others.
//! * [`inside`]: the agent's own code.
//! * [`image`]: the same as bytes, to be put into a process.
//!
//! The design as a whole is in `docs/jump-engine.md`.
#![cfg_attr(not(test), no_std)]

#[cfg(not(dprobes_image))]
extern crate alloc;

#[cfg(not(dprobes_image))]
pub mod image;
pub mod inside;
pub mod layout;
