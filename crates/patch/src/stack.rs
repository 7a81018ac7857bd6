//! What an instruction does to the stack pointer and to control flow, as far as known statically.

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedRegister,
};

use crate::Mode;

/// The number of bytes that the instruction adds to the stack pointer; `None` if that depends on a
/// register or memory, or if the instruction does not fall through.
pub(crate) fn delta(mode: Mode, instruction: &Instruction) -> Option<i64> {
    if !falls_through(instruction) {
        return None;
    }
    let mut information = InstructionInfoFactory::new();
    let used = information.info(instruction);
    if !used.used_registers().iter().any(writes_stack_pointer) {
        return Some(0);
    }
    let pointer = if mode == Mode::Bits64 { Register::RSP } else { Register::ESP };
    let to_pointer = instruction.op0_kind() == OpKind::Register && instruction.op0_register() == pointer;
    let by = instruction.op1_kind() != OpKind::Register && instruction.op1_kind() != OpKind::Memory;
    match instruction.mnemonic() {
        // A push of rsp changes it by a known amount; a pop to rsp, or to a part of it, replaces
        // it.
        Mnemonic::Pop if is_stack_register(instruction.op0_register()) => None,
        Mnemonic::Push
        | Mnemonic::Pop
        | Mnemonic::Pushf
        | Mnemonic::Pushfd
        | Mnemonic::Pushfq
        | Mnemonic::Popf
        | Mnemonic::Popfd
        | Mnemonic::Popfq
        | Mnemonic::Pusha
        | Mnemonic::Pushad
        | Mnemonic::Popa
        | Mnemonic::Popad => Some(instruction.stack_pointer_increment().into()),
        Mnemonic::Add if to_pointer && by => Some(instruction.immediate(1).cast_signed()),
        Mnemonic::Sub if to_pointer && by => instruction.immediate(1).cast_signed().checked_neg(),
        Mnemonic::Inc if to_pointer => Some(1),
        Mnemonic::Dec if to_pointer => Some(-1),
        Mnemonic::Lea
            if to_pointer
                && instruction.memory_base() == pointer
                && instruction.memory_index() == Register::None =>
        {
            // The displacement is sign-extended in 64-bit code only.
            Some(match mode {
                Mode::Bits64 => instruction.memory_displacement64().cast_signed(),
                Mode::Bits32 => instruction.memory_displacement32().cast_signed().into(),
            })
        }
        _ => None,
    }
}

/// Whether control can go directly to the next instruction, without a callee in between.
pub(crate) fn falls_through(instruction: &Instruction) -> bool {
    match instruction.flow_control() {
        FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => true,
        // To the kernel or a hypervisor and back; includes `syscall`.
        FlowControl::Call | FlowControl::IndirectCall => !matches!(instruction.mnemonic(), Mnemonic::Call),
        FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::Return
        | FlowControl::Interrupt
        | FlowControl::Exception => false,
    }
}

/// Whether a copied instruction can go elsewhere than to the next one.
pub(crate) fn leaves(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return
    )
}

/// Whether an instruction stores all flags where the program can see them.
pub(crate) fn saves_flags(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Pushf | Mnemonic::Pushfd | Mnemonic::Pushfq)
}

fn is_stack_register(register: Register) -> bool {
    matches!(register, Register::RSP | Register::ESP | Register::SP | Register::SPL)
}

fn writes_stack_pointer(used: &UsedRegister) -> bool {
    is_stack_register(used.register())
        && !matches!(
            used.access(),
            OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
        )
}
