//! What dprobes puts into a probed process besides trampolines.
//!
//! * [`inside`]: the agent's own code.
//! * [`image`]: the same as bytes, to be put into a process.
//!
//! The design as a whole is in `docs/jump-engine.md`.
#![cfg_attr(not(test), no_std)]

#[cfg(not(image))]
extern crate alloc;

#[cfg(not(image))]
pub mod image;
pub mod inside;
