//! What is proven of where control comes to, in all the code of a file.
//!
//! Whoever moves an instruction that nobody has named must know that it is one, and where it begins. Reading on in a straight line
//! tells neither: tables stand between functions, in old assembly in them. So this goes from what is known to be reached - functions,
//! by their symbols and unwinding entries; the program's entry - along falling through, direct branches, and those tables of a `switch` that can
//! be read whole.
//!
//! ```text
//!   function         cmp   $5,%eax           the table has 6 elements
//!                    ja    default           reached
//!                    lea   table(%rip),%rdx
//!                    movslq (%rdx,%rax,4),%rax
//!                    add   %rdx,%rax
//!                    notrack jmp *%rax       its 6 targets are reached
//! ```
//!
//! A call is taken to come back as long as the function's symbol or unwinding entry says that it goes on behind it. Nothing falls over
//! the end of what such a one claims.

use std::fmt;
use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::Image;
use super::region::{LONGEST, branch_target, ends_flow};

/// Bytes of code of one file; Chromium's is beyond it.
const CODE: u64 = 64 << 20;
/// Instructions before an indirect jump among which its table is looked for.
const BEFORE: usize = 24;
/// Elements of one table.
const ELEMENTS: u64 = 4096;

/// What is proven of the control flow of a file.
#[derive(Debug, Default)]
pub struct ControlFlow {
    code: Vec<Piece>,
    /// The tables that were read: the jump, and the number of its elements.
    tables: Vec<(u64, u64)>,
    /// The indirect jumps that are not resolved, and why.
    unresolved: Vec<(u64, Unresolved)>,
    /// Why nothing is proven, if nothing is.
    problem: Option<String>,
}

/// Why it is not known where an indirect jump leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unresolved {
    /// Its target comes from no table whose place can be told: mostly a call through a pointer at a function's end.
    NoTable,
    /// How many elements the table has cannot be told.
    NoBound,
    /// An element of the table leads to no code, or into the middle of an instruction.
    Strange,
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unresolved::NoTable => "no table is seen that its target comes from",
            Unresolved::NoBound => "how many elements its table has cannot be told",
            Unresolved::Strange => "an element of its table leads to no instruction",
        })
    }
}

/// The code of one executable segment.
#[derive(Debug)]
struct Piece {
    start: u64,
    bytes: Vec<u8>,
    /// For each byte the length of the proven instruction that begins there; 0 where none does.
    lengths: Vec<u8>,
}

impl Piece {
    fn at(&self, vaddr: u64) -> Option<usize> {
        usize::try_from(vaddr.checked_sub(self.start)?).ok().filter(|at| *at < self.bytes.len())
    }

