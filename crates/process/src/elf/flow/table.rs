//! The instructions before an indirect jump: the table that its target comes from, and how many elements that has.

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::super::region::ends_flow;
use super::piece::Piece;

/// Instructions before an indirect jump among which its table is looked for.
const BEFORE: usize = 24;

/// A table of targets.
pub(super) struct Table {
    pub(super) place: u64,
    /// What its elements, of four bytes, are distances from; none if they are addresses, of eight bytes.
    pub(super) base: Option<u64>,
    /// The register that says which element.
    pub(super) index: Register,
    /// The place among the instructions of the block from which on that register says so.
    pub(super) from: usize,
}

/// The instructions before an indirect jump, without one between that does not fall through, and the jump.
pub(super) struct Block(Vec<Instruction>);

impl Block {
    pub(super) fn new(piece: &Piece, jump: usize) -> Block {
        let mut found: Vec<Instruction> = piece.decode(jump).into_iter().collect();
        let mut at = jump;
        while found.len() <= BEFORE
            && let Some(before) = piece.before(at)
            && let Some(instruction) = piece.decode(before)
            && !ends_flow(&instruction)
        {
            found.push(instruction);
            at = before;
        }
        found.reverse();
        Block(found)
    }

    /// The last instruction before another that writes a register.
    fn definition(&self, at: usize, register: Register) -> Option<usize> {
        (0..at).rev().find(|&before| writes(&self.0[before], register))
    }

