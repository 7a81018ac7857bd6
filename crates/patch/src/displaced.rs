//! One displaced instruction: the face of the room.

use std::fmt;
use std::ops::RangeInclusive;

use crate::classify::{Class, Decoded, INSTRUCTION_LIMIT, classify};
use crate::machine::{Access, Memory, Registers};
use crate::slot::{Slot, Template};
use crate::{Mode, Refusal, emulate, harmless};

/// An instruction that can be displaced, and how.
#[derive(Clone)]
pub struct Displaced {
    decoded: Decoded,
    original: [u8; INSTRUCTION_LIMIT],
}

/// Decodes the instruction of 64-bit code at `address` and decides how it is displaced: [`displace_in`] with [`Mode::Bits64`].
///
/// # Errors
///
/// As of [`displace_in`].
pub fn displace(bytes: &[u8], address: u64) -> Result<Displaced, Refusal> {
    displace_in(Mode::Bits64, bytes, address)
}

/// Decodes the instruction at `address` and decides how it is displaced. The slot is code of the same mode.
///
/// `bytes` are those in memory from `address` on, as the program has them (without a breakpoint); up to 15 are looked at, fewer
/// are enough if the mapping ends there.
///
/// # Errors
///
/// A [`Refusal`] for whatever is not proven to do the same displaced.
pub fn displace_in(mode: Mode, bytes: &[u8], address: u64) -> Result<Displaced, Refusal> {
    let decoded = classify(mode, bytes, address)?;
    let length = decoded.instruction.len();
    let mut original = [0; INSTRUCTION_LIMIT];
    original[..length].copy_from_slice(&bytes[..length]);
    Ok(Displaced { decoded, original })
}

impl Displaced {
    /// The mode in which the instruction is executed.
    pub fn mode(&self) -> Mode {
        self.decoded.mode
    }

    /// The address of the instruction.
    pub fn address(&self) -> u64 {
        self.decoded.instruction.ip()
    }

    /// The length of the instruction, 1 to 15 bytes.
    pub fn length(&self) -> usize {
        self.decoded.instruction.len()
    }

    /// The bytes of the instruction.
    pub fn original(&self) -> &[u8] {
        &self.original[..self.length()]
    }

    /// The instruction in Intel's syntax. Targets and operands relative to rip are shown as the addresses they mean.
    pub fn text(&self) -> &str {
        &self.decoded.text
    }

    /// Whether the instruction, a conditional jump, jumps when a thread with these registers executes it; nothing for other
    /// instructions.
    pub fn is_taken(&self, registers: &Registers) -> Option<bool> {
        emulate::is_taken(self.decoded.class, registers)
    }

    /// Whether the instruction is emulated as a rule. The others go to their slot at every hit, but for a `popf` that sets the
    /// trap flag; [`Displaced::wants_emulation`] decides for one hit.
    pub fn is_emulated(&self) -> bool {
        emulate::is_emulated(self.decoded.class)
    }

    /// Whether this execution of the instruction, by a thread with these registers, is to be emulated; it goes to the slot
    /// otherwise.
    ///
    /// It differs from [`Displaced::is_emulated`] in two cases, both about the trap flag (a program that steps itself):
    /// - With the trap flag set, nothing is emulated: the debug exception comes after this instruction, and the processor
    ///   raises it in the slot, where [`Slot::mend`] sets it right.
    /// - A `popf` that sets the trap flag is emulated: the exception comes after the *next* instruction, which in the slot
    ///   would be the jump back.
    pub fn wants_emulation(&self, registers: &Registers, memory: &mut impl Memory) -> bool {
        emulate::wanted(self.decoded.mode, self.decoded.class, registers, memory)
    }

    /// Does to `registers` and `memory` what the instruction would do. The registers are those before the instruction,
    /// rip being its address; afterwards rip is where the program goes on. Flags change in `popf` alone.
    ///
    /// # Errors
    ///
    /// The [`Access`] that was refused, nothing having changed: memory that cannot be read or written, a misaligned access
    /// with the alignment check flag set, or a target that no user code has. The instruction is then run in its slot. An
    /// instruction that is never emulated always answers so, with its own bytes as the access.
    pub fn emulate(&self, registers: &mut Registers, memory: &mut impl Memory) -> Result<(), Access> {
        emulate::emulate(&self.decoded, registers, memory)
    }

    /// Whether the instruction can raise a fault when it runs in its slot: an operand in memory, a division, an
    /// instruction that the processor may lack or that is the kernel's. False only where that is proven impossible.
    pub fn may_fault(&self) -> bool {
        harmless::may_fault(self.decoded.class, &self.decoded.instruction)
    }

    /// Whether the instruction must not be displaced in a thread that has a shadow stack: a call or a return, of which the
    /// shadow stack would not know, or which it would take for an attack. (A return alone would be right in its slot.)
    pub fn needs_plain_stack(&self) -> bool {
        match self.decoded.class {
            Class::Call { .. } | Class::CallRegister { .. } | Class::CallMemory | Class::Return { .. } => {
                true
            }
            Class::Copied
            | Class::PopFlags { .. }
            | Class::SystemCall
            | Class::Transaction { .. }
            | Class::Nothing
            | Class::Jump { .. }
            | Class::Branch { .. }
            | Class::Count { .. }
            | Class::JumpRegister { .. }
            | Class::PushRegister { .. }
            | Class::PushValue { .. } => false,
        }
    }

    /// The slot, if it is put at `slot`. Every displaced instruction has one.
    ///
    /// # Errors
    ///
    /// [`Refusal::OutOfReach`] if `slot` is not in [`Displaced::reach`].
    pub fn slot(&self, slot: u64) -> Result<Slot, Refusal> {
        Template::of(&self.decoded, self.original()).at(slot).ok_or_else(|| Refusal::OutOfReach {
            address: self.address(),
            text: self.decoded.text.clone(),
            slot,
            reach: self.reach(),
        })
    }

    /// The addresses at which the slot can be put: those from which its operand relative to rip, the jump back, and the target of
    /// a jump or call can be reached. There are always some, the site or addresses close to it among them: 2 to 4 GiB of them, cut
    /// off at the ends of the address space, or all where nothing is relative. In 32-bit code all 4 GiB reach each other.
    pub fn reach(&self) -> RangeInclusive<u64> {
        Template::of(&self.decoded, self.original()).reach()
    }
}

impl fmt::Debug for Displaced {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Displaced({:#x}: {}, {:?})", self.address(), self.text(), self.decoded.class)
    }
}
