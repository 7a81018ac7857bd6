//! Classifies an instruction: decides between emulation, slot and refusal.

use iced_x86::{
    Code, ConditionCode, ConstantOffsets, Decoder, DecoderError, DecoderOptions, FlowControl, Formatter,
    Instruction, IntelFormatter, Mnemonic, OpKind, Register,
};

use crate::{Mode, Refusal};

/// The longest instruction, in bytes (Intel's manual, volume 2, section 2.3.11).
pub(crate) const INSTRUCTION_LIMIT: usize = 15;

/// How an instruction is displaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Copied to the slot; a rip-relative operand gets the displacement that leads to the same
    /// address.
    Copied,
    /// `popf`: copied, except if it sets the trap flag. `size` is 8 (4 in 32-bit code), or 2 with
    /// an operand-size prefix.
    PopFlags { size: u64 },
    /// `syscall` of 64-bit code: copied, followed by an instruction that puts the original's return
    /// address in rcx.
    SystemCall,
    /// `xbegin`: copied, its displacement leading to the original's target.
    Transaction { target: u64 },
    /// `nop`, `endbr32`, `endbr64`: emulation only advances rip.
    Nothing,
    /// A jump to an immediate target.
    Jump { target: u64 },
    /// A conditional jump on the flags.
    Branch { condition: ConditionCode, target: u64 },
    /// `loop`, `jrcxz` and their variants: conditional jumps on the low `bytes` bytes of rcx: 8 (4
    /// in 32-bit code), or half of that with an address-size prefix.
    Count { count: Count, bytes: u64, target: u64 },
    /// A jump to the address in a general register, by its number.
    JumpRegister { register: usize },
    /// A push of a general register, by its number.
    PushRegister { register: usize },
    /// A push of an immediate value, sign-extended here.
    PushValue { value: u64 },
    /// A call to an immediate target.
    Call { target: u64 },
    /// A call to the address in a general register, by its number.
    CallRegister { register: usize },
    /// A call to the address in the memory operand.
    CallMemory,
    /// A return that removes `parameters` more bytes from the stack.
    Return { parameters: u16 },
}

/// The conditional jumps on the count register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// `loop`: decrements, jumps if not zero.
    Loop,
    /// `loope`: decrements, jumps if not zero and the zero flag is set.
    LoopEqual,
    /// `loopne`: decrements, jumps if not zero and the zero flag is clear.
    LoopNotEqual,
    /// `jrcxz`, `jecxz`: jumps if zero.
    IsZero,
}

/// An instruction that can be displaced.
#[derive(Clone, Debug)]
pub(crate) struct Decoded {
    pub(crate) mode: Mode,
    pub(crate) instruction: Instruction,
    pub(crate) offsets: ConstantOffsets,
    pub(crate) class: Class,
}

