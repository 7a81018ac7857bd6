//! Finds the parts and instructions of a function, and the exits by which control leaves it.
//!
//! A function is more than the bytes of its symbol: compilers move rarely executed code (`f.cold`)
//! elsewhere, and jump there and back. These parts are found first; a jump between them stays in
//! the function.
//!
//! ```text
//!   f        push %rbx                    f.cold    call  log
//!            test %rdi,%rdi                         jmp   f+9        stays
//!            je   f.cold      stays                 ud2
//!            ...
//!            ret              an exit
//!            pop  %rbx
//!            jmp  g           an exit: a tail call
//!            jmp  *%rax       an exit, unless it is a switch
//! ```
//!
//! A jump through a register or memory counts as a tail call, unless it provably stays:
//!
//! 1. it has the `notrack` prefix, with which compilers mark the jumps of a `switch`; or
//! 2. by the unwinding table the stack is not as at the entry: then the return address is not where
//!    a tail call needs it; or
//! 3. its target comes from a table of addresses of this function, or from a table of distances to
//!    the table itself.

use std::ops::Range;

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::Image;
use super::boundary::{NotAnInstruction, check_boundary, is_proven, region};
use super::frames::Stack;
use super::region::{Byte, branch_target};

/// The most parts of one function.
const PARTS: usize = 64;
/// How many instructions before a jump are searched for its target's computation.
const BEFORE: usize = 32;
/// How many entries of a table are checked: a single one in this function shows what the table is.
const ENTRIES: u64 = 4;

/// How many bytes of a part that are not known to be code are checked one by one. After that the
/// rest of the part counts as unknown.
const UNKNOWN: u32 = 1 << 16;

/// How control leaves a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// By a `ret`.
    Return,
    /// By a jump to another function: a tail call.
    Jump,
    /// By a conditional jump to another function. If it is not taken, control stays.
    Branch,
    /// By a jump through a register or memory that does not provably stay: a tail call.
    Indirect,
}

/// A function's parts, instructions and exits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// Its ranges: the function's own first, then its other parts.
    pub parts: Vec<Range<u64>>,
    /// The starts of its instructions, by part and address.
    pub instructions: Vec<u64>,
    /// The instructions by which control leaves it, by part and address.
    pub exits: Vec<(u64, Exit)>,
    /// Bytes that cannot be told from data.
    pub unknown: Vec<Range<u64>>,
}

impl Outline {
    /// Whether one of its parts contains an address.
    pub fn contains(&self, vaddr: u64) -> bool {
        self.parts.iter().any(|part| part.contains(&vaddr))
    }

    /// How many of its bytes cannot be told from data.
    pub fn unknown_bytes(&self) -> u64 {
        self.unknown.iter().map(|range| range.end - range.start).sum()
    }
}

/// Answers [`Image::outline`].
pub(crate) fn outline(image: &Image, vaddr: u64) -> Result<Outline, NotAnInstruction> {
    check_boundary(image, vaddr)?;
    let mut walk = OutlineBuilder { image, outline: Outline::default(), code: Vec::new() };
    let names: Vec<&str> = image.functions_at(vaddr).iter().map(|function| function.name.as_str()).collect();
    walk.add(extent(image, vaddr));
    for part in cold_parts(image, &names) {
        walk.add(part);
    }
    let mut walked = 0;
    while walked < walk.outline.parts.len() {
        let first = walk.code.len();
        walk.walk(walked);
        walked += 1;
        let targets = walk.code[first..].iter().filter(|it| is_jump(it)).filter_map(branch_target);
        let targets: Vec<u64> = targets.filter(|target| !walk.outline.contains(*target)).collect();
        for target in targets {
            if let Some(part) = part_at(image, target, &names) {
                walk.add(part);
            }
        }
    }
    walk.trim();
    Ok(walk.finish())
}

/// The range of the function that starts at an address: by its symbol's size, else its
/// unwinding entry, else up to the next known start.
fn extent(image: &Image, vaddr: u64) -> Range<u64> {
    let sizes = image.functions_at(vaddr).iter().map(|function| function.size);
    let end = match sizes.max().filter(|size| *size > 0) {
        Some(size) => vaddr.saturating_add(size),
        None => match image.frames().range_of(vaddr).filter(|range| range.start == vaddr) {
            Some(range) => range.end,
            None => {
                let starts = image.starts();
                let area = starts.area(vaddr);
                area.and_then(|area| starts.stretch(vaddr, area)).map_or(vaddr + 1, |(_, end)| end)
            }
        },
    };
    let segment = image.headers.executable_segments().find(|s| s.offset_of_address(vaddr).is_some());
    vaddr..segment.map_or(end, |segment| end.min(segment.file_end()))
}

/// The parts that belong to a function by their names.
fn cold_parts(image: &Image, names: &[&str]) -> Vec<Range<u64>> {
    let of = |name: &&str| {
        let cold = format!("{name}.cold");
        let mut parts = image.symbols().named(&cold).filter(|part| part.size > 0);
        // Several source files may each have a `static` function of this name.
        parts.next().filter(|_| parts.next().is_none()).map(|part| part.vaddr..part.vaddr + part.size)
    };
    names.iter().filter_map(of).collect()
}

