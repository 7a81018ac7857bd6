//! How far a jump reaches.

/// How far a jump leads, in bytes.
pub(crate) const REACH: u64 = 1 << 31;
