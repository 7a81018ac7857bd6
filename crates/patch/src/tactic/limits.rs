//! The length of the longest instruction.

/// The most bytes of an instruction.
pub(super) const LONGEST: usize = 15;
