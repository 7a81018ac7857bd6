//! One encoding of every instruction that the assembler knows in either mode, in several shapes.

use dprobes_patch::Mode;
use iced_x86::{Code, Encoder, Instruction, OpCodeOperandKind, OpKind, Register};

/// The form of the operand that may be a register or memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A register.
    Register,
    /// `[rbx]`
    Based,
    /// `[r13+rsi*2+disp32]`: a REX prefix, an index; in 32-bit code `[edi+esi*2+disp32]`.
    Indexed,
    /// `[rsp+disp8]`
    Stack,
    /// `[rip+disp32]`, absolute address [`Addresses::data`].
    Rip,
    /// `[eip+disp32]`, the same with an address-size prefix.
    Eip,
    /// `[disp32]`
    Absolute,
    /// `fs:[rbx]`; in 32-bit code `gs:[ebx]`.
    Fs,
    /// `[bx+si]`, only in 32-bit code.
    Narrow,
}

impl Shape {
    pub const ALL: [Shape; 9] = [
        Shape::Register,
        Shape::Based,
        Shape::Indexed,
        Shape::Stack,
        Shape::Rip,
        Shape::Eip,
        Shape::Absolute,
        Shape::Fs,
        Shape::Narrow,
    ];
}

/// The addresses used by an encoding.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The mode of the code.
    pub mode: Mode,
    /// The address of the instruction.
    pub site: u64,
    /// The address of the data for `Rip`, `Eip` and `Absolute`.
    pub data: u64,
    /// The address of a branch's target.
    pub target: u64,
}

/// An encoded instruction.
#[derive(Clone, Debug)]
pub struct Encoding {
    pub code: Code,
    pub shape: Shape,
    pub bytes: Vec<u8>,
}

/// Every instruction of a mode in every possible shape, without duplicates.
pub fn all(addresses: Addresses) -> Vec<Encoding> {
    let mut encodings: Vec<Encoding> = Vec::new();
    for code in Code::values() {
        let op_code = code.op_code();
        let known = match addresses.mode {
            Mode::Bits64 => op_code.mode64(),
            Mode::Bits32 => op_code.mode32(),
        };
        if !op_code.is_instruction() || !known {
            continue;
        }
        let mut seen: Vec<Vec<u8>> = Vec::new();
        for shape in Shape::ALL {
            for bytes in variants(code, shape, addresses) {
                if !seen.contains(&bytes) {
                    seen.push(bytes.clone());
                    encodings.push(Encoding { code, shape, bytes });
                }
            }
        }
    }
    encodings
}

/// The instruction without and with the prefixes and decorations that it allows.
fn variants(code: Code, shape: Shape, addresses: Addresses) -> Vec<Vec<u8>> {
    let op_code = code.op_code();
    let Some(plain) = build(code, shape, addresses) else { return Vec::new() };
    let mut instructions = vec![plain];
    let mut vary = |allowed: bool, change: fn(&mut Instruction)| {
        if allowed {
            let mut changed = plain;
            change(&mut changed);
            instructions.push(changed);
        }
    };
    // Only writes to memory can be locked, and only registers allow zero-masking.
    let writes_memory = shape != Shape::Register;
    let to_register = plain.op0_kind() == OpKind::Register;
    vary(op_code.can_use_lock_prefix() && writes_memory, |instruction| instruction.set_has_lock_prefix(true));
    vary(op_code.can_use_rep_prefix(), |instruction| instruction.set_has_rep_prefix(true));
    vary(op_code.can_use_repne_prefix(), |instruction| instruction.set_has_repne_prefix(true));
    vary(op_code.can_use_bnd_prefix(), |instruction| instruction.set_has_repne_prefix(true));
    vary(op_code.can_use_notrack_prefix(), |instruction| instruction.set_segment_prefix(Register::DS));
    vary(op_code.can_use_op_mask_register(), |instruction| instruction.set_op_mask(Register::K1));
    vary(op_code.can_use_zeroing_masking() && to_register, |instruction| {
        instruction.set_op_mask(Register::K1);
        instruction.set_zeroing_masking(true);
    });
    vary(op_code.can_broadcast() && shape != Shape::Register, |instruction| {
        instruction.set_is_broadcast(true)
    });
    instructions
        .iter()
        .filter_map(|instruction| encode(addresses.mode, instruction, addresses.site))
        .collect()
}