    /// The table that the jump's target comes from.
    pub(super) fn table(&self) -> Option<Table> {
        let last = self.0.len().checked_sub(1)?;
        let jump = &self.0[last];
        match jump.op0_kind() {
            OpKind::Memory => self.addresses(last),
            OpKind::Register => {
                let at = self.definition(last, jump.op0_register())?;
                match self.0[at].mnemonic() {
                    Mnemonic::Mov if self.0[at].op1_kind() == OpKind::Memory => self.addresses(at),
                    Mnemonic::Add if self.0[at].op1_kind() == OpKind::Register => self.distances(at),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// A table of addresses, from which the instruction at `at` takes one.
    fn addresses(&self, at: usize) -> Option<Table> {
        let instruction = &self.0[at];
        let index = instruction.memory_index();
        if index == Register::None || instruction.memory_index_scale() != 8 {
            return None;
        }
        let base = match instruction.memory_base() {
            Register::None => 0,
            base => self.constant(at, base)?,
        };
        let place = base.wrapping_add(instruction.memory_displacement64());
        Some(Table { place, base: None, index, from: at })
    }

    /// A table of distances: the addition at `at` is of one of them and what it is a distance from.
    fn distances(&self, at: usize) -> Option<Table> {
        let sum = &self.0[at];
        let pair = [sum.op0_register(), sum.op1_register()];
        let (loaded, other) =
            [(pair[0], pair[1]), (pair[1], pair[0])].into_iter().find_map(|(one, other)| {
                let loaded = self.definition(at, one)?;
                let is_load = self.0[loaded].mnemonic() == Mnemonic::Movsxd
                    && self.0[loaded].op1_kind() == OpKind::Memory
                    && self.0[loaded].memory_index_scale() == 4;
                is_load.then_some((loaded, other))
            })?;
        let load = &self.0[loaded];
        let index = load.memory_index();
        let base = self.constant(at, other)?;
        let place = match load.memory_base() {
            Register::None => 0,
            register => self.constant(loaded, register)?,
        };
        let place = place.wrapping_add(load.memory_displacement64());
        (index != Register::None).then_some(Table { place, base: Some(base), index, from: loaded })
    }

    /// The constant that a register holds before an instruction.
    fn constant(&self, at: usize, register: Register) -> Option<u64> {
        let definition = &self.0[self.definition(at, register)?];
        match definition.code() {
            Code::Lea_r64_m if definition.is_ip_rel_memory_operand() => {
                Some(definition.ip_rel_memory_address())
            }
            Code::Mov_r32_imm32 | Code::Mov_r64_imm64 => Some(definition.immediate(1)),
            _ => None,
        }
    }

    /// Whether a comparison, at `at`, is of a register into which a value was copied before.
    fn is_copy(&self, at: usize, comparison: &Instruction, value: Operand) -> bool {
        let Operand::Register(register) = value else { return false };
        if comparison.op0_kind() != OpKind::Register {
            return false;
        }
        self.definition(at, comparison.op0_register()).is_some_and(|copied| {
            Operand::source(&self.0[copied]) == Some(value)
                && (copied..at).all(|between| !writes(&self.0[between], register))
        })
    }

    /// How many values a register can have before the instruction at `at`, from 0 on: what it was compared with, before
    /// a branch that leaves if it is greater.
    pub(super) fn bound(&self, at: usize, register: Register) -> Option<u64> {
        let mut value = Operand::Register(register.full_register());
        for before in (0..at).rev() {
            let instruction = &self.0[before];
            let leaves = self.0.get(before + 1).map(Instruction::code);
            if instruction.mnemonic() == Mnemonic::Cmp
                && (value.is_op0(instruction) || self.is_copy(before, instruction, value))
            {
                let limit = instruction.try_immediate(1).ok()?;
                return match leaves? {
                    Code::Ja_rel8_64 | Code::Ja_rel32_64 => limit.checked_add(1),
                    Code::Jae_rel8_64 | Code::Jae_rel32_64 => Some(limit),
                    _ => None,
                };
            }
            if let Operand::Register(register) = value
                && writes(instruction, register)
            {
                value = Operand::source(instruction)?;
            } else if matches!(value, Operand::Memory(..)) && may_store(instruction) {
                return None;
            }
        }
        None
    }
}

/// What holds a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operand {
    Register(Register),
    /// Base, index, scale, displacement.
    Memory(Register, Register, u32, u64),
}

impl Operand {
    fn memory(instruction: &Instruction) -> Operand {
        Operand::Memory(
            instruction.memory_base(),
            instruction.memory_index(),
            instruction.memory_index_scale(),
            instruction.memory_displacement64(),
        )
    }

    /// What a move takes its value from, if it keeps it.
    fn source(instruction: &Instruction) -> Option<Operand> {
        let keeps = matches!(
            instruction.code(),
            Code::Mov_r32_rm32 | Code::Mov_r64_rm64 | Code::Mov_rm32_r32 | Code::Mov_rm64_r64
        ) || matches!(instruction.mnemonic(), Mnemonic::Movzx);
        match instruction.op1_kind() {
            OpKind::Register if keeps => Some(Operand::Register(instruction.op1_register().full_register())),
            OpKind::Memory if keeps && !instruction.is_ip_rel_memory_operand() => {
                Some(Operand::memory(instruction))
            }
            _ => None,
        }
    }

    fn is_op0(self, instruction: &Instruction) -> bool {
        match (self, instruction.op0_kind()) {
            (Operand::Register(register), OpKind::Register) => {
                instruction.op0_register().full_register() == register
            }
            (Operand::Memory(..), OpKind::Memory) => Operand::memory(instruction) == self,
            _ => false,
        }
    }
}

/// Whether an instruction writes a general register; a call may write any.
fn writes(instruction: &Instruction, register: Register) -> bool {
    let wanted = register.full_register();
    let only_reads = matches!(
        instruction.mnemonic(),
        Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push | Mnemonic::Bt | Mnemonic::Nop
    );
    let direct = (0..instruction.op_count()).any(|operand| {
        instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand).full_register() == wanted
            && (operand == 0 || matches!(instruction.mnemonic(), Mnemonic::Xchg | Mnemonic::Xadd))
    });
    // Those with registers that are not named: calls, multiplications, string instructions and the like.
    let hidden = matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
        || matches!(
            instruction.mnemonic(),
            Mnemonic::Mul
                | Mnemonic::Imul
                | Mnemonic::Div
                | Mnemonic::Idiv
                | Mnemonic::Cdq
                | Mnemonic::Cqo
                | Mnemonic::Cdqe
                | Mnemonic::Cwde
                | Mnemonic::Cpuid
                | Mnemonic::Cmpxchg
                | Mnemonic::Rdtsc
                | Mnemonic::Xgetbv
                | Mnemonic::Syscall
        ) && matches!(
            wanted,
            Register::RAX | Register::RDX | Register::RBX | Register::RCX | Register::R11
        )
        || instruction.is_string_instruction()
            && matches!(wanted, Register::RAX | Register::RCX | Register::RSI | Register::RDI);
    !only_reads && (direct || hidden)
}

/// Whether an instruction may write memory.
fn may_store(instruction: &Instruction) -> bool {
    !matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Lea | Mnemonic::Nop)
        && (instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Memory
            || instruction.is_string_instruction()
            || matches!(
                instruction.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall | FlowControl::Interrupt
            )
            || matches!(instruction.mnemonic(), Mnemonic::Push | Mnemonic::Xchg | Mnemonic::Xadd))
}
