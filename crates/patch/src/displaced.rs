//! [`Displaced`], the crate's main type: one displaced instruction.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::OnceLock;

use crate::classify::{Class, Decoded, INSTRUCTION_LIMIT, classify, disassemble};
use crate::machine::{Access, Memory, Registers};
use crate::slot::{Continuation, Slot};
use crate::substituted_argument::SubstitutedArgument;
use crate::template::Template;
use crate::{Mode, Refusal, emulate, harmless, stack};

/// An instruction that can be displaced, and how.
#[derive(Clone)]
pub struct Displaced {
    decoded: Decoded,
    original: [u8; INSTRUCTION_LIMIT],
    lent: Option<SubstitutedArgument>,
    /// Disassembled on first use: most instructions are never shown.
    text: OnceLock<String>,
}

/// Decodes the 64-bit instruction at `address` and decides how to displace it: [`displace_in`] with
/// [`Mode::Bits64`].
///
/// # Errors
///
/// As of [`displace_in`].
pub fn displace(bytes: &[u8], address: u64) -> Result<Displaced, Refusal> {
    displace_in(Mode::Bits64, bytes, address)
}

/// Decodes the instruction at `address` and decides how to displace it. The slot is code of the
/// same mode.
///
/// `bytes` are those in memory from `address` on, without any breakpoint. At most 15 are read;
/// fewer are enough if the mapping ends there.
///
/// # Errors
///
/// A [`Refusal`] if the instruction is not proven to do the same elsewhere.
pub fn displace_in(mode: Mode, bytes: &[u8], address: u64) -> Result<Displaced, Refusal> {
    let decoded = classify(mode, bytes, address)?;
    let length = decoded.instruction.len();
    let mut original = [0; INSTRUCTION_LIMIT];
    original[..length].copy_from_slice(&bytes[..length]);
    Ok(Displaced { decoded, original, lent: None, text: OnceLock::new() })
}

impl Displaced {
    /// The same `syscall` with its second argument substituted by `substituted_argument`, which
    /// changes its slot.
    ///
    /// # Panics
    /// It is no `syscall`.
    #[must_use]
    pub fn with_argument(self, lent: SubstitutedArgument) -> Displaced {
        assert!(self.enters_kernel(), "only a system call has arguments");
        Displaced { lent: Some(lent), ..self }
    }

    /// The same instruction in a process that has the module `by` bytes higher. A substituted
    /// argument is not carried over.
    #[must_use]
    pub fn moved(&self, by: u64) -> Displaced {
        let (mode, address) = (self.mode(), self.address().wrapping_add(by));
        displace_in(mode, self.original(), address)
            .expect("whether an instruction can be displaced, its bytes say")
    }

    /// The substituted argument of a `syscall`.
    pub fn lent(&self) -> Option<SubstitutedArgument> {
        self.lent
    }

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

    /// The instruction in Intel's syntax, targets and rip-relative operands as absolute addresses.
    pub fn text(&self) -> &str {
        self.text.get_or_init(|| disassemble(&self.decoded.instruction))
    }

    /// Whether a conditional jump is taken with these registers; `None` for other instructions.
    pub fn is_taken(&self, registers: &Registers) -> Option<bool> {
        emulate::is_taken(self.decoded.class, registers)
    }

    /// Whether the instruction is normally emulated. All others run in their slot at every hit,
    /// except a `popf` that sets the trap flag; [`Displaced::wants_emulation`] decides for one hit.
    pub fn is_emulated(&self) -> bool {
        emulate::is_emulated(self.decoded.class)
    }

