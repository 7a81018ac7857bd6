//! What a handler keeps below the program's stack pointer, at distances that code outside the
//! handler needs to know.

/// Bytes below the stack pointer that belong to the program (its red zone).
pub const RED_ZONE: u64 = 128;

/// How far below the site's rsp a handler keeps the address of a tentative record.
pub const COMMIT_CELL: u64 = RED_ZONE + 8;

/// How far below the site's rsp the code that commits a tentative record saves rax.
pub const SPILL_CELL: u64 = COMMIT_CELL + 8;
