//! The agent: the code that dprobes puts into a probed process besides trampolines.
//!
//! * [`inside`]: the agent's own code.
//! * [`image`]: the same code as bytes, ready to be mapped.
//!
//! The design is described in `docs/jump-engine.md`.
#![cfg_attr(not(test), no_std)]

#[cfg(not(image))]
extern crate alloc;

#[cfg(not(image))]
pub mod image;
pub mod inside;
