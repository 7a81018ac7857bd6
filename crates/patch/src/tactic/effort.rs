//! How much a plan may try.

/// The looks of one plan: per site, and a base number.
pub(super) const EFFORT_FOR_EACH: usize = 32;

pub(super) const EFFORT: usize = 200_000;
