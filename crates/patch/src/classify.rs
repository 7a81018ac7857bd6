//! What an instruction is, as far as displacing it goes: the one place that decides between emulation, slot and refusal.

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
    /// Copied to the slot; an operand relative to rip is given the displacement that leads to the same address.
    Copied,
    /// `popf`: copied, except where it sets the trap flag. `size` is 8 bytes (4 in 32-bit code), or 2 with an
    /// operand-size prefix.
    PopFlags { size: u64 },
    /// `syscall` of 64-bit code: copied, and followed by the instruction that puts the original's return address in rcx.
    SystemCall,
    /// `xbegin`: copied, its displacement leading to the original's target.
    Transaction { target: u64 },
    /// `nop`, `endbr32`, `endbr64`: emulated as nothing.
    Nothing,
    /// A jump whose target is in the instruction.
    Jump { target: u64 },
    /// A conditional jump on the flags.
    Branch { condition: ConditionCode, target: u64 },
    /// `loop` and its kin, `jrcxz` and its kin: conditional jumps on the low `bytes` bytes of rcx: all 8 (4 in 32-bit code), or
    /// with an address-size prefix half of that.
    Count { count: Count, bytes: u64, target: u64 },
    /// A jump to what a general register holds, by its number.
    JumpRegister { register: usize },
    /// A push of a general register, by its number.
    PushRegister { register: usize },
    /// A push of a value that is in the instruction, already sign-extended.
    PushValue { value: u64 },
    /// A call whose target is in the instruction.
    Call { target: u64 },
    /// A call to what a general register holds, by its number.
    CallRegister { register: usize },
    /// A call to what the memory operand holds.
    CallMemory,
    /// A return that takes `parameters` bytes more off the stack.
    Return { parameters: u16 },
}

/// The conditional jumps on the count register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// `loop`: counts down, jumps while not zero.
    Loop,
    /// `loope`: counts down, jumps while not zero and the zero flag is set.
    LoopEqual,
    /// `loopne`: counts down, jumps while not zero and the zero flag is clear.
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

/// Decodes the instruction that `bytes` begin with, and says how it is displaced, or why not.
pub(crate) fn classify(mode: Mode, bytes: &[u8], address: u64) -> Result<Decoded, Refusal> {
    let bytes = &bytes[..bytes.len().min(INSTRUCTION_LIMIT)];
    let mut decoder = Decoder::with_ip(mode.bits(), bytes, address, DecoderOptions::NONE);
    let instruction = decoder.decode();
    if instruction.is_invalid() {
        return Err(unreadable(mode, bytes, address, decoder.last_error()));
    }
    let offsets = decoder.get_constant_offsets(&instruction);
    // AMD's processors cut a branch with an operand-size prefix to 16 bits, and read fewer bytes of some; what the two makers
    // call by different names is a matter of the branch's kind, decided below.
    let other = Decoder::with_ip(mode.bits(), bytes, address, DecoderOptions::AMD).decode();
    let makers_differ = other.code() != instruction.code() || other.len() != instruction.len();
    // An operand relative to rip always has 4 bytes of displacement; the slot rests on it.
    if instruction.is_ip_rel_memory_operand() && offsets.displacement_size() != 4 {
        return Err(Refusal::Unproven { address, text: disassemble(&instruction) });
    }
    let class = class_of(mode, &instruction, makers_differ, || disassemble(&instruction))?;
    Ok(Decoded { mode, instruction, offsets, class })
}

/// Why the decoder made nothing of the bytes.
fn unreadable(mode: Mode, bytes: &[u8], address: u64, error: DecoderError) -> Refusal {
    let shown = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    if error == DecoderError::NoMoreBytes && bytes.len() < INSTRUCTION_LIMIT {
        Refusal::Truncated { address, available: bytes.len(), bytes: shown }
    } else {
        Refusal::Unknown { address, bits: mode.bits(), bytes: shown }
    }
}

/// The instruction in Intel's syntax, with numbers as the C language writes them.
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
    // Two that the decoder takes for plain. A load of ss reaches beyond its own end; an enclave is entered and left by enclu.
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
        // The processor's own "this is no instruction": it faults from any address.
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

/// An instruction after which the next one follows.
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

/// A transfer of control: each is named here, what is not named is refused.
fn transfer(
    mode: Mode,
    instruction: &Instruction,
    makers_differ: bool,
    text: impl FnOnce() -> String,
) -> Result<Class, Refusal> {
    let address = instruction.ip();
    let target = instruction.near_branch_target();
    let class = match instruction.mnemonic() {
        // The kernel's own: they fault in user code, from any address. The calls to a hypervisor go on after
        // the instruction wherever it is.
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
        // Of 32-bit code: AMD's processors have it, and the kernel returns to the vdso.
        Mnemonic::Syscall => return Err(Refusal::FixedReturn { address, text: text() }),
        Mnemonic::Jmp | Mnemonic::Call if is_far(instruction.code()) => {
            return Err(Refusal::FarTransfer { address, text: text() });
        }
        // Through memory, and with a prefix that the makers understand differently, a jump or return does the same natively
        // from any address, whatever the processor takes it for.
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
            // To 16 bits of a register: the same from any address.
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
        // With an operand-size prefix, 32-bit code is left with 16 bits of instruction pointer: nobody means that.
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

/// The conditional jumps on rcx, ecx and cx, with the bytes of that register; those whose target has all bits of an address.
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
