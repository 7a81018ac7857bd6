//! The general registers by their numbers in machine code.

use vm::Register;

/// Their 64-bit names by number.
pub const GENERAL: [Register; 16] = [
    Register::Rax,
    Register::Rcx,
    Register::Rdx,
    Register::Rbx,
    Register::Rsp,
    Register::Rbp,
    Register::Rsi,
    Register::Rdi,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// The names of the low halves of the first eight.
const LOW: [Register; 8] = [
    Register::Eax,
    Register::Ecx,
    Register::Edx,
    Register::Ebx,
    Register::Esp,
    Register::Ebp,
    Register::Esi,
    Register::Edi,
];

/// The number of the general register that a name denotes, whole or by its low half.
pub fn number(register: Register) -> Option<usize> {
    [&GENERAL[..], &LOW].into_iter().find_map(|names| names.iter().position(|name| *name == register))
}
