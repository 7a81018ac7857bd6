//! Decides which instructions cannot fault in their slot.
//!
//! An allow list: its instructions exist on every x86-64 processor that Linux starts on, touch
//! registers only, and have no exception in Intel's manual except for a lock prefix or a missing
//! feature. All others may fault.

use std::ops::RangeInclusive;

use iced_x86::{
    CpuidFeature, EncodingKind, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use crate::classify::{Class, Decoded};

/// Whether the slot of an instruction of `class` can fault; false only if that is proven
/// impossible.
pub(crate) fn may_fault(class: Class, instruction: &Instruction) -> bool {
    match class {
        // Jumps check their target, which may be any value from a register or the stack.
        Class::JumpRegister { .. }
        | Class::PushRegister { .. }
        | Class::PushValue { .. }
        | Class::Call { .. }
        | Class::CallRegister { .. }
        | Class::CallMemory
        | Class::Return { .. }
        | Class::PopFlags { .. }
        | Class::Transaction { .. } => true,
        Class::Nothing | Class::Jump { .. } | Class::Branch { .. } | Class::Count { .. } => false,
        // A bad argument makes the kernel return an error or send a signal; the instruction raises
        // no exception.
        Class::SystemCall => false,
        Class::Copied => !is_harmless(instruction),
    }
}

/// As [`may_fault`], in a trampoline; see [`crate::Displaced::may_fault_in_trampoline`].
pub(crate) fn may_fault_in_trampoline(
    decoded: &Decoded,
    accessible: impl Fn(RangeInclusive<u64>, bool) -> bool,
) -> bool {
    let instruction = &decoded.instruction;
    match decoded.class {
        Class::JumpRegister { .. }
        | Class::PushRegister { .. }
        | Class::PushValue { .. }
        | Class::Call { .. }
        | Class::CallRegister { .. }
        | Class::Return { .. } => false,
        Class::CallMemory => !reads_module(instruction, accessible),
        Class::Copied => match instruction.mnemonic() {
            Mnemonic::Pop => {
                instruction.op0_kind() != OpKind::Register || !instruction.op0_register().is_gpr()
            }
            Mnemonic::Leave | Mnemonic::Ret => false,
            Mnemonic::Jmp if instruction.op0_kind() == OpKind::Register => false,
            Mnemonic::Jmp | Mnemonic::Push if instruction.op0_kind() == OpKind::Memory => {
                !reads_module(instruction, accessible)
            }
            Mnemonic::Push | Mnemonic::Pushf | Mnemonic::Pushfd | Mnemonic::Pushfq => false,
            _ => !is_harmless(instruction) && !is_harmless_in_module(instruction, accessible),
        },
        Class::PopFlags { .. } => false,
        Class::Transaction { .. }
        | Class::Nothing
        | Class::Jump { .. }
        | Class::Branch { .. }
        | Class::Count { .. }
        | Class::SystemCall => may_fault(decoded.class, instruction),
    }
}

/// Offsets from the stack pointer that are certainly in the program's stack.
const NEAR: RangeInclusive<i64> = -128..=4096;

/// Whether an instruction soon after a handler may fault, and so expose the registers to a signal
/// handler, as far as the code tells. `has_frame`: rbp is a recent copy of the stack pointer.
pub(crate) fn may_show(instruction: &Instruction, has_frame: bool) -> bool {
    use Mnemonic::{Call, Endbr64, Jmp, Leave, Nop, Pop, Popfq, Push, Pushfq, Ret, Syscall};
    let register = |operand: u32| {
        instruction.op_kind(operand) == OpKind::Register && instruction.op_register(operand).is_gpr()
    };
    match instruction.mnemonic() {
        Nop | Endbr64 | Leave | Ret | Pushfq | Popfq | Syscall => return false,
        Pop if register(0) => return false,
        Push | Call | Jmp if instruction.op0_kind() != OpKind::Memory => return false,
        _ => {}
    }
    // A conditional jump.
    if instruction.is_jcc_short_or_near() || is_harmless(instruction) {
        return false;
    }
    let on_stack = match instruction.memory_base() {
        Register::RSP => true,
        Register::RBP => has_frame,
        _ => false,
    };
    let displacement = instruction.memory_displacement64().cast_signed();
    if on_stack
        && instruction.memory_index() == Register::None
        && !matches!(instruction.segment_prefix(), Register::FS | Register::GS)
        && NEAR.contains(&displacement)
    {
        return !is_harmless_at(instruction);
    }
    !is_harmless_in_module(instruction, |_, _| true)
}

/// Whether the instruction would be harmless if its memory operand were a register.
fn is_harmless_at(instruction: &Instruction) -> bool {
    // Most 16-byte operands must be aligned.
    instruction.memory_size().size() < 16
        && is_everywhere(instruction)
        && is_listed(instruction.mnemonic())
        && (0..instruction.op_count())
            .filter(|operand| instruction.op_kind(*operand) != OpKind::Memory)
            .all(|operand| is_plain(instruction, operand))
}

/// Whether a jump, call or push reads its word from the module.
fn reads_module(instruction: &Instruction, accessible: impl Fn(RangeInclusive<u64>, bool) -> bool) -> bool {
    own_operand(instruction).is_some_and(|addresses| accessible(addresses, false))
}

/// Whether the instruction would be harmless with a register operand, and its memory operand is in
/// the module.
fn is_harmless_in_module(
    instruction: &Instruction,
    accessible: impl Fn(RangeInclusive<u64>, bool) -> bool,
) -> bool {
    let Some(addresses) = own_operand(instruction) else { return false };
    let mut information = InstructionInfoFactory::new();
    let memory = information.info(instruction).used_memory();
    let writes = memory.iter().any(|used| !matches!(used.access(), OpAccess::Read | OpAccess::CondRead));
    let others = (0..instruction.op_count())
        .filter(|operand| instruction.op_kind(*operand) != OpKind::Memory)
        .all(|operand| is_plain(instruction, operand));
    // Most 16-byte operands must be aligned; the address shows whether this one is.
    let size = addresses.end() - addresses.start() + 1;
    memory.len() == 1
        && others
        && is_everywhere(instruction)
        && is_listed(instruction.mnemonic())
        && (size < 16 || addresses.start().is_multiple_of(size))
        && accessible(addresses, writes)
}

/// The addresses of a rip-relative operand without a segment base.
fn own_operand(instruction: &Instruction) -> Option<RangeInclusive<u64>> {
    let size = instruction.memory_size().size() as u64;
    let plain = instruction.is_ip_rel_memory_operand()
        && instruction.memory_base() == Register::RIP
        && !matches!(instruction.segment_prefix(), Register::FS | Register::GS)
        && size > 0;
    let start = instruction.ip_rel_memory_address();
    plain.then(|| start.checked_add(size - 1)).flatten().map(|end| start..=end)
}

fn is_harmless(instruction: &Instruction) -> bool {
    is_everywhere(instruction)
        && InstructionInfoFactory::new().info(instruction).used_memory().is_empty()
        && (0..instruction.op_count()).all(|operand| is_plain(instruction, operand))
        && is_listed(instruction.mnemonic())
}

/// Whether every x86-64 processor that Linux starts on has the instruction.
fn is_everywhere(instruction: &Instruction) -> bool {
    let everywhere = instruction.cpuid_features().iter().all(|feature| {
        matches!(
            feature,
            CpuidFeature::INTEL8086
                | CpuidFeature::INTEL8086_ONLY
                | CpuidFeature::INTEL186
                | CpuidFeature::INTEL286
                | CpuidFeature::INTEL386
                | CpuidFeature::INTEL486
                | CpuidFeature::X64
                | CpuidFeature::CMOV
                | CpuidFeature::SSE
                | CpuidFeature::SSE2
        )
    });
    everywhere && instruction.encoding() == EncodingKind::Legacy
}

/// Whether an operand is a general or vector register, an immediate, or the address that `lea`
/// computes.
fn is_plain(instruction: &Instruction, operand: u32) -> bool {
    match instruction.op_kind(operand) {
        OpKind::Register => {
            let register = instruction.op_register(operand);
            register.is_gpr() || register.is_xmm()
        }
        OpKind::Memory => instruction.mnemonic() == Mnemonic::Lea,
        OpKind::Immediate8
        | OpKind::Immediate16
        | OpKind::Immediate32
        | OpKind::Immediate64
        | OpKind::Immediate8to16
        | OpKind::Immediate8to32
        | OpKind::Immediate8to64
        | OpKind::Immediate32to64 => true,
        _ => false,
    }
}

#[rustfmt::skip]
fn is_listed(mnemonic: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        mnemonic,
        // Moves.
        Mov | Movzx | Movsx | Movsxd | Lea | Xchg | Bswap | Cbw | Cwde | Cdqe | Cwd | Cdq | Cqo
            | Cmova | Cmovae | Cmovb | Cmovbe | Cmove | Cmovg | Cmovge | Cmovl | Cmovle
            | Cmovne | Cmovno | Cmovnp | Cmovns | Cmovo | Cmovp | Cmovs
            | Seta | Setae | Setb | Setbe | Sete | Setg | Setge | Setl | Setle
            | Setne | Setno | Setnp | Setns | Seto | Setp | Sets
        // Arithmetic; division is not harmless.
            | Add | Adc | Sub | Sbb | Inc | Dec | Neg | Cmp | Mul | Imul | Xadd | Cmpxchg
        // Logic and bits.
            | And | Or | Xor | Not | Test | Shl | Sal | Shr | Sar | Rol | Ror | Rcl | Rcr | Shld | Shrd
            | Bt | Bts | Btr | Btc | Bsf | Bsr
        // Flags.
            | Clc | Stc | Cmc | Cld | Std | Pause
        // Vector registers, except floating-point arithmetic, which may be set to raise exceptions.
            | Movaps | Movapd | Movups | Movupd | Movdqa | Movdqu | Movd | Movq | Movhlps | Movlhps
            | Xorps | Xorpd | Andps | Andpd | Orps | Orpd | Andnps | Andnpd
            | Pxor | Por | Pand | Pandn
            | Paddb | Paddw | Paddd | Paddq | Psubb | Psubw | Psubd | Psubq
            | Pcmpeqb | Pcmpeqw | Pcmpeqd | Pcmpgtb | Pcmpgtw | Pcmpgtd | Pmovmskb | Pshufd
            | Punpcklbw | Punpcklwd | Punpckldq | Punpcklqdq | Punpckhqdq | Pminub | Pmaxub
    )
}