/// The part, of a function with these names, that contains the target of one of the function's
/// jumps.
fn part_at(image: &Image, target: u64, names: &[&str]) -> Option<Range<u64>> {
    if let Some(function) = image.function_at(target).filter(|function| function.contains(target)) {
        let owner = cold_owner(&function.name)?;
        return names.contains(&owner).then(|| function.vaddr..function.vaddr + function.size);
    }
    // Without symbols: at a function's entry the return address is on top of the stack, at a
    // part's start mostly more.
    let frame = image.frames().range_of(target)?;
    let is_part = image.functions_at(frame.start).is_empty()
        && image.frames().stack_at(frame.start) == Some(Stack::Used)
        && !is_linkage(image, frame);
    is_part.then(|| frame.clone())
}

/// Whether a range is in the procedure linkage table, which has jumps to other modules and no
/// functions.
pub(crate) fn is_linkage(image: &Image, frame: &Range<u64>) -> bool {
    image.section_name(frame.start).is_some_and(|name| name.starts_with(".plt"))
        || image.frames().stack_at(frame.end - 1) == Some(Stack::Computed)
}

/// Whether a symbol is a part of another function and not a function itself.
pub(crate) fn is_part(image: &Image, name: &str, vaddr: u64) -> bool {
    let Some(owner) = cold_owner(name) else { return false };
    let mut owners = image.symbols().named(owner).peekable();
    if owners.peek().is_none() {
        return false;
    }
    // LLVM's `f.cold.1` is called like a function; older gcc's parts of that name are jumped
    // to.
    name.ends_with(".cold")
        || image.frames().stack_at(vaddr).is_some_and(|stack| stack != Stack::AtEntry)
        || owners.any(|owner| outline(image, owner.vaddr).is_ok_and(|outline| outline.contains(vaddr)))
}

/// The function that a part belongs to by its name: `f` for `f.cold` and `f.cold.3`.
fn cold_owner(name: &str) -> Option<&str> {
    let (owner, rest) = name.rsplit_once(".cold")?;
    let number =
        rest.strip_prefix('.').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    (rest.is_empty() || number).then_some(owner)
}

/// The analysis of one function.
struct OutlineBuilder<'a> {
    image: &'a Image,
    outline: Outline,
    /// Its instructions found so far.
    code: Vec<Instruction>,
}

