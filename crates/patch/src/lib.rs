//! Room `patch`.