    /// Whether to emulate this execution of the instruction, by a thread with these registers;
    /// otherwise run it in the slot.
    ///
    /// It differs from [`Displaced::is_emulated`] in two cases, both in programs that single-step
    /// themselves:
    /// - With the trap flag set nothing is emulated: the debug exception follows this instruction,
    ///   and the processor raises it in the slot, where [`Slot::mend`] corrects the registers.
    /// - A `popf` that sets the trap flag is emulated: the exception follows the *next*
    ///   instruction, which in the slot would be the jump back.
    pub fn wants_emulation(&self, registers: &Registers, memory: &mut impl Memory) -> bool {
        emulate::wanted(self.decoded.mode, self.decoded.class, registers, memory)
    }

    /// Applies the instruction's effect to `registers` and `memory`. On entry rip is the
    /// instruction's address; on return it is where the program continues. Only `popf` changes
    /// flags.
    ///
    /// # Errors
    ///
    /// The refused [`Access`], with nothing changed: memory that cannot be read or written, a
    /// misaligned access with the alignment check flag set, or a target that is not a user address.
    /// The caller then runs the instruction in its slot. An instruction that is never emulated
    /// always returns its own bytes as the access.
    pub fn emulate(&self, registers: &mut Registers, memory: &mut impl Memory) -> Result<(), Access> {
        emulate::emulate(&self.decoded, registers, memory)
    }

    /// Whether the instruction can fault in its slot: it has a memory operand, divides, is
    /// privileged, or the processor may lack it. False only if that is proven impossible.
    pub fn may_fault(&self) -> bool {
        harmless::may_fault(self.decoded.class, &self.decoded.instruction)
    }

    /// Whether the instruction must not be displaced in a thread with a shadow stack: calls and
    /// returns, which would leave the shadow stack unchanged or be taken for an attack. (A return
    /// run in its slot would be correct.)
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

    /// Whether control can go elsewhere than to the next instruction: all jumps, branches, calls
    /// and returns, and `xbegin`, whose transaction aborts to its target.
    pub fn transfers_control(&self) -> bool {
        match self.decoded.class {
            Class::Jump { .. }
            | Class::Branch { .. }
            | Class::Count { .. }
            | Class::JumpRegister { .. }
            | Class::Call { .. }
            | Class::CallRegister { .. }
            | Class::CallMemory
            | Class::Return { .. }
            | Class::Transaction { .. } => true,
            Class::Copied => stack::leaves(&self.decoded.instruction),
            Class::PopFlags { .. }
            | Class::SystemCall
            | Class::Nothing
            | Class::PushRegister { .. }
            | Class::PushValue { .. } => false,
        }
    }

    /// Whether control can go directly to the next instruction: false for jumps, returns and calls
    /// (the callee returns there), and for instructions such as `ud2` that always fault.
    pub fn falls_through(&self) -> bool {
        stack::falls_through(&self.decoded.instruction)
    }

    /// Whether it is a call: its callee may return a few bytes past it.
    pub fn is_call(&self) -> bool {
        let instruction = &self.decoded.instruction;
        instruction.is_call_near() || instruction.is_call_near_indirect()
    }

    /// Whether a copy of the instruction may follow another displaced one in its trampoline: its
    /// slot is the instruction itself (and one jump more if it is a branch). Excludes calls,
    /// instructions that enter the kernel, and those that save or restore all flags.
    pub fn can_follow(&self) -> bool {
        match self.decoded.class {
            Class::Nothing
            | Class::PushRegister { .. }
            | Class::PushValue { .. }
            | Class::Return { .. }
            | Class::Jump { .. }
            | Class::JumpRegister { .. }
            | Class::Branch { .. } => true,
            Class::Copied => {
                !stack::leaves(&self.decoded.instruction)
                    && stack::falls_through(&self.decoded.instruction)
                    && !stack::saves_flags(&self.decoded.instruction)
            }
            Class::PopFlags { .. }
            | Class::SystemCall
            | Class::Transaction { .. }
            | Class::Count { .. }
            | Class::Call { .. }
            | Class::CallRegister { .. }
            | Class::CallMemory => false,
        }
    }

