//! Emulation: applies an instruction's effect to a stopped thread's registers and memory.
//!
//! Each instruction makes all accesses that can be refused, with the only memory write last, before
//! it changes registers: it happens completely or not at all.

use iced_x86::ConditionCode;

use crate::Mode;
use crate::classify::{Class, Count, Decoded};
use crate::machine::{
    ALIGNMENT, AUXILIARY, Access, CARRY, DIRECTION, IDENTIFICATION, INTERRUPT, Memory, NESTED, OVERFLOW,
    PARITY, PRIVILEGE, RCX, RSP, Registers, SIGN, TRAP, ZERO,
};
use crate::operand;

/// The end of user addresses with four levels of page tables. A target beyond may be valid with
/// five, be the vsyscall page, or fault: the slot leaves that to the processor.
const USER_END: u64 = 1 << 47;

/// Whether this execution of an instruction of `class` is emulated; see
/// [`crate::Displaced::wants_emulation`].
pub(crate) fn wanted(mode: Mode, class: Class, registers: &Registers, memory: &mut impl Memory) -> bool {
    match class {
        // The program's own debug exception must follow the instruction; only the processor can
        // raise it.
        _ if registers.rflags & TRAP != 0 => false,
        Class::PopFlags { size } => pop(mode, size, registers, memory).is_ok_and(|value| value & TRAP != 0),
        _ => is_emulated(class),
    }
}

/// Whether instructions of `class` are normally emulated.
pub(crate) fn is_emulated(class: Class) -> bool {
    match class {
        Class::Copied | Class::PopFlags { .. } | Class::SystemCall | Class::Transaction { .. } => false,
        Class::Nothing
        | Class::Jump { .. }
        | Class::Branch { .. }
        | Class::Count { .. }
        | Class::JumpRegister { .. }
        | Class::PushRegister { .. }
        | Class::PushValue { .. }
        | Class::Call { .. }
        | Class::CallRegister { .. }
        | Class::CallMemory
        | Class::Return { .. } => true,
    }
}

/// Whether a conditional jump is taken; `None` for other instructions.
pub(crate) fn is_taken(class: Class, registers: &Registers) -> Option<bool> {
    match class {
        Class::Branch { condition, .. } => Some(holds(condition, registers.rflags)),
        Class::Count { count, bytes, .. } => Some(counted(count, bytes, registers).1),
        _ => None,
    }
}

/// Applies the instruction's effect, completely or not at all.
pub(crate) fn emulate(
    decoded: &Decoded,
    registers: &mut Registers,
    memory: &mut impl Memory,
) -> Result<(), Access> {
    let Decoded { mode, instruction, class, .. } = decoded;
    let mode = *mode;
    let next = mode.cut(instruction.next_ip());
    let reachable = |target| reachable(mode, target);
    match *class {
        Class::Copied | Class::SystemCall | Class::Transaction { .. } => {
            let (address, size) = (instruction.ip(), instruction.len());
            return Err(Access { address, size, write: false, stack: false });
        }
        Class::PopFlags { size } => {
            let value = pop(mode, size, registers, memory)?;
            let rip = reachable(next)?;
            registers.rflags = popped_flags(registers.rflags, value, size);
            registers.gpr[RSP] = mode.cut(registers.gpr[RSP].wrapping_add(size));
            registers.rip = rip;
        }
        Class::Nothing => registers.rip = reachable(next)?,
        Class::Jump { target } => registers.rip = reachable(target)?,
        Class::Branch { condition, target } => {
            registers.rip = reachable(if holds(condition, registers.rflags) { target } else { next })?;
        }
        Class::Count { count, bytes, target } => {
            let (left, jumps) = counted(count, bytes, registers);
            registers.rip = reachable(if jumps { target } else { next })?;
            registers.gpr[RCX] = left;
        }
        Class::JumpRegister { register } => registers.rip = reachable(registers.gpr[register])?,
        Class::PushRegister { register } => {
            push(mode, registers.gpr[register], reachable(next)?, registers, memory)?;
        }
        Class::PushValue { value } => push(mode, value, reachable(next)?, registers, memory)?,
        Class::Call { target } => push(mode, next, reachable(target)?, registers, memory)?,
        Class::CallRegister { register } => {
            push(mode, next, reachable(registers.gpr[register])?, registers, memory)?;
        }
        Class::CallMemory => {
            let target = target_in_memory(mode, instruction, registers, memory)?;
            push(mode, next, reachable(target)?, registers, memory)?;
        }
        Class::Return { parameters } => {
            let size = mode.word();
            let rip = reachable(pop(mode, size, registers, memory)?)?;
            registers.gpr[RSP] = mode.cut(registers.gpr[RSP].wrapping_add(size + u64::from(parameters)));
            registers.rip = rip;
        }
    }
    Ok(())
}

/// `target`, if it is certainly a user address. In 32-bit code a jump to any address completes, and
/// a fault belongs to the instruction there.
fn reachable(mode: Mode, target: u64) -> Result<u64, Access> {
    let target = mode.cut(target);
    if target < USER_END {
        Ok(target)
    } else {
        Err(Access { address: target, size: 1, write: false, stack: false })
    }
}

