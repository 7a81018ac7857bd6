//! Why the interpreter's main loop was left.

use crate::{End, Exception, Op, Register};

/// Why the main loop was left.
pub(crate) enum LoopExit {
    /// The handler has ended.
    End(End),
    /// An exception is to be raised.
    Exception(Exception),
    /// A rare instruction, whose operand has not been read yet.
    Instruction(Op),
    /// A register to push that is not in the register file.
    Register(Register),
}