    /// The number of bytes that the instruction adds to the stack pointer, if known statically and
    /// if the instruction falls through: -8 for a push, 24 for `add rsp, 24`, 0 if it does not
    /// touch the stack pointer.
    pub fn stack_delta(&self) -> Option<i64> {
        stack::delta(self.decoded.mode, &self.decoded.instruction)
    }

    /// Whether the instruction enters the kernel: `syscall`. (`int` and `sysenter` are refused.) A
    /// thread can block in it for ever, be restarted in it, or never return, so it cannot run in a
    /// trampoline.
    pub fn enters_kernel(&self) -> bool {
        self.decoded.class == Class::SystemCall
    }

    /// Whether the instruction can set the trap flag: `popf`. The debug exception follows the
    /// *next* instruction, which in a trampoline would belong to the trampoline;
    /// [`Displaced::wants_emulation`] handles this at a trap only.
    pub fn can_set_trap_flag(&self) -> bool {
        matches!(self.decoded.class, Class::PopFlags { .. })
    }

    /// Whether the instruction can fault in a trampoline, right after a handler. A handler that
    /// logs must know, because a record counts only if its instruction has completed.
    ///
    /// It is true less often than [`Displaced::may_fault`]:
    /// - A push writes to memory that the handler has just written: the words below the stack
    ///   pointer.
    /// - A pop to a register, `leave` and a return read the program's stack, which is mapped there.
    /// - A rip-relative operand belongs to the module, if `accessible` says so of its addresses
    ///   (the second argument: whether the instruction writes to them). It is called for no other
    ///   operand.
    /// - A jump or return to a non-canonical address faults before control is transferred. The
    ///   program ends; its last record is kept.
    ///
    /// An operand through any other register can fault, and so can a division.
    pub fn may_fault_in_trampoline(&self, accessible: impl Fn(RangeInclusive<u64>, bool) -> bool) -> bool {
        harmless::may_fault_in_trampoline(&self.decoded, accessible)
    }

    /// The instruction's slot at address `slot`. Every displaced instruction has one.
    ///
    /// # Errors
    ///
    /// [`Refusal::OutOfReach`] if `slot` is not in [`Displaced::reach`].
    pub fn slot(&self, slot: u64) -> Result<Slot, Refusal> {
        self.slot_to(slot, Continuation::Next)
    }

    /// The slot at `slot`, continuing at `onward` if the instruction falls through. Otherwise as
    /// [`Displaced::slot`]: a taken branch, a call and a return go where the original goes, a call
    /// pushes the original's return address, and [`Slot::position_at`] works the same.
    ///
    /// # Errors
    ///
    /// [`Refusal::OutOfReach`] if `slot` is not in [`Displaced::reach_to`].
    pub fn slot_to(&self, slot: u64, onward: Continuation) -> Result<Slot, Refusal> {
        self.template(onward).at(slot).ok_or_else(|| Refusal::OutOfReach {
            address: self.address(),
            text: self.text().to_owned(),
            slot,
            reach: self.reach_to(onward),
        })
    }

    /// The possible addresses of the slot: those from which its rip-relative operand, the jump back
    /// and the target of a jump or call can be reached. Never empty; includes the site or addresses
    /// close to it. It spans 2 to 4 GiB, cut off at the ends of the address space, or everything if
    /// nothing is relative. In 32-bit code it is all 4 GiB.
    pub fn reach(&self) -> RangeInclusive<u64> {
        self.reach_to(Continuation::Next)
    }

    /// The possible addresses of the slot of [`Displaced::slot_to`]; empty if `onward` is too far
    /// from the rest.
    pub fn reach_to(&self, onward: Continuation) -> RangeInclusive<u64> {
        self.template(onward).reach()
    }

    fn template(&self, onward: Continuation) -> Template {
        Template::of(&self.decoded, self.original(), onward, self.lent)
    }
}

impl fmt::Debug for Displaced {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Displaced({:#x}: {}, {:?})", self.address(), self.text(), self.decoded.class)
    }
}