/// Refuses a misaligned access if the alignment check flag is set; the processor raises that fault.
fn aligned(access: Access, registers: &Registers) -> Result<Access, Access> {
    if registers.rflags & ALIGNMENT != 0 && !access.address.is_multiple_of(access.size as u64) {
        Err(access)
    } else {
        Ok(access)
    }
}

/// The 8, 4 or 2 bytes on top of the stack.
fn pop(mode: Mode, size: u64, registers: &Registers, memory: &mut impl Memory) -> Result<u64, Access> {
    let address = mode.cut(registers.gpr[RSP]);
    let access = Access { address, size: size as usize, write: false, stack: true };
    load(aligned(access, registers)?, memory)
}

/// Pushes a word of `value` and continues at `rip`.
fn push(
    mode: Mode,
    value: u64,
    rip: u64,
    registers: &mut Registers,
    memory: &mut impl Memory,
) -> Result<(), Access> {
    let size = mode.word() as usize;
    let address = mode.cut(registers.gpr[RSP].wrapping_sub(mode.word()));
    let access = aligned(Access { address, size, write: true, stack: true }, registers)?;
    if !memory.write(address, &value.to_le_bytes()[..size]) {
        return Err(access);
    }
    registers.gpr[RSP] = address;
    registers.rip = rip;
    Ok(())
}

/// The target word in a call's memory operand.
fn target_in_memory(
    mode: Mode,
    instruction: &iced_x86::Instruction,
    registers: &Registers,
    memory: &mut impl Memory,
) -> Result<u64, Access> {
    let stack = operand::is_stack(mode, instruction);
    let size = mode.word() as usize;
    let Some(address) = operand::linear_address(mode, instruction, 0, registers) else {
        // No encoding of a call has such an operand; the slot would handle it.
        return Err(Access { address: instruction.ip(), size, write: false, stack });
    };
    load(aligned(Access { address, size, write: false, stack }, registers)?, memory)
}

/// Up to 8 bytes of memory as a number.
fn load(access: Access, memory: &mut impl Memory) -> Result<u64, Access> {
    let mut bytes = [0; 8];
    if memory.read(access.address, &mut bytes[..access.size]) {
        Ok(u64::from_le_bytes(bytes))
    } else {
        Err(access)
    }
}

/// The new rcx, and whether the instruction jumps. A count in ecx clears the upper half of rcx; one
/// in cx keeps the other bits. `jecxz` and its variants change nothing.
fn counted(count: Count, bytes: u64, registers: &Registers) -> (u64, bool) {
    let width = u64::MAX >> (64 - 8 * bytes);
    let whole = registers.gpr[RCX];
    let left = whole.wrapping_sub(1) & width;
    let kept = if bytes == 2 { whole & !width } else { 0 };
    let zero = registers.rflags & ZERO != 0;
    match count {
        Count::Loop => (kept | left, left != 0),
        Count::LoopEqual => (kept | left, left != 0 && zero),
        Count::LoopNotEqual => (kept | left, left != 0 && !zero),
        Count::IsZero => (whole, whole & width == 0),
    }
}

/// Whether a condition holds (Intel's manual, volume 1, appendix B).
fn holds(condition: ConditionCode, flags: u64) -> bool {
    let set = |flag| flags & flag != 0;
    let less = set(SIGN) != set(OVERFLOW);
    match condition {
        ConditionCode::None => true,
        ConditionCode::o => set(OVERFLOW),
        ConditionCode::no => !set(OVERFLOW),
        ConditionCode::b => set(CARRY),
        ConditionCode::ae => !set(CARRY),
        ConditionCode::e => set(ZERO),
        ConditionCode::ne => !set(ZERO),
        ConditionCode::be => set(CARRY) || set(ZERO),
        ConditionCode::a => !set(CARRY) && !set(ZERO),
        ConditionCode::s => set(SIGN),
        ConditionCode::ns => !set(SIGN),
        ConditionCode::p => set(PARITY),
        ConditionCode::np => !set(PARITY),
        ConditionCode::l => less,
        ConditionCode::ge => !less,
        ConditionCode::le => less || set(ZERO),
        ConditionCode::g => !less && !set(ZERO),
    }
}

/// The flags after `popf` of `value` at privilege level 3 (Intel's manual, volume 2, POPF, table
/// and operation): all but the privilege level, the virtual interrupt flags and the resume flag;
/// the interrupt flag only if the process has iopl 3. With an operand-size prefix only the low 16
/// bits.
fn popped_flags(flags: u64, value: u64, size: u64) -> u64 {
    let mut changed = CARRY
        | PARITY
        | AUXILIARY
        | ZERO
        | SIGN
        | TRAP
        | DIRECTION
        | OVERFLOW
        | NESTED
        | ALIGNMENT
        | IDENTIFICATION;
    if flags & PRIVILEGE == PRIVILEGE {
        changed |= INTERRUPT;
    }
    if size == 2 {
        changed &= 0xffff;
    }
    flags & !changed | value & changed
}
