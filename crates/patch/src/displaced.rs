//! One displaced instruction: the face of the crate.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::OnceLock;

use crate::classify::{Class, Decoded, INSTRUCTION_LIMIT, classify, disassemble};
use crate::lent::Lent;
use crate::machine::{Access, Memory, Registers};
use crate::slot::{Onward, Slot, Template};
use crate::{Mode, Refusal, emulate, harmless, stack};

/// An instruction that can be displaced, and how.
#[derive(Clone)]
pub struct Displaced {
    decoded: Decoded,
    original: [u8; INSTRUCTION_LIMIT],
    lent: Option<Lent>,
    /// Written when it is asked for: most instructions are displaced without a word.
    text: OnceLock<String>,
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
    Ok(Displaced { decoded, original, lent: None, text: OnceLock::new() })
}

impl Displaced {
    /// The same instruction, a `syscall`, with a second argument that is lent to it: its slot is another one.
    ///
    /// # Panics
    /// It is no `syscall`.
    #[must_use]
    pub fn lending(self, lent: Lent) -> Displaced {
        assert!(self.enters_kernel(), "only a system call has arguments");
        Displaced { lent: Some(lent), ..self }
    }

    /// The same instruction in a process that has the module `by` bytes farther. What is lent to it stays the same, so it must be
    /// nothing.
    #[must_use]
    pub fn moved(&self, by: u64) -> Displaced {
        let (mode, address) = (self.mode(), self.address().wrapping_add(by));
        displace_in(mode, self.original(), address)
            .expect("whether an instruction can be displaced, its bytes say")
    }

    /// What is lent to it.
    pub fn lent(&self) -> Option<Lent> {
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

    /// The instruction in Intel's syntax. Targets and operands relative to rip are shown as the addresses they mean.
    pub fn text(&self) -> &str {
        self.text.get_or_init(|| disassemble(&self.decoded.instruction))
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

    /// Whether control can go elsewhere than to the next instruction: every jump, branch, call and return, and `xbegin`, whose
    /// transaction aborts to its target.
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

    /// Whether control can go to the next instruction without going elsewhere first: false for jumps, returns and calls (to which a
    /// callee returns, but from elsewhere), and for `ud2` and its kin, which always fault.
    pub fn falls_through(&self) -> bool {
        stack::falls_through(&self.decoded.instruction)
    }

    /// Whether it is a call: its callee may go on a little behind it.
    pub fn is_call(&self) -> bool {
        let instruction = &self.decoded.instruction;
        instruction.is_call_near() || instruction.is_call_near_indirect()
    }

    /// Whether a copy of the instruction may follow another displaced one in its trampoline: it does in its slot nothing but what it
    /// does at its own place, in one instruction (and one more where it does not jump). Calls are not among them, nor what enters the kernel or deals with the flags as
    /// a whole.
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

    /// What the instruction adds to the stack pointer, in bytes, where that is known without running it and the instruction
    /// falls through: -8 for a push, 24 for `add rsp, 24`, 0 for all that does not touch the stack pointer.
    pub fn stack_delta(&self) -> Option<i64> {
        stack::delta(self.decoded.mode, &self.decoded.instruction)
    }

    /// Whether the instruction hands control to the kernel: `syscall`. (`int` and `sysenter` are refused altogether.) A thread
    /// can stay in it for ever, be restarted in it, or never come back from it, so it is no instruction for a trampoline.
    pub fn enters_kernel(&self) -> bool {
        self.decoded.class == Class::SystemCall
    }

    /// Whether the instruction can set the trap flag: `popf`. The debug exception comes after the *next* instruction, which in a
    /// trampoline would be one of the trampoline's; [`Displaced::wants_emulation`] sees to it at a stop, a trampoline cannot.
    pub fn can_set_trap_flag(&self) -> bool {
        matches!(self.decoded.class, Class::PopFlags { .. })
    }

    /// Whether the instruction can raise a fault when it runs in a trampoline, right after a handler: what a handler that logs
    /// must know, for a record counts only if its instruction has completed.
    ///
    /// It says less than [`Displaced::may_fault`], by what is known there:
    /// - A push writes where the handler has just written: the words below the stack pointer are the handler's own.
    /// - A pop to a register, `leave` and a return read the program's stack, which ends neither here nor above.
    /// - An operand relative to rip is the module's own, if `accessible` says so of its addresses (the second argument is true
    ///   where the instruction writes to them); it is called with no other operand.
    /// - A jump or return to an address that no code can have (not canonical) faults before control is transferred. A
    ///   program that does so ends; its last record is kept.
    ///
    /// An operand through any other register can fault, and so can a division.
    pub fn may_fault_in_trampoline(&self, accessible: impl Fn(RangeInclusive<u64>, bool) -> bool) -> bool {
        harmless::may_fault_in_trampoline(&self.decoded, accessible)
    }

    /// The slot, if it is put at `slot`. Every displaced instruction has one.
    ///
    /// # Errors
    ///
    /// [`Refusal::OutOfReach`] if `slot` is not in [`Displaced::reach`].
    pub fn slot(&self, slot: u64) -> Result<Slot, Refusal> {
        self.slot_to(slot, Onward::Next)
    }

    /// The slot at `slot`, from which the program goes on as `onward` says where the instruction falls through. All else is as in
    /// [`Displaced::slot`]: a branch that is taken, a call and a return go where the original goes, a call pushes the
    /// original's return address, and [`Slot::place`] answers in the program's terms.
    ///
    /// # Errors
    ///
    /// [`Refusal::OutOfReach`] if `slot` is not in [`Displaced::reach_to`].
    pub fn slot_to(&self, slot: u64, onward: Onward) -> Result<Slot, Refusal> {
        self.template(onward).at(slot).ok_or_else(|| Refusal::OutOfReach {
            address: self.address(),
            text: self.text().to_owned(),
            slot,
            reach: self.reach_to(onward),
        })
    }

    /// The addresses at which the slot can be put: those from which its operand relative to rip, the jump back, and the target of
    /// a jump or call can be reached. There are always some, the site or addresses close to it among them: 2 to 4 GiB of them, cut
    /// off at the ends of the address space, or all where nothing is relative. In 32-bit code all 4 GiB reach each other.
    pub fn reach(&self) -> RangeInclusive<u64> {
        self.reach_to(Onward::Next)
    }

    /// The addresses at which the slot of [`Displaced::slot_to`] can be put; none where `onward` is too far from the rest.
    pub fn reach_to(&self, onward: Onward) -> RangeInclusive<u64> {
        self.template(onward).reach()
    }

    fn template(&self, onward: Onward) -> Template {
        Template::of(&self.decoded, self.original(), onward, self.lent)
    }
}

impl fmt::Debug for Displaced {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Displaced({:#x}: {}, {:?})", self.address(), self.text(), self.decoded.class)
    }
}