/// The bytes of an instruction, if the assembler can make any.
pub fn encode(mode: Mode, instruction: &Instruction, site: u64) -> Option<Vec<u8>> {
    let mut encoder = Encoder::new(mode.bits());
    encoder.encode(instruction, site).ok()?;
    Some(encoder.take_buffer())
}

/// The instruction with an operand of `shape`; unchanged if it has no such operand.
pub fn build(code: Code, shape: Shape, addresses: Addresses) -> Option<Instruction> {
    let op_code = code.op_code();
    let mut instruction = Instruction::default();
    instruction.set_code(code);
    for operand in 0..op_code.op_count() {
        set_operand(&mut instruction, operand, op_code.op_kind(operand), shape, addresses)?;
    }
    if op_code.require_op_mask_register() {
        instruction.set_op_mask(Register::K1);
    }
    Some(instruction)
}

fn set_operand(
    instruction: &mut Instruction,
    operand: u32,
    kind: OpCodeOperandKind,
    shape: Shape,
    addresses: Addresses,
) -> Option<()> {
    use OpCodeOperandKind as Kind;
    let wide = addresses.mode == Mode::Bits64;
    if shape == Shape::Narrow && wide {
        return None;
    }
    if !wide && matches!(shape, Shape::Rip | Shape::Eip) {
        return None;
    }
    // Operands 0, 1, 2, ... are registers 2, 3, 5, ...: none is rsp, and none is register 1, which
    // is the index of a gather.
    let number = [2, 3, 5, 6, 7][operand as usize];
    let register = |first: Register| first + number;
    let memory_or = |instruction: &mut Instruction, first: Register| {
        if shape == Shape::Register {
            instruction.set_op_register(operand, first + number);
        } else {
            set_memory(instruction, operand, shape, addresses);
        }
    };
    let mut set = |value: Register| instruction.set_op_register(operand, value);
    match kind {
        Kind::r8_or_mem => memory_or(instruction, Register::AL),
        Kind::r16_or_mem => memory_or(instruction, Register::AX),
        Kind::r32_or_mem | Kind::r32_or_mem_mpx => memory_or(instruction, Register::EAX),
        Kind::r64_or_mem | Kind::r64_or_mem_mpx => memory_or(instruction, Register::RAX),
        Kind::mm_or_mem => memory_or(instruction, Register::MM0),
        Kind::xmm_or_mem => memory_or(instruction, Register::XMM0),
        Kind::ymm_or_mem => memory_or(instruction, Register::YMM0),
        Kind::zmm_or_mem => memory_or(instruction, Register::ZMM0),
        Kind::k_or_mem => memory_or(instruction, Register::K0),
        Kind::bnd_or_mem_mpx if shape == Shape::Register => set(Register::BND1),
        Kind::mem | Kind::bnd_or_mem_mpx | Kind::mem_mpx | Kind::mem_mib | Kind::sibmem
            if shape == Shape::Register =>
        {
            return None;
        }
        Kind::mem | Kind::bnd_or_mem_mpx | Kind::mem_mpx | Kind::mem_mib | Kind::sibmem => {
            set_memory(instruction, operand, shape, addresses);
        }
        Kind::mem_vsib32x | Kind::mem_vsib64x => {
            set_gather(instruction, operand, shape, wide, Register::XMM1)?
        }
        Kind::mem_vsib32y | Kind::mem_vsib64y => {
            set_gather(instruction, operand, shape, wide, Register::YMM1)?
        }
        Kind::mem_vsib32z | Kind::mem_vsib64z => {
            set_gather(instruction, operand, shape, wide, Register::ZMM1)?
        }
        Kind::mem_offs => {
            instruction.set_op_kind(operand, OpKind::Memory);
            instruction.set_memory_displ_size(if wide { 8 } else { 4 });
            instruction.set_memory_displacement64(addresses.data);
        }
        Kind::r8_reg | Kind::r8_opcode => set(register(Register::AL)),
        Kind::r16_reg | Kind::r16_rm | Kind::r16_opcode | Kind::r16_reg_mem => set(register(Register::AX)),
        Kind::r32_reg | Kind::r32_rm | Kind::r32_opcode | Kind::r32_vvvv | Kind::r32_reg_mem => {
            set(register(Register::EAX));
        }
        Kind::r64_reg | Kind::r64_rm | Kind::r64_opcode | Kind::r64_vvvv | Kind::r64_reg_mem => {
            set(register(Register::RAX));
        }
        Kind::seg_reg => set(Register::ES),
        Kind::k_reg | Kind::k_rm | Kind::k_vvvv => set(register(Register::K0)),
        Kind::kp1_reg => set(Register::K2),
        Kind::mm_reg | Kind::mm_rm => set(register(Register::MM0)),
        Kind::xmm_reg | Kind::xmm_rm | Kind::xmm_vvvv | Kind::xmm_is4 | Kind::xmm_is5 => {
            set(register(Register::XMM0));
        }
        Kind::xmmp3_vvvv => set(Register::XMM4),
        Kind::ymm_reg | Kind::ymm_rm | Kind::ymm_vvvv | Kind::ymm_is4 | Kind::ymm_is5 => {
            set(register(Register::YMM0));
        }
        Kind::zmm_reg | Kind::zmm_rm | Kind::zmm_vvvv => set(register(Register::ZMM0)),
        Kind::zmmp3_vvvv => set(Register::ZMM4),
        Kind::tmm_reg | Kind::tmm_rm | Kind::tmm_vvvv => set(register(Register::TMM0)),
        Kind::cr_reg => set(Register::CR2),
        Kind::dr_reg => set(Register::DR2),
        Kind::tr_reg => set(Register::TR3),
        Kind::bnd_reg => set(Register::BND2),
        Kind::es => set(Register::ES),
        Kind::cs => set(Register::CS),
        Kind::ss => set(Register::SS),
        Kind::ds => set(Register::DS),
        Kind::fs => set(Register::FS),
        Kind::gs => set(Register::GS),
        Kind::al => set(Register::AL),
        Kind::cl => set(Register::CL),
        Kind::ax => set(Register::AX),
        Kind::dx => set(Register::DX),
        Kind::eax => set(Register::EAX),
        Kind::rax => set(Register::RAX),
        Kind::st0 => set(Register::ST0),
        Kind::sti_opcode => set(Register::ST3),
        Kind::seg_rSI if !wide => instruction.set_op_kind(operand, OpKind::MemorySegESI),
        Kind::es_rDI if !wide => instruction.set_op_kind(operand, OpKind::MemoryESEDI),
        Kind::seg_rDI if !wide => instruction.set_op_kind(operand, OpKind::MemorySegEDI),
        Kind::seg_rSI => instruction.set_op_kind(operand, OpKind::MemorySegRSI),
        Kind::es_rDI => instruction.set_op_kind(operand, OpKind::MemoryESRDI),
        Kind::seg_rDI => instruction.set_op_kind(operand, OpKind::MemorySegRDI),
        Kind::seg_rBX_al => {
            instruction.set_op_kind(operand, OpKind::Memory);
            instruction.set_memory_base(if wide { Register::RBX } else { Register::EBX });
            instruction.set_memory_index(Register::AL);
        }
        Kind::imm4_m2z => set_value(instruction, operand, OpKind::Immediate8, 1),
        Kind::imm8 => {
            // Some have two.
            let second = (0..operand).any(|other| instruction.op_kind(other) == OpKind::Immediate8)
                || (operand == 1 && instruction.op_kind(0) == OpKind::Immediate16);
            set_value(
                instruction,
                operand,
                if second { OpKind::Immediate8_2nd } else { OpKind::Immediate8 },
                5,
            );
        }
        Kind::imm8_const_1 => set_value(instruction, operand, OpKind::Immediate8, 1),
        Kind::imm8sex16 => set_value(instruction, operand, OpKind::Immediate8to16, -3),
        Kind::imm8sex32 => set_value(instruction, operand, OpKind::Immediate8to32, -3),
        Kind::imm8sex64 => set_value(instruction, operand, OpKind::Immediate8to64, -3),
        Kind::imm16 => set_value(instruction, operand, OpKind::Immediate16, 0x1238),
        Kind::imm32 => set_value(instruction, operand, OpKind::Immediate32, 0x1234_5678),
        Kind::imm32sex64 => set_value(instruction, operand, OpKind::Immediate32to64, -0x1234_5678),
        Kind::imm64 => set_value(instruction, operand, OpKind::Immediate64, 0x1234_5678_9abc_def0),
        Kind::br16_1 | Kind::br16_2 => {
            instruction.set_op_kind(operand, OpKind::NearBranch16);
            instruction.set_near_branch16(addresses.target as u16);
        }
        Kind::br32_1 | Kind::br32_4 => {
            instruction.set_op_kind(operand, OpKind::NearBranch32);
            instruction.set_near_branch32(addresses.target as u32);
        }
        Kind::xbegin_2 | Kind::xbegin_4 if !wide => {
            instruction.set_op_kind(operand, OpKind::NearBranch32);
            instruction.set_near_branch32(addresses.target as u32);
        }
        Kind::br64_1 | Kind::br64_4 | Kind::xbegin_2 | Kind::xbegin_4 => {
            instruction.set_op_kind(operand, OpKind::NearBranch64);
            instruction.set_near_branch64(addresses.target);
        }
        Kind::None | Kind::farbr2_2 | Kind::farbr4_2 | Kind::brdisp_2 | Kind::brdisp_4 => return None,
        _ => panic!("a kind of operand that is new: {kind:?}"),
    }
    Some(())
}

