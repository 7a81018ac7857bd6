//! Recognizes `switch` tables: from the instructions before an indirect jump, the table of its
//! targets and the number of elements.

use iced_x86::{Code, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};

use super::super::region::ends_flow;
use super::effects::Effects;
use super::piece::Piece;

/// How many instructions before an indirect jump are searched for its table.
const BEFORE: usize = 24;

/// A table of targets.
pub(super) struct Table {
    pub(super) place: u64,
    /// The address that its elements, of four bytes, are relative to. `None`: the elements are
    /// addresses, of eight bytes.
    pub(super) base: Option<u64>,
    /// The register with the element's index.
    pub(super) index: Register,
    /// The position in the block of the instruction before which that register holds the index.
    pub(super) from: usize,
}

/// The instructions before an indirect jump, each of which falls through to the next, and the jump.
pub(super) struct Block(Vec<Step>);

/// One instruction of a block.
struct Step {
    instruction: Instruction,
    effects: Effects,
    /// Whether a known jump leads to it.
    is_jumped_to: bool,
}

impl Block {
    pub(super) fn new(piece: &Piece, jump: usize) -> Block {
        let mut factory = InstructionInfoFactory::new();
        let mut step = |at, instruction| Step {
            instruction,
            effects: Effects::of(&mut factory, &instruction),
            is_jumped_to: piece.is_jumped_to(at),
        };
        let mut found: Vec<Step> = piece.decode(jump).map(|it| step(jump, it)).into_iter().collect();
        let mut at = jump;
        while found.len() <= BEFORE
            && let Some(before) = piece.before(at)
            && let Some(instruction) = piece.decode(before)
            && !ends_flow(&instruction)
        {
            found.push(step(before, instruction));
            at = before;
        }
        found.reverse();
        Block(found)
    }

    fn at(&self, at: usize) -> &Instruction {
        &self.0[at].instruction
    }

    fn writes(&self, at: usize, register: Register) -> bool {
        self.0[at].effects.writes(register)
    }

    /// The last instruction before `at` that writes a register.
    fn definition(&self, at: usize, register: Register) -> Option<usize> {
        (0..at).rev().find(|&before| self.writes(before, register))
    }

