//! Distances that decide where memory for jumps is looked for.

/// How far a jump leads, in bytes.
pub(crate) const REACH: u64 = 1 << 31;

/// Memory for trampolines within this distance of code most likely holds that code's trampolines.
pub(crate) const NEAR: u64 = 1 << 30;