fn set_value(instruction: &mut Instruction, operand: u32, kind: OpKind, value: i64) {
    instruction.set_op_kind(operand, kind);
    instruction.set_immediate_i64(operand, value);
}

fn set_memory(instruction: &mut Instruction, operand: u32, shape: Shape, addresses: Addresses) {
    instruction.set_op_kind(operand, OpKind::Memory);
    if addresses.mode == Mode::Bits32 {
        return set_memory_32(instruction, shape, addresses);
    }
    match shape {
        Shape::Register | Shape::Narrow => {}
        Shape::Based => instruction.set_memory_base(Register::RBX),
        Shape::Indexed => {
            instruction.set_memory_base(Register::R13);
            instruction.set_memory_index(Register::RSI);
            instruction.set_memory_index_scale(2);
            instruction.set_memory_displ_size(4);
            instruction.set_memory_displacement64(0x1000);
        }
        Shape::Stack => {
            instruction.set_memory_base(Register::RSP);
            instruction.set_memory_displ_size(1);
            instruction.set_memory_displacement64(0x40);
        }
        Shape::Rip | Shape::Eip => {
            instruction.set_memory_base(if shape == Shape::Rip { Register::RIP } else { Register::EIP });
            instruction.set_memory_displ_size(if shape == Shape::Rip { 8 } else { 4 });
            instruction.set_memory_displacement64(addresses.data);
        }
        Shape::Absolute => {
            instruction.set_memory_displ_size(8);
            instruction.set_memory_displacement64(addresses.data & 0x7fff_ffff);
        }
        Shape::Fs => {
            instruction.set_memory_base(Register::RBX);
            instruction.set_segment_prefix(Register::FS);
        }
    }
}

