//! Stack traces.

/// The most that stack traces can take in a run, in bytes, whatever `excpt_log` says.
pub const TRACE_LIMIT: usize = 32 * 1024;
