//! The bounds of a run.

/// The maximum number of jumps of one run, whatever `jmpmax` says.
pub const JUMP_LIMIT: u32 = 65_535;

/// The maximum number of calls of one run. The next one raises `Exception::CALL_STACK_OVERFLOW`
/// with this number. Without it, 32 procedures that each call the next one twice would make 2^32
/// calls without a jump.
pub const CALL_LIMIT: u32 = 65_535;

/// The maximum number of times that one run can call an exception handler (a handler can set itself
/// again). The next exception ends the run even if a handler is set.
pub const HANDLER_LIMIT: u32 = 1024;

/// The maximum number of instructions of one run, whatever `insmax` says.
pub const INSTRUCTION_LIMIT: u32 = 1 << 30;

/// Instructions that one run may execute if the program does not say: far more than a handler
/// should need, and done in a fraction of a second.
pub const INSTRUCTIONS: u32 = 1 << 24;

/// The most frames of a stack that a handler takes.
pub const FRAMES_LIMIT: usize = 127;
