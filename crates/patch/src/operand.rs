//! The address of a memory operand.

use iced_x86::{Instruction, Register};

use crate::Mode;
use crate::machine::Registers;

/// The linear address of memory operand `number`: the offset (truncated to 32 bits by an
/// address-size prefix) plus the base of fs or gs; all other segments start at 0 (in 32-bit code,
/// by Linux's setup). `None` if the operand uses a register that [`Registers`] lacks.
pub(crate) fn linear_address(
    mode: Mode,
    instruction: &Instruction,
    number: u32,
    registers: &Registers,
) -> Option<u64> {
    let address = instruction.virtual_address(number, 0, |register, _, _| value(register, registers))?;
    Some(mode.cut(address))
}

/// Whether the operand uses the stack segment. In 64-bit code the base register decides, since
/// segment overrides other than fs and gs are ignored (Intel's manual, volume 1, section 3.3.4).
pub(crate) fn is_stack(mode: Mode, instruction: &Instruction) -> bool {
    if mode == Mode::Bits32 {
        return instruction.memory_segment() == Register::SS;
    }
    matches!(instruction.memory_base(), Register::RSP | Register::ESP | Register::RBP | Register::EBP)
        && !matches!(instruction.memory_segment(), Register::FS | Register::GS)
}

fn value(register: Register, registers: &Registers) -> Option<u64> {
    match register {
        Register::ES | Register::CS | Register::SS | Register::DS => Some(0),
        Register::FS => Some(registers.fs_base),
        Register::GS => Some(registers.gs_base),
        _ if register.is_gpr64() => Some(registers.gpr[register.number()]),
        _ if register.is_gpr16() => Some(registers.gpr[register.number()] & 0xffff),
        _ if register.is_gpr32() => Some(registers.gpr[register.number()] & 0xffff_ffff),
        _ => None,
    }
}