/// The length of the first instruction of some bytes, whether or not it can be displaced; `None` if
/// they begin with none.
pub fn instruction_length(mode: Mode, bytes: &[u8]) -> Option<usize> {
    let bytes = &bytes[..bytes.len().min(INSTRUCTION_LIMIT)];
    let instruction = Decoder::new(mode.bits(), bytes, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then(|| instruction.len())
}

/// Decodes the first instruction of `bytes` and decides how to displace it.
pub(crate) fn classify(mode: Mode, bytes: &[u8], address: u64) -> Result<Decoded, Refusal> {
    let bytes = &bytes[..bytes.len().min(INSTRUCTION_LIMIT)];
    let mut decoder = Decoder::with_ip(mode.bits(), bytes, address, DecoderOptions::NONE);
    let instruction = decoder.decode();
    if instruction.is_invalid() {
        return Err(unreadable(mode, bytes, address, decoder.last_error()));
    }
    let offsets = decoder.get_constant_offsets(&instruction);
    // AMD's processors truncate the target of a branch with an operand-size prefix to 16 bits, and
    // decode fewer bytes for some. `transfer` decides by kind of branch whether the difference
    // matters.
    let other = Decoder::with_ip(mode.bits(), bytes, address, DecoderOptions::AMD).decode();
    let makers_differ = other.code() != instruction.code() || other.len() != instruction.len();
    // A rip-relative operand always has 4 bytes of displacement; the slot relies on it.
    if instruction.is_ip_rel_memory_operand() && offsets.displacement_size() != 4 {
        return Err(Refusal::Unproven { address, text: disassemble(&instruction) });
    }
    let class = class_of(mode, &instruction, makers_differ, || disassemble(&instruction))?;
    Ok(Decoded { mode, instruction, offsets, class })
}

/// The refusal of bytes that the decoder rejected.
fn unreadable(mode: Mode, bytes: &[u8], address: u64, error: DecoderError) -> Refusal {
    let shown = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    if error == DecoderError::NoMoreBytes && bytes.len() < INSTRUCTION_LIMIT {
        Refusal::Truncated { address, available: bytes.len(), bytes: shown }
    } else {
        Refusal::Unknown { address, bits: mode.bits(), bytes: shown }
    }
}

/// The instruction in Intel's syntax, with C's hexadecimal numbers.
pub(crate) fn disassemble(instruction: &Instruction) -> String {
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_branch_leading_zeros(false);
    options.set_space_after_operand_separator(true);
    let mut text = String::new();
    formatter.format(instruction, &mut text);
    text
}

fn class_of(
    mode: Mode,
    instruction: &Instruction,
    makers_differ: bool,
    text: impl FnOnce() -> String,
) -> Result<Class, Refusal> {
    let address = instruction.ip();
    // The decoder reports these two as plain. A load of ss affects the next instruction; enclu
    // enters and leaves an enclave.
    if matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Pop)
        && instruction.op0_register() == Register::SS
    {
        return Err(Refusal::StackSegment { address, text: text() });
    }
    if instruction.mnemonic() == Mnemonic::Enclu {
        return Err(Refusal::Enclave { address, text: text() });
    }
    match instruction.flow_control() {
        FlowControl::Next => Ok(plain(instruction)),
        // `ud2` and similar: faults at any address.
        FlowControl::Exception => Ok(Class::Copied),
        FlowControl::Interrupt => Err(Refusal::SoftwareInterrupt { address, text: text() }),
        FlowControl::XbeginXabortXend => match instruction.code() {
            Code::Xbegin_rel32 => Ok(Class::Transaction { target: instruction.near_branch_target() }),
            Code::Xbegin_rel16 => Err(Refusal::ShortTransaction { address, text: text() }),
            _ => Ok(Class::Copied),
        },
        FlowControl::UnconditionalBranch
        | FlowControl::ConditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::Return
        | FlowControl::Call
        | FlowControl::IndirectCall => transfer(mode, instruction, makers_differ, text),
    }
}

/// Classifies an instruction that falls through.
fn plain(instruction: &Instruction) -> Class {
    match instruction.code() {
        Code::Nopw
        | Code::Nopd
        | Code::Nopq
        | Code::Nop_rm16
        | Code::Nop_rm32
        | Code::Nop_rm64
        | Code::Endbr32
        | Code::Endbr64 => Class::Nothing,
        Code::Push_r64 | Code::Push_r32 => {
            Class::PushRegister { register: instruction.op0_register().number() }
        }
        Code::Push_rm64 | Code::Push_rm32 if instruction.op0_kind() == OpKind::Register => {
            Class::PushRegister { register: instruction.op0_register().number() }
        }
        Code::Pushq_imm8 | Code::Pushq_imm32 | Code::Pushd_imm8 | Code::Pushd_imm32 => {
            Class::PushValue { value: instruction.immediate(0) }
        }
        Code::Popfq => Class::PopFlags { size: 8 },
        Code::Popfd => Class::PopFlags { size: 4 },
        Code::Popfw => Class::PopFlags { size: 2 },
        _ => Class::Copied,
    }
}

