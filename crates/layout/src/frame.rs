//! What a handler keeps below the stack pointer of the program, at distances that others than its own code have to know.

/// Bytes below the stack pointer that belong to the program.
pub const RED_ZONE: u64 = 128;

/// How far below the site's rsp the address of a tentative record is kept.
pub const COMMIT_CELL: u64 = RED_ZONE + 8;

/// How far below the site's rsp the code that commits a tentative record keeps rax.
pub const SPILL_CELL: u64 = COMMIT_CELL + 8;
