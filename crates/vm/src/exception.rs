//! Exceptions of a handler: codes, parameters and mask.
//!
//! Codes and parameters are those of the manual's exceptions table; the codes of the heap and of
//! the stack wrap are those of the 5.0 kernel. A code is a word: its low 16 bits (the x-field) say
//! which exception it is; the rest (the u-field) belongs to the program and is 0 in exceptions that
//! the interpreter raises.

use core::fmt;

/// The exceptions that cannot be masked: they end the handler even if masked.
pub const NON_MASKABLE: u16 = 0x0fff;

/// The mask of a program that sets none: all but `LOG_OVERFLOW`, `RPN_STACK_WRAP` and `USER` are
/// raised.
pub const DEFAULT_MASK: u16 = 0x0fff;

/// An exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Exception {
    /// Which exception: the x-field in bits 0 to 15, the program's u-field above it.
    pub code: u64,
    /// First parameter, a word; its meaning is documented with the code's constant.
    pub parm1: u64,
    /// Second parameter, a word; 0 unless documented with the code's constant.
    pub parm2: u64,
}

impl Exception {
    /// Memory access failed. `parm1`: the first address that could not be accessed.
    pub const INVALID_ADDR: u16 = 0x0001;
    /// A selector that `seg2lin` could not use. `parm1`: the selector.
    pub const SEG_FAULT: u16 = 0x0002;
    /// One jump more than allowed (`parm1`: `jmpmax`), or one instruction (`parm1`: `insmax`,
    /// `parm2`: 1).
    pub const JMP_MAX: u16 = 0x0004;
    /// A call nested too deep (`parm1`: [`crate::CALL_DEPTH`]), a `ret` without a call (`parm1`:
    /// 0), or one call more than a run may make (`parm1`: [`crate::CALL_LIMIT`]). The manual's
    /// table also calls it CALL_MAX.
    pub const CALL_STACK_OVERFLOW: u16 = 0x0010;
    /// A division by zero.
    pub const DIVIDE_BY_ZERO: u16 = 0x0020;
    /// An operand out of range. `parm1`: 1 local variable, 2 global variable, 3 bit position, 4
    /// exit facility, 5 segment register, 8 offset in the frame, 9 map, or length of its key or
    /// value; `parm2`: the operand.
    pub const INVALID_OPERAND: u16 = 0x0040;
    /// An invalid instruction, or one that the machine refuses. `parm1`: the opcode, or 0 past the
    /// end of the code; `parm2`: its offset in the code.
    pub const INVALID_OPCODE: u16 = 0x0080;
    /// Not enough heap memory. `parm1`: the size asked for.
    pub const HEAP_NOMEM: u16 = 0x0100;
    /// An invalid heap handle. `parm1`: the handle; `parm2`: the offset popped with it, 0 for
    /// `free`.
    pub const INVALID_HANDLE: u16 = 0x0200;
    /// An access outside a heap block. `parm1`: the handle; `parm2`: the offset of the first such
    /// value.
    pub const INVALID_OFFSET: u16 = 0x0400;
    /// The log is full. `parm1`: `logmax`. Maskable, and masked by default.
    pub const LOG_OVERFLOW: u16 = 0x1000;
    /// The RPN stack wrapped. Never raised: the stack is circular.
    pub const RPN_STACK_WRAP: u16 = 0x2000;
    /// The program's own exception, with its own parameters. Maskable, and masked by default.
    pub const USER: u16 = 0x8000;

    /// An exception with this x-field and a zero u-field.
    #[cold]
    pub(crate) const fn new(code: u16, parm1: u64, parm2: u64) -> Exception {
        Exception { code: code as u64, parm1, parm2 }
    }

    /// No exception: what `push x` pushes if none was raised.
    pub(crate) const NONE: Exception = Exception { code: 0, parm1: 0, parm2: 0 };

    /// An operand out of range, of kind `kind` (1 to 5).
    #[cold]
    pub(crate) const fn operand(kind: u64, value: u64) -> Exception {
        Exception::new(Exception::INVALID_OPERAND, kind, value)
    }

    /// The x-field: which exception it is.
    pub const fn x_field(&self) -> u16 {
        self.code as u16
    }

    /// The exception's name in the manual's table; `EXCEPTION` for an unknown code.
    pub const fn name(&self) -> &'static str {
        match self.x_field() {
            Exception::INVALID_ADDR => "INVALID_ADDR",
            Exception::SEG_FAULT => "SEG_FAULT",
            Exception::JMP_MAX => "JMP_MAX",
            Exception::CALL_STACK_OVERFLOW => "CALL_STACK_OVERFLOW",
            Exception::DIVIDE_BY_ZERO => "DIVIDE_BY_ZERO",
            Exception::INVALID_OPERAND => "INVALID_OPERAND",
            Exception::INVALID_OPCODE => "INVALID_OPCODE",
            Exception::HEAP_NOMEM => "HEAP_NOMEM",
            Exception::INVALID_HANDLE => "INVALID_HANDLE",
            Exception::INVALID_OFFSET => "INVALID_OFFSET",
            Exception::LOG_OVERFLOW => "LOG_OVERFLOW",
            Exception::RPN_STACK_WRAP => "RPN_STACK_WRAP",
            Exception::USER => "USER_EX",
            _ => "EXCEPTION",
        }
    }
}

impl fmt::Display for Exception {
    /// The name, the code and both parameters: `INVALID_ADDR (code 0x1, parameters 0x10, 0x0)`.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exception { code, parm1, parm2 } = self;
        write!(to, "{} (code {code:#x}, parameters {parm1:#x}, {parm2:#x})", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_shows_its_name_its_code_with_the_user_field_and_its_parameters() {
        let exception = Exception { code: 0x7_8000, parm1: 0x10, parm2: 2 };
        assert_eq!(exception.x_field(), Exception::USER);
        assert_eq!(exception.to_string(), "USER_EX (code 0x78000, parameters 0x10, 0x2)");
    }
}
