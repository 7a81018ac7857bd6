//! How far from a module its landing pads may be.

/// Memory for trampolines within this distance of code most likely holds that code's trampolines.
pub(crate) const NEAR: u64 = 1 << 30;