/// Classifies a transfer of control; all that are not named here are refused.
fn transfer(
    mode: Mode,
    instruction: &Instruction,
    makers_differ: bool,
    text: impl FnOnce() -> String,
) -> Result<Class, Refusal> {
    let address = instruction.ip();
    let target = instruction.near_branch_target();
    let class = match instruction.mnemonic() {
        // Privileged instructions fault in user code at any address. A call to a hypervisor returns
        // behind the instruction.
        Mnemonic::Vmcall | Mnemonic::Vmmcall | Mnemonic::Vmgexit => return Ok(Class::Copied),
        Mnemonic::Iret
        | Mnemonic::Iretd
        | Mnemonic::Iretq
        | Mnemonic::Retf
        | Mnemonic::Uiret
        | Mnemonic::Eretu
        | Mnemonic::Erets
        | Mnemonic::Sysret
        | Mnemonic::Sysretq
        | Mnemonic::Sysexit
        | Mnemonic::Sysexitq => return Err(Refusal::FarTransfer { address, text: text() }),
        Mnemonic::Sysenter => return Err(Refusal::FixedReturn { address, text: text() }),
        Mnemonic::Syscall if mode == Mode::Bits64 => return Ok(Class::SystemCall),
        // In 32-bit code only AMD's processors have it, and the kernel returns to the vdso.
        Mnemonic::Syscall => return Err(Refusal::FixedReturn { address, text: text() }),
        Mnemonic::Jmp | Mnemonic::Call if is_far(instruction.code()) => {
            return Err(Refusal::FarTransfer { address, text: text() });
        }
        // A jump through memory, and a jump or return with a prefix on which the makers differ,
        // does the same from any address, however the processor decodes it.
        Mnemonic::Jmp if instruction.op0_kind() == OpKind::Memory => return Ok(Class::Copied),
        Mnemonic::Jmp if instruction.op0_kind() == OpKind::Register && makers_differ => {
            return Ok(Class::Copied);
        }
        Mnemonic::Ret if makers_differ => return Ok(Class::Copied),
        Mnemonic::Ret => match instruction.code() {
            Code::Retnq | Code::Retnd => Class::Return { parameters: 0 },
            Code::Retnq_imm16 | Code::Retnd_imm16 => Class::Return { parameters: instruction.immediate16() },
            _ => return Ok(Class::Copied),
        },
        Mnemonic::Jmp => match instruction.code() {
            Code::Jmp_rel8_64 | Code::Jmp_rel32_64 | Code::Jmp_rel8_32 | Code::Jmp_rel32_32 => {
                Class::Jump { target }
            }
            Code::Jmp_rm64 | Code::Jmp_rm32 => {
                Class::JumpRegister { register: instruction.op0_register().number() }
            }
            // To a 16-bit register: the same from any address.
            Code::Jmp_rm16 => return Ok(Class::Copied),
            _ => return Err(Refusal::Unproven { address, text: text() }),
        },
        Mnemonic::Call => match instruction.code() {
            Code::Call_rel32_64 | Code::Call_rel32_32 => Class::Call { target },
            Code::Call_rm64 | Code::Call_rm32 if instruction.op0_kind() == OpKind::Register => {
                Class::CallRegister { register: instruction.op0_register().number() }
            }
            Code::Call_rm64 | Code::Call_rm32 => Class::CallMemory,
            _ => return Err(Refusal::Unproven { address, text: text() }),
        },
        // With an operand-size prefix, 32-bit code truncates the instruction pointer to 16 bits: no
        // compiler emits that.
        _ if instruction.op0_kind() == OpKind::NearBranch16 && mode == Mode::Bits32 => {
            return Err(Refusal::Unproven { address, text: text() });
        }
        _ if count_of(instruction.code()).is_some() || instruction.is_jcc_short_or_near() => {
            match count_of(instruction.code()) {
                Some((count, bytes)) => Class::Count { count, bytes, target },
                None => Class::Branch { condition: instruction.condition_code(), target },
            }
        }
        _ if instruction.is_privileged() => return Ok(Class::Copied),
        _ => return Err(Refusal::Unproven { address, text: text() }),
    };
    if makers_differ { Err(Refusal::MakersDiffer { address, text: text() }) } else { Ok(class) }
}

/// Whether a jump or call goes through a far pointer.
fn is_far(code: Code) -> bool {
    matches!(
        code,
        Code::Jmp_m1616
            | Code::Jmp_m1632
            | Code::Jmp_m1664
            | Code::Call_m1616
            | Code::Call_m1632
            | Code::Call_m1664
            | Code::Jmp_ptr1616
            | Code::Jmp_ptr1632
            | Code::Call_ptr1616
            | Code::Call_ptr1632
    )
}

/// The conditional jumps on rcx, ecx and cx, with that register's size in bytes, if the target is
/// not truncated.
fn count_of(code: Code) -> Option<(Count, u64)> {
    Some(match code {
        Code::Loop_rel8_64_RCX => (Count::Loop, 8),
        Code::Loop_rel8_64_ECX | Code::Loop_rel8_32_ECX => (Count::Loop, 4),
        Code::Loop_rel8_32_CX => (Count::Loop, 2),
        Code::Loope_rel8_64_RCX => (Count::LoopEqual, 8),
        Code::Loope_rel8_64_ECX | Code::Loope_rel8_32_ECX => (Count::LoopEqual, 4),
        Code::Loope_rel8_32_CX => (Count::LoopEqual, 2),
        Code::Loopne_rel8_64_RCX => (Count::LoopNotEqual, 8),
        Code::Loopne_rel8_64_ECX | Code::Loopne_rel8_32_ECX => (Count::LoopNotEqual, 4),
        Code::Loopne_rel8_32_CX => (Count::LoopNotEqual, 2),
        Code::Jrcxz_rel8_64 => (Count::IsZero, 8),
        Code::Jecxz_rel8_64 | Code::Jecxz_rel8_32 => (Count::IsZero, 4),
        Code::Jcxz_rel8_32 => (Count::IsZero, 2),
        _ => return None,
    })
}