fn set_memory_32(instruction: &mut Instruction, shape: Shape, addresses: Addresses) {
    instruction.set_memory_base(Register::EBX);
    match shape {
        Shape::Register | Shape::Based | Shape::Rip | Shape::Eip => {}
        Shape::Indexed => {
            instruction.set_memory_base(Register::EDI);
            instruction.set_memory_index(Register::ESI);
            instruction.set_memory_index_scale(2);
            instruction.set_memory_displ_size(4);
            // A pointer repeated three times is truncated to 32 bits.
            instruction
                .set_memory_displacement64(u64::from((addresses.data as u32).wrapping_mul(2).wrapping_neg()));
        }
        Shape::Stack => {
            instruction.set_memory_base(Register::ESP);
            instruction.set_memory_displ_size(1);
            instruction.set_memory_displacement64(0x40);
        }
        Shape::Absolute => {
            instruction.set_memory_base(Register::None);
            instruction.set_memory_displ_size(4);
            instruction.set_memory_displacement64(addresses.data);
        }
        Shape::Fs => instruction.set_segment_prefix(Register::GS),
        Shape::Narrow => {
            instruction.set_memory_base(Register::BX);
            instruction.set_memory_index(Register::SI);
        }
    }
}

/// The operand of a gather or scatter, whose index is a vector.
fn set_gather(
    instruction: &mut Instruction,
    operand: u32,
    shape: Shape,
    wide: bool,
    index: Register,
) -> Option<()> {
    if shape != Shape::Based {
        return None;
    }
    instruction.set_op_kind(operand, OpKind::Memory);
    instruction.set_memory_base(if wide { Register::RBX } else { Register::EBX });
    instruction.set_memory_index(index);
    Some(())
}
