//! The address that a memory operand means.

use iced_x86::{Instruction, Register};

use crate::Mode;
use crate::machine::Registers;

/// The linear address of the memory operand `number` of `instruction`: the offset (cut to 32 bits by an address-size prefix)
/// plus the base of fs or gs; the other segments begin at 0 in 64-bit code, and in 32-bit code as Linux sets it up. The sum is cut
/// to the bits of an address. None if the operand uses a register that [`Registers`] has not.
pub(crate) fn linear_address(
    mode: Mode,
    instruction: &Instruction,
    number: u32,
    registers: &Registers,
) -> Option<u64> {
    let address = instruction.virtual_address(number, 0, |register, _, _| value(register, registers))?;
    Some(mode.cut(address))
}

/// Whether the operand goes through the stack segment: segment overrides other than fs and gs are ignored in 64-bit code
/// (Intel's manual, volume 1, section 3.3.4), so the base decides there.
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