    /// The table of the jump's targets.
    pub(super) fn table(&self) -> Option<Table> {
        let last = self.0.len().checked_sub(1)?;
        let jump = self.at(last);
        match jump.op0_kind() {
            OpKind::Memory => self.addresses(last),
            OpKind::Register => {
                let at = self.definition(last, jump.op0_register())?;
                match self.at(at).code() {
                    Code::Mov_r64_rm64 => self.addresses(at),
                    Code::Add_r64_rm64 | Code::Add_rm64_r64 => self.distances(at),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// A table of addresses, one of which the instruction at `at` reads.
    fn addresses(&self, at: usize) -> Option<Table> {
        let instruction = self.at(at);
        let (index, place) = self.element(at, 8)?;
        let takes = instruction.op0_kind() == OpKind::Memory || instruction.op1_kind() == OpKind::Memory;
        takes.then_some(Table { place, base: None, index, from: at })
    }

    /// A table of distances: the instruction at `at` adds one of them and the table's base.
    fn distances(&self, at: usize) -> Option<Table> {
        let sum = self.at(at);
        if sum.op0_kind() != OpKind::Register || sum.op1_kind() != OpKind::Register {
            return None;
        }
        let pair = [sum.op0_register(), sum.op1_register()];
        let (loaded, other) =
            [(pair[0], pair[1]), (pair[1], pair[0])].into_iter().find_map(|(one, other)| {
                let loaded = self.definition(at, one)?;
                let load = self.at(loaded);
                (load.code() == Code::Movsxd_r64_rm32 && load.op1_kind() == OpKind::Memory)
                    .then_some((loaded, other))
            })?;
        let (index, place) = self.element(loaded, 4)?;
        let base = self.constant(at, other)?;
        Some(Table { place, base: Some(base), index, from: loaded })
    }

    /// The index register and the address of the first element, for an instruction that reads an
    /// element of this many bytes from memory.
    fn element(&self, at: usize, bytes: u32) -> Option<(Register, u64)> {
        let instruction = self.at(at);
        let index = instruction.memory_index();
        if !index.is_gpr64() || instruction.memory_index_scale() != bytes || in_thread(instruction) {
            return None;
        }
        let base = match instruction.memory_base() {
            Register::None => 0,
            base => self.constant(at, base)?,
        };
        Some((index, base.wrapping_add(instruction.memory_displacement64())))
    }

    /// The constant that a register holds before an instruction.
    ///
    /// Compilers load the address of a table before a loop, so this looks past the targets of
    /// jumps: it assumes that code which jumps in from elsewhere has the same constant.
    fn constant(&self, at: usize, register: Register) -> Option<u64> {
        let definition = self.at(self.definition(at, register)?);
        match definition.code() {
            Code::Lea_r64_m if definition.is_ip_rel_memory_operand() => {
                Some(definition.ip_rel_memory_address())
            }
            Code::Mov_r32_imm32 | Code::Mov_r64_imm64 => Some(definition.immediate(1)),
            _ => None,
        }
    }

    /// How many values, from 0 on, an eight-byte register can have before the instruction at `at`:
    /// from a comparison followed by a branch that leaves if the value is greater.
    ///
    /// From `at` it goes back along the value's copies while the value stays the same: no
    /// instruction between may change what holds it or, for memory, a register of its address.
    /// Nothing may jump past the comparison.
    pub(super) fn bound(&self, at: usize, register: Register) -> Option<u64> {
        if self.0[at..].iter().any(|step| step.is_jumped_to) {
            return None;
        }
        let mut value = Value { place: Operand::Register(register), bytes: 8 };
        for before in (0..at).rev() {
            let Step { instruction, effects, is_jumped_to } = &self.0[before];
            if instruction.mnemonic() == Mnemonic::Cmp
                && let Some(compared) = self.compared(before, value)
            {
                // If only the lower half of a register was compared and the upper half is not 0,
                // the element is at least 16 GiB away: in no table of the file.
                if compared < value.bytes.min(4) && !self.is_extended(before, value, compared) {
                    return None;
                }
                let limit = instruction.try_immediate(1).ok()?;
                return match self.at(before + 1).code() {
                    Code::Ja_rel8_64 | Code::Ja_rel32_64 => limit.checked_add(1),
                    Code::Jae_rel8_64 | Code::Jae_rel32_64 => Some(limit),
                    _ => None,
                };
            }
            if *is_jumped_to {
                return None;
            }
            match value.place {
                Operand::Register(register) if effects.writes(register) => {
                    value = value.before(instruction)?;
                }
                Operand::Memory { base, index, .. } => {
                    let moves = |register| register != Register::None && effects.writes(register);
                    if effects.stores || moves(base) || moves(index) {
                        return None;
                    }
                }
                Operand::Register(_) => {}
            }
        }
        None
    }

    /// How many of a value's lower bytes the comparison at `at` compares, either where the value is
    /// or in a register into which it was copied before. `None` if it compares something else.
    fn compared(&self, at: usize, value: Value) -> Option<u32> {
        let (operand, bytes) = Operand::read(self.at(at), 0)?;
        if operand == value.place {
            return Some(bytes);
        }
        let (Operand::Register(copy), Operand::Register(original)) = (operand, value.place) else {
            return None;
        };
        let copied = self.definition(at, copy)?;
        let (source, kept) = moved(self.at(copied))?;
        let stays =
            (copied..at).all(|between| !self.writes(between, original)) && self.is_straight(copied, at);
        (source == value.place && stays).then_some(bytes.min(kept))
    }

    /// Whether a value in a register before the instruction at `at` has only zeros in its bytes at
    /// and above `from`.
    fn is_extended(&self, at: usize, value: Value, from: u32) -> bool {
        let Operand::Register(register) = value.place else { return false };
        self.definition(at, register).is_some_and(|definition| {
            let kept = moved(self.at(definition)).map(|(_, kept)| kept);
            kept.is_some_and(|kept| kept <= from) && self.is_straight(definition, at)
        })
    }

    /// Whether control reaches a later instruction from an earlier one only through those between.
    fn is_straight(&self, from: usize, to: usize) -> bool {
        !self.0[from + 1..=to].iter().any(|step| step.is_jumped_to)
    }
}

/// Whether an instruction's memory operand is relative to fs or gs, whose bases are unknown.
fn in_thread(instruction: &Instruction) -> bool {
    matches!(instruction.memory_segment(), Register::FS | Register::GS)
}

/// The source of a move and how many of its lower bytes it moves; the register's other bytes become
/// zero.
fn moved(instruction: &Instruction) -> Option<(Operand, u32)> {
    let keeps = match instruction.mnemonic() {
        Mnemonic::Mov | Mnemonic::Movzx => instruction.op0_kind() == OpKind::Register,
        _ => false,
    };
    let to = instruction.op0_register();
    // A destination of one or two bytes leaves the other bytes unchanged.
    if !keeps || !(to.is_gpr32() || to.is_gpr64()) {
        return None;
    }
    Operand::read(instruction, 1)
}

/// The value that a table's index depends on.
#[derive(Clone, Copy)]
struct Value {
    place: Operand,
    /// How many of its lower bytes matter.
    bytes: u32,
}

impl Value {
    /// The same value before an instruction that writes its register.
    fn before(self, instruction: &Instruction) -> Option<Value> {
        let Operand::Register(register) = self.place else { return None };
        let (place, kept) = moved(instruction)?;
        // In an exchange it need not be the first operand.
        (instruction.op0_register().full_register() == register)
            .then_some(Value { place, bytes: self.bytes.min(kept) })
    }
}

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operand {
    /// A general register, whole.
    Register(Register),
    Memory {
        base: Register,
        index: Register,
        scale: u32,
        displacement: u64,
    },
}

impl Operand {
    /// An operand that an instruction reads, and how many bytes of it.
    fn read(instruction: &Instruction, operand: u32) -> Option<(Operand, u32)> {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand);
                // ah, bh, ch and dh are not the lowest bytes.
                let is_second = matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
                (register.is_gpr() && !is_second)
                    .then_some((Operand::Register(register.full_register()), register.size() as u32))
            }
            OpKind::Memory if !in_thread(instruction) && !instruction.is_ip_rel_memory_operand() => {
                let memory = Operand::Memory {
                    base: instruction.memory_base(),
                    index: instruction.memory_index(),
                    scale: instruction.memory_index_scale(),
                    displacement: instruction.memory_displacement64(),
                };
                Some((memory, instruction.memory_size().size() as u32))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::piece::Piece;
    use super::Block;

    /// `lea table(%rip),%rdx`, `movslq (%rdx,%rax,4),%rax`, `add %rdx,%rax`, `jmp *%rax`.
    const SWITCH: &[&[u8]] =
        &[&[0x48, 0x8d, 0x15, 0, 1, 0, 0], &[0x48, 0x63, 0x04, 0x82], &[0x48, 0x01, 0xd0], &[0xff, 0xe0]];
    /// `ja` and `jae`, to a target far after it.
    const JA: &[u8] = &[0x77, 0x60];
    const JAE: &[u8] = &[0x73, 0x60];
    /// `cmpl $5,%eax` and `cmpl $5,8(%rsi,%rdi,2)`.
    const CMP: &[u8] = &[0x83, 0xf8, 0x05];
    const CMP_MEMORY: &[u8] = &[0x83, 0x7c, 0x7e, 0x08, 0x05];
    /// `mov 8(%rsi,%rdi,2),%eax`.
    const LOAD: &[u8] = &[0x8b, 0x44, 0x7e, 0x08];
    const NOP: &[u8] = &[0x90];

    /// The bound of a `switch` on `%rax` after some instructions, one of which is a jump's target.
    fn bound_with(before: &[&[u8]], jumped_to: Option<usize>) -> Option<u64> {
        let all: Vec<&[u8]> = before.iter().chain(SWITCH).copied().collect();
        let mut piece = Piece::new(0x1000, all.concat());
        let mut at = 0;
        let mut jump = 0;
        for (number, bytes) in all.iter().enumerate() {
            assert_eq!(piece.decode(at).map(|it| it.len()), Some(bytes.len()), "{bytes:x?}");
            piece.lengths[at] = bytes.len() as u8;
            if jumped_to == Some(number) {
                piece.jump_to(at);
            }
            jump = at;
            at += bytes.len();
        }
        let block = Block::new(&piece, jump);
        let table = block.table().expect("it is in the block");
        let lea: usize = before.iter().map(|bytes| bytes.len()).sum();
        let address = 0x1000 + lea as u64 + 7 + 0x100;
        assert_eq!((table.place, table.base), (address, Some(address)));
        block.bound(table.from, table.index)
    }

    fn bound(before: &[&[u8]]) -> Option<u64> {
        bound_with(before, None)
    }

    #[test]
    fn comparisons_tell_how_many_elements_there_are() {
        assert_eq!(bound(&[CMP, JA]), Some(6));
        assert_eq!(bound(&[CMP, JAE]), Some(5));
        assert_eq!(bound(&[CMP, &[0x74, 0x60]]), None, "je");
        assert_eq!(bound(&[CMP, NOP, JA]), None);
        // cmp $5,%edi; ja; mov %edi,%eax
        assert_eq!(bound(&[&[0x83, 0xff, 0x05], JA, &[0x89, 0xf8]]), Some(6));
        // mov %eax,%ecx; cmp $5,%ecx; ja
        assert_eq!(bound(&[&[0x89, 0xc1], &[0x83, 0xf9, 0x05], JA]), Some(6));
        assert_eq!(bound(&[CMP_MEMORY, JA, LOAD]), Some(6));
        assert_eq!(bound(&[CMP_MEMORY, JA, NOP, LOAD]), Some(6));
    }

    #[test]
    fn what_holds_the_compared_value_must_stay() {
        let changes: &[&[u8]] = &[
            &[0xff, 0xc0],                   // inc %eax
            &[0xb0, 0x09],                   // mov $9,%al
            &[0x0f, 0x44, 0xc1],             // cmove %ecx,%eax
            &[0x91],                         // xchg %eax,%ecx
            &[0x48, 0x91],                   // xchg %rax,%rcx
            &[0x0f, 0xc1, 0xc1],             // xadd %eax,%ecx
            &[0xac],                         // lodsb
            &[0x9f],                         // lahf
            &[0x0f, 0x01, 0xd0],             // xgetbv
            &[0xd7],                         // xlat
            &[0xc4, 0xe2, 0xfb, 0xf6, 0xc9], // mulx %rcx,%rax,%rcx
            &[0xff, 0xd1],                   // call *%rcx
            &[0x0f, 0x05],                   // syscall
        ];
        for change in changes {
            assert_eq!(bound(&[CMP, JA, change]), None, "{change:x?}");
        }
        // A copy is compared, but of the previous value: mov %eax,%ecx; inc %eax; cmp $5,%ecx; ja
        assert_eq!(bound(&[&[0x89, 0xc1], &[0xff, 0xc0], &[0x83, 0xf9, 0x05], JA]), None);
    }

    #[test]
    fn memory_that_was_compared_must_stay_and_be_the_same() {
        let changes: &[&[u8]] = &[
            &[0x48, 0x8d, 0x76, 0x04], // lea 4(%rsi),%rsi: the base
            &[0x40, 0xb6, 0x01],       // mov $1,%sil
            &[0x48, 0xff, 0xc7],       // inc %rdi: the index
            &[0x87, 0xcf],             // xchg %ecx,%edi
            &[0xac],                   // lodsb
            &[0xf3, 0x0f, 0xb8, 0xf9], // popcnt %ecx,%edi
            &[0x89, 0x0a],             // mov %ecx,(%rdx)
            &[0x0f, 0xc7, 0x0a],       // cmpxchg8b (%rdx)
            &[0x0f, 0x29, 0x02],       // movaps %xmm0,(%rdx)
            &[0x66, 0x0f, 0xf7, 0xc1], // maskmovdqu %xmm1,%xmm0
            &[0xff, 0xd1],             // call *%rcx
        ];
        for change in changes {
            assert_eq!(bound(&[CMP_MEMORY, JA, change, LOAD]), None, "{change:x?}");
        }
        // Another displacement, another index, memory relative to fs, fewer bytes than are used.
        assert_eq!(bound(&[CMP_MEMORY, JA, &[0x8b, 0x44, 0x7e, 0x10]]), None);
        assert_eq!(bound(&[CMP_MEMORY, JA, &[0x8b, 0x44, 0x5e, 0x08]]), None);
        assert_eq!(bound(&[CMP_MEMORY, JA, &[0x64, 0x8b, 0x44, 0x7e, 0x08]]), None);
        assert_eq!(bound(&[&[0x80, 0x7c, 0x7e, 0x08, 0x05], JA, LOAD]), None, "cmpb");
    }

    #[test]
    fn a_part_that_was_compared_must_be_all_that_is_used() {
        let cmpb: &[u8] = &[0x3c, 0x05];
        assert_eq!(bound(&[cmpb, JA]), None);
        // movzbl %al,%eax after or before the comparison.
        assert_eq!(bound(&[cmpb, JA, &[0x0f, 0xb6, 0xc0]]), Some(6));
        assert_eq!(bound(&[&[0x0f, 0xb6, 0xc0], cmpb, JA]), Some(6));
        // movzwl %ax,%eax; movzbw %al,%ax, which leaves the rest unchanged.
        assert_eq!(bound(&[cmpb, JA, &[0x0f, 0xb7, 0xc0]]), None);
        assert_eq!(bound(&[cmpb, JA, &[0x66, 0x0f, 0xb6, 0xc0]]), None);
        // cmp $5,%ah, with its value in %eax, or in %al, being used.
        assert_eq!(bound(&[&[0x80, 0xfc, 0x05], JA]), None);
        assert_eq!(bound(&[&[0x80, 0xfc, 0x05], JA, &[0x0f, 0xb6, 0xc0]]), None);
    }

    #[test]
    fn nothing_may_jump_past_the_comparison() {
        let code: &[&[u8]] = &[CMP, JA, NOP];
        assert_eq!(bound_with(code, Some(0)), Some(6), "before it all is well");
        for number in 1..code.len() + SWITCH.len() {
            assert_eq!(bound_with(code, Some(number)), None, "{number}");
        }
        // mov %eax,%ecx; cmp $5,%ecx; ja: code that jumps to the comparison has another %ecx.
        assert_eq!(bound_with(&[&[0x89, 0xc1], &[0x83, 0xf9, 0x05], JA], Some(1)), None);
    }
}