    fn decode(&self, at: usize) -> Option<Instruction> {
        let bytes = &self.bytes[at..self.bytes.len().min(at + LONGEST)];
        let instruction = Decoder::with_ip(64, bytes, self.start + at as u64, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    /// Whether a byte is one of a proven instruction other than its first.
    fn is_inside(&self, at: usize) -> bool {
        (at.saturating_sub(LONGEST - 1)..at).any(|first| first + usize::from(self.lengths[first]) > at)
    }

    /// The proven instruction that ends at `at`, if there is just one.
    fn before(&self, at: usize) -> Option<usize> {
        let mut ending = (at.saturating_sub(LONGEST)..at)
            .filter(|first| self.lengths[*first] > 0 && first + usize::from(self.lengths[*first]) == at);
        ending.next().filter(|_| ending.next().is_none())
    }
}

impl ControlFlow {
    /// The addresses in a range at which an instruction is proven to begin, ascending.
    pub fn instructions(&self, range: Range<u64>) -> Vec<u64> {
        let mut found = Vec::new();
        for piece in &self.code {
            let end = piece.start + piece.bytes.len() as u64;
            let (from, to) = (range.start.max(piece.start), range.end.min(end));
            found.extend((from..to).filter(|vaddr| piece.lengths[(vaddr - piece.start) as usize] > 0));
        }
        found
    }

    /// How many instructions are proven.
    pub fn count(&self) -> usize {
        self.code.iter().map(|piece| piece.lengths.iter().filter(|length| **length > 0).count()).sum()
    }

    /// The tables that were read: of each the address of the jump, and the number of its elements.
    pub fn tables(&self) -> &[(u64, u64)] {
        &self.tables
    }

    /// The indirect jumps of which it is not known where they lead, by address, and why.
    pub fn unresolved(&self) -> &[(u64, Unresolved)] {
        &self.unresolved
    }

    /// Why nothing is proven, if nothing is.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

impl Image {
    /// What is proven of the control flow. It is found out once.
    pub fn control_flow(&self) -> &ControlFlow {
        self.flow.get_or_init(|| {
            if self.headers.machine.bitness() != Some(64) {
                return problem("it is no x86-64 code".to_owned());
            }
            let size: u64 = self.headers.executable_segments().map(|segment| segment.file_size).sum();
            if size > CODE {
                return problem(format!("it has {} MiB of code, more than are looked through", size >> 20));
            }
            let pieces = self.headers.executable_segments().filter_map(|segment| {
                let size = usize::try_from(segment.file_size).ok()?;
                let bytes = self.text(segment.vaddr, size)?;
                Some(Piece { start: segment.vaddr, lengths: vec![0; bytes.len()], bytes })
            });
            let mut walk = Walk::new(self, pieces.collect());
            walk.all();
            walk.flow
        })
    }
}

fn problem(problem: String) -> ControlFlow {
    ControlFlow { problem: Some(problem), ..ControlFlow::default() }
}

/// Where control comes to, as it is being found.
struct Walk<'a> {
    image: &'a Image,
    flow: ControlFlow,
    /// Where something known begins, ascending, and up to where it vouches that code follows.
    stretches: Vec<(u64, u64)>,
    /// Addresses that control comes to and that have not been looked at.
    open: Vec<u64>,
    /// Indirect jumps that have not been looked at.
    indirect: Vec<u64>,
}

impl<'a> Walk<'a> {
    fn new(image: &'a Image, code: Vec<Piece>) -> Walk<'a> {
        let starts = image.starts();
        let all = &starts.starts;
        let stretches = all.iter().enumerate().map(|(number, start)| {
            let next = all.get(number + 1).map_or(u64::MAX, |next| next.vaddr);
            (start.vaddr, start.claimed.min(next))
        });
        let stretches = stretches.collect();
        let proven = all.iter().filter(|start| start.proven && starts.data_at(start.vaddr).is_none());
        // A section's own start is as good as what vouches for it.
        let open = proven.filter(|start| start.claimed > start.vaddr).map(|start| start.vaddr).collect();
        let flow = ControlFlow { code, ..ControlFlow::default() };
        Walk { image, flow, stretches, open, indirect: Vec::new() }
    }

    fn all(&mut self) {
        loop {
            while let Some(vaddr) = self.open.pop() {
                self.follow(vaddr);
            }
            let mut jumps = std::mem::take(&mut self.indirect);
            if jumps.is_empty() {
                break;
            }
            jumps.sort_unstable();
            for jump in jumps {
                match self.resolve(jump) {
                    Ok(targets) => {
                        self.flow.tables.push((jump, targets.len() as u64));
                        self.open.extend(targets);
                    }
                    Err(why) => self.flow.unresolved.push((jump, why)),
                }
            }
        }
        self.flow.tables.sort_unstable();
        self.flow.unresolved.sort_unstable();
    }

    /// Where control does not fall through from an address in any case: the end of what vouches for it.
    fn limit(&self, vaddr: u64) -> u64 {
        let next = self.stretches.partition_point(|(start, _)| *start <= vaddr);
        let following = self.stretches.get(next).map_or(u64::MAX, |(start, _)| *start);
        match next.checked_sub(1).map(|last| self.stretches[last].1) {
            Some(claimed) if claimed > vaddr => claimed,
            // Something jumps to where nobody vouches for anything.
            _ => following,
        }
    }

    fn follow(&mut self, vaddr: u64) {
        let Some(number) = self.flow.code.iter().position(|piece| piece.at(vaddr).is_some()) else { return };
        let limit = self.limit(vaddr);
        let piece = &mut self.flow.code[number];
        let Some(mut at) = piece.at(vaddr) else { return };
        let end = piece.at(limit).unwrap_or(piece.bytes.len());
        while at < end && piece.lengths[at] == 0 {
            let Some(instruction) = piece.decode(at).filter(|it| at + it.len() <= end) else { return };
            piece.lengths[at] = instruction.len() as u8;
            self.open.extend(branch_target(&instruction));
            if instruction.is_jmp_near_indirect() && !instruction.is_ip_rel_memory_operand() {
                self.indirect.push(instruction.ip());
            }
            if ends_flow(&instruction) {
                return;
            }
            at += instruction.len();
        }
    }

    /// Where an indirect jump leads.
    fn resolve(&self, jump: u64) -> Result<Vec<u64>, Unresolved> {
        let piece = self.flow.code.iter().find(|piece| piece.at(jump).is_some());
        let (piece, at) =
            piece.and_then(|piece| Some((piece, piece.at(jump)?))).ok_or(Unresolved::NoTable)?;
        let block = Block::new(piece, at);
        let table = block.table().ok_or(Unresolved::NoTable)?;
        let count = block.bound(table.from, table.index).ok_or(Unresolved::NoBound)?;
        if count == 0 || count > ELEMENTS {
            return Err(Unresolved::NoBound);
        }
        let mut targets = Vec::with_capacity(count as usize);
        for element in 0..count {
            let target = self.element(&table, element).ok_or(Unresolved::Strange)?;
            let is_code = self.image.starts().area(target).is_some_and(|area| {
                area.range.contains(&target) && self.image.starts().data_at(target).is_none()
            });
            let fits = piece.at(target).is_some_and(|at| piece.lengths[at] > 0 || !piece.is_inside(at));
            if !is_code || !fits {
                return Err(Unresolved::Strange);
            }
            targets.push(target);
        }
        targets.sort_unstable();
        targets.dedup();
        Ok(targets)
    }

    fn element(&self, table: &Table, element: u64) -> Option<u64> {
        match table.base {
            Some(base) => {
                let place = table.place.checked_add(element * 4)?;
                let bytes = self.image.data(place, 4)?;
                let distance = i32::from_le_bytes(bytes.try_into().ok()?);
                Some(base.wrapping_add_signed(distance.into()))
            }
            None => self.image.pointer_at(table.place.checked_add(element * 8)?),
        }
    }
}

/// A table of targets.
struct Table {
    place: u64,
    /// What its elements, of four bytes, are distances from; none if they are addresses, of eight bytes.
    base: Option<u64>,
    /// The register that says which element.
    index: Register,
    /// The place among the instructions of the block from which on that register says so.
    from: usize,
}

/// The instructions before an indirect jump, without one between that does not fall through, and the jump.
struct Block(Vec<Instruction>);

impl Block {
    fn new(piece: &Piece, jump: usize) -> Block {
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
    fn table(&self) -> Option<Table> {
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
    fn bound(&self, at: usize, register: Register) -> Option<u64> {
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