impl OutlineBuilder<'_> {
    fn add(&mut self, part: Range<u64>) {
        let parts = &mut self.outline.parts;
        if parts.len() < PARTS && !part.is_empty() && !parts.contains(&part) {
            parts.push(part);
        }
    }

    /// Decodes the instructions of a part.
    fn walk(&mut self, part: usize) {
        let part = self.outline.parts[part].clone();
        let mut at = part.start;
        let mut left = UNKNOWN;
        while at < part.end {
            let Ok(region) = region(self.image, at) else {
                if left == 0 {
                    self.outline.unknown.push(at..part.end);
                    return;
                }
                left -= 1;
                self.unknown(at);
                at += 1;
                continue;
            };
            while at < part.end && region.range().contains(&at) {
                let next = match (region.byte(at), region.instruction(at)) {
                    (Byte::Start, Some(instruction)) => {
                        self.code.push(instruction);
                        instruction.next_ip()
                    }
                    // A symbol in the middle of an instruction: continue at the next instruction.
                    (Byte::Inside(_, after), _) => after,
                    (_, Some(instruction)) if is_proven(self.image, at) => {
                        self.code.push(instruction);
                        instruction.next_ip()
                    }
                    _ => {
                        self.unknown(at);
                        at + 1
                    }
                };
                // Always forward, even if the address wraps around.
                at = next.max(at + 1);
            }
        }
    }

    /// Notes a byte that cannot be told from data.
    fn unknown(&mut self, vaddr: u64) {
        match self.outline.unknown.last_mut().filter(|last| last.end == vaddr) {
            Some(last) => last.end += 1,
            None => self.outline.unknown.push(vaddr..vaddr + 1),
        }
    }

    /// Removes the padding at the end of a function without a known size.
    fn trim(&mut self) {
        let Some(own) = self.outline.parts.first().cloned() else { return };
        let told = self.image.functions_at(own.start).iter().any(|function| function.size > 0)
            || self.image.frames().range_of(own.start).is_some_and(|range| range.start == own.start);
        if told {
            return;
        }
        let count = self.code.iter().take_while(|it| own.contains(&it.ip())).count();
        let is_filler = |it: &&Instruction| matches!(it.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
        let filler = self.code[..count].iter().rev().take_while(is_filler).count();
        let kept = count - filler;
        let end = self.code[..kept].last().map_or(own.end, Instruction::next_ip);
        self.code.drain(kept..count);
        self.outline.parts[0].end = end;
        self.outline.unknown.retain(|range| !own.contains(&range.start) || range.start < end);
    }

    fn finish(mut self) -> Outline {
        self.outline.instructions = self.code.iter().map(Instruction::ip).collect();
        let exits = (0..self.code.len()).filter_map(|at| Some((self.code[at].ip(), self.exit(at)?)));
        self.outline.exits = exits.collect();
        self.outline
    }

    /// How control leaves the function by an instruction, if it does.
    fn exit(&self, at: usize) -> Option<Exit> {
        let instruction = &self.code[at];
        if instruction.mnemonic() == Mnemonic::Ret {
            return Some(Exit::Return);
        }
        if instruction.is_jmp_near_indirect() {
            return (!self.stays(at)).then_some(Exit::Indirect);
        }
        if !is_jump(instruction) {
            return None;
        }
        let target = branch_target(instruction)?;
        if self.outline.contains(target) {
            return None;
        }
        Some(match instruction.flow_control() {
            FlowControl::UnconditionalBranch => Exit::Jump,
            _ => Exit::Branch,
        })
    }

    /// Whether an indirect jump provably stays in the function.
    fn stays(&self, at: usize) -> bool {
        let instruction = &self.code[at];
        // `notrack` is encoded as the segment prefix of ds.
        instruction.segment_prefix() == Register::DS
            || self.image.frames().stack_at(instruction.ip()).is_some_and(|stack| stack != Stack::AtEntry)
            || match instruction.op0_kind() {
                OpKind::Memory => self.is_own_table(at, instruction),
                OpKind::Register => self.is_computed(at, instruction.op0_register()),
                _ => false,
            }
    }

    /// Whether an instruction's memory operand is an element of a table with addresses of this
    /// function.
    fn is_own_table(&self, at: usize, instruction: &Instruction) -> bool {
        let word = if self.image.headers.is_64 { 8 } else { 4 };
        if instruction.memory_index() == Register::None || instruction.memory_index_scale() != word {
            return false;
        }
        let base = match instruction.memory_base() {
            Register::None => Some(0),
            base => self.constant(at, base),
        };
        let Some(base) = base else { return false };
        let table = base.wrapping_add(instruction.memory_displacement64());
        (0..ENTRIES).any(|entry| {
            let place = table.wrapping_add(entry * u64::from(word));
            self.image.pointer_at(place).is_some_and(|target| self.outline.contains(target))
        })
    }

    /// Whether a register's value before an instruction is the sum of a table's address and a
    /// distance from the table, or an element of a table with addresses of this function.
    fn is_computed(&self, at: usize, register: Register) -> bool {
        let Some(definition) = self.definition(at, register) else { return false };
        let instruction = &self.code[definition];
        let sum = match instruction.mnemonic() {
            Mnemonic::Add if instruction.op1_kind() == OpKind::Register => {
                [instruction.op0_register(), instruction.op1_register()]
            }
            Mnemonic::Lea if instruction.memory_index_scale() == 1 => {
                [instruction.memory_base(), instruction.memory_index()]
            }
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Memory => {
                return self.is_own_table(definition, instruction);
            }
            _ => return false,
        };
        // The table has distances of four bytes.
        let is_distance = |part: &Register| {
            self.definition(definition, *part).is_some_and(|loaded| {
                let loaded = &self.code[loaded];
                let loads = loaded.mnemonic() == Mnemonic::Movsxd
                    || loaded.mnemonic() == Mnemonic::Mov && !self.image.headers.is_64;
                loads
                    && loaded.op1_kind() == OpKind::Memory
                    && loaded.memory_index() != Register::None
                    && loaded.memory_index_scale() == 4
            })
        };
        sum.iter().any(is_distance)
    }

    /// The last instruction before `at`, by address, that writes a register.
    fn definition(&self, at: usize, register: Register) -> Option<usize> {
        let wanted = register.full_register();
        let writes = |it: &Instruction| {
            it.op_count() > 0
                && it.op0_kind() == OpKind::Register
                && it.op0_register().full_register() == wanted
                && !matches!(it.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push | Mnemonic::Bt)
        };
        (at.saturating_sub(BEFORE)..at).rev().find(|&before| writes(&self.code[before]))
    }

    /// The constant that a register holds before an instruction: the address of a table.
    fn constant(&self, at: usize, register: Register) -> Option<u64> {
        let definition = &self.code[self.definition(at, register)?];
        match definition.code() {
            Code::Lea_r64_m if definition.is_ip_rel_memory_operand() => {
                Some(definition.ip_rel_memory_address())
            }
            Code::Mov_r32_imm32 | Code::Mov_r64_imm64 | Code::Mov_rm64_imm32 => Some(definition.immediate(1)),
            _ => None,
        }
    }
}

/// Whether an instruction is a direct jump: no call, and no start of a transaction.
fn is_jump(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch)
}

#[cfg(test)]
mod tests {
    use super::cold_owner;

    #[test]
    fn parts_are_named_after_their_functions() {
        assert_eq!(cold_owner("f.cold"), Some("f"));
        assert_eq!(cold_owner("f.part.0.cold.12"), Some("f.part.0"));
        assert_eq!(cold_owner("f.cold.x"), None);
        assert_eq!(cold_owner("f.part.0"), None);
    }
}
