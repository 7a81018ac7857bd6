//! Room `process`.
