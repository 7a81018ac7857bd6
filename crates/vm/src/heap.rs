//! The heap.

/// The most that the heap blocks of a run can have together, in bytes, whatever the program says (5.0).
pub const HEAP_LIMIT: usize = 16 * 1024;
