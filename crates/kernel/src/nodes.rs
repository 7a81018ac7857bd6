//! The instructions that a handler can reach, and how they are cut into parts.
//!
//! ```text
//!     bytecode   a b c d e | f g h i ...     nodes in ascending order, cut into parts
//!     part 0     a..e                        one function of the program each
//! ```
//!
//! Code within a part jumps forward directly. Every other place that execution continues at is an
//! *entry*: a step stores its offset, and the next step goes there. So the verifier sees no loop,
//! and no path that is longer than a part.

use std::collections::{BTreeMap, BTreeSet};

use vm::{ControlFlow, Effects, Group, Instruction, Op, Register, Word};

use crate::handler::Handler;
use crate::record;

/// About how many instructions of the kernel's a part may have: jumps reach 32767.
const PART: usize = 6000;

/// About how many a program may have: the verifier follows a million.
const PROGRAM: usize = 700_000;

/// An instruction that can be reached, or a byte that begins none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    /// The instruction, if there is one.
    pub(crate) instruction: Option<Instruction>,
    /// The slot of the top before it, if that is always the same.
    pub(crate) top: Option<u16>,
    /// The part that it is in.
    pub(crate) part: usize,
    /// Whether steps can begin here.
    pub(crate) entry: bool,
    /// Whether execution comes here in any other way than from the node before it.
    pub(crate) joined: bool,
}

/// All that can be reached.
#[derive(Debug)]
pub(crate) struct Nodes {
    /// By their offsets in the bytecode.
    pub(crate) list: BTreeMap<usize, Node>,
    /// The number of parts.
    pub(crate) parts: usize,
    /// Whether they are more than the verifier follows.
    pub(crate) too_long: bool,
    /// Whether each element of the stack is only read after it was written, but for the few
    /// elements above the first.
    pub(crate) reads_written: bool,
    /// Whether a run could reach `insmax`.
    pub(crate) counts: bool,
    /// Whether no run leaves a record.
    pub(crate) is_quiet: bool,
    /// Whether the address of the probed instruction is pushed.
    pub(crate) reads_address: bool,
    /// Whether a run may exit to a core dump.
    pub(crate) dumps: bool,
}

impl Nodes {
    /// What a handler can reach.
    pub(crate) fn of(handler: &Handler<'_>) -> Nodes {
        let mut list = reach(handler);
        let (parts, size) = cut(&mut list);
        let entries = entries(&list, handler);
        let joined = joined(&list, handler);
        for (offset, node) in &mut list {
            node.entry = entries.contains(offset);
            node.joined = node.entry || joined.contains(offset);
        }
        // A top in the lower half of the slots, or more pops than pushes: it went round.
        let low = |node: &Node| {
            let depth =
                node.top.filter(|&top| top == 0 || top > 512).map(|top| (1024 - i64::from(top)) % 1024);
            let pops = node.instruction.and_then(|it| moves(&it, handler.word));
            depth.is_some_and(|depth| pops.unwrap_or(0) <= depth)
        };
        let names = |node: &Node| {
            node.instruction.is_some_and(|it| {
                it.effects().intersects(Effects::NAMES_SLOTS.and(Effects::USES_STACK_TRACE))
            })
        };
        let reads_written = list.values().all(|node| low(node) && !names(node));
        let counts = most_instructions(&list, handler) > u64::from(handler.insmax.min(vm::INSTRUCTION_LIMIT));
        let all = || list.values().filter_map(|node| node.instruction);
        let telling =
            Effects::LOGS.and(Effects::CUTS_LOG).and(Effects::USES_STACK_TRACE).and(Effects::CALLS_FACILITY);
        let tells = handler.autostacktrace || all().any(|it| it.effects().intersects(telling));
        let is_quiet = !tells && (handler.logmax == 0 || handler.is_script);
        let reads_address = all().any(|it| matches!(it.register(), Some(Register::Rip | Register::Eip)));
        let dumps = all().any(|it| it.op == Op::ExitTo && it.operand == u64::from(record::CORE_DUMP));
        let too_long = size > PROGRAM;
        Nodes { parts, too_long, reads_written, counts, is_quiet, reads_address, dumps, list }
    }

    /// The first offset of each part.
    pub(crate) fn starts(&self) -> Vec<usize> {
        let mut starts = vec![usize::MAX; self.parts];
        for (&offset, node) in &self.list {
            starts[node.part] = starts[node.part].min(offset);
        }
        starts
    }
}

/// Finds the nodes and what is known of the top at each.
fn reach(handler: &Handler<'_>) -> BTreeMap<usize, Node> {
    let mut list: BTreeMap<usize, Node> = BTreeMap::new();
    let mut work = vec![(handler.entry, Some(0))];
    while let Some((offset, top)) = work.pop() {
        let known = list.get(&offset).map(|node| node.top);
        let top = match known {
            None => top,
            Some(old) if old == top || old.is_none() => continue,
            Some(_) => None,
        };
        let instruction = Instruction::at(handler.code, offset, handler.word);
        list.insert(offset, Node { instruction, top, part: 0, entry: false, joined: true });
        let Some(instruction) = instruction else { continue };
        let after = top
            .zip(moves(&instruction, handler.word))
            .map(|(top, by)| (i64::from(top) + by).rem_euclid(vm::STACK_WORDS as i64) as u16);
        let row = instruction.row();
        if row.transfer.falls_through() {
            let unknown = row.transfer == ControlFlow::Call;
            work.push((instruction.next, if unknown { None } else { after }));
        }
        if let Some(target) = instruction.target(handler.code) {
            let unknown = row.transfer == ControlFlow::Handler;
            work.push((target, if unknown { None } else { after }));
        }
    }
    list
}

/// How many elements an instruction moves the top up, if that does not depend on the stack.
fn moves(instruction: &Instruction, word: Word) -> Option<i64> {
    let row = instruction.row();
    let operand = instruction.operand as i64;
    let wide = if word == Word::W4 { 2 } else { 1 };
    if let (Some(pops), Some(pushes)) = (row.pops, row.pushes) {
        return (instruction.op != Op::RestoreTsp).then(|| i64::from(pops) - i64::from(pushes));
    }
    match instruction.op {
        Op::LogImm | Op::LogB | Op::LogW | Op::LogD | Op::Ros => Some(operand),
        Op::DupImm => Some(-operand),
        Op::PushR | Op::PushU => {
            let register = Register::from_index(instruction.operand as u16)?;
            Some(register.pops() as i64 - register.pushes(word) as i64)
        }
        Op::PushMem64 => Some(1 - wide),
        Op::PopMem64 => Some(1 + wide),
        Op::PushH8 | Op::PushH16 | Op::PushH32 => Some(2 - operand),
        Op::PushH64 => Some(2 - operand * wide),
        Op::PopH8 | Op::PopH16 | Op::PopH32 => Some(2 + operand),
        Op::PopH64 => Some(2 + operand * wide),
        _ => None,
    }
}

/// Assigns the nodes to parts. Returns how many there are, and about how long they become.
fn cut(list: &mut BTreeMap<usize, Node>) -> (usize, usize) {
    let (mut part, mut size, mut all) = (0, 0, 0);
    for node in list.values_mut() {
        if size > PART {
            (part, size) = (part + 1, 0);
        }
        node.part = part;
        let weight = node.instruction.map_or(10, |it| weight(&it));
        (size, all) = (size + weight, all + weight);
    }
    (part + 1, all)
}

/// About how many instructions of the kernel's an instruction becomes.
fn weight(instruction: &Instruction) -> usize {
    match instruction.op {
        Op::LogImm if instruction.operand <= INLINE_LOG => 40 + 8 * instruction.operand as usize,
        Op::DupImm if instruction.operand <= INLINE_DUP => 15 + 6 * instruction.operand as usize,
        Op::Idiv | Op::Call => 60,
        Op::Push | Op::Nop | Op::Ros => 8,
        Op::TextF => 90,
        op => match op.row().group {
            Group::Map => 110,
            Group::Frame => 60,
            _ => 30,
        },
    }
}

/// The most elements that `log n` logs without a routine.
pub(crate) const INLINE_LOG: u64 = 16;
/// The most copies that `dup n` makes without a routine.
pub(crate) const INLINE_DUP: u64 = 8;

/// Whether an instruction may be done by a routine, and go on at a step of its own.
fn may_leave(instruction: &Instruction) -> bool {
    match instruction.op {
        Op::DupImm => instruction.operand > INLINE_DUP,
        Op::LogImm
        | Op::Log
        | Op::LogStr
        | Op::LogMrf
        | Op::LogLv
        | Op::LogGv
        | Op::Dup
        | Op::PopLp
        | Op::Rx
        | Op::LogSt
        | Op::PopStp
        | Op::Malloc
        | Op::Free
        | Op::PushH8
        | Op::PushH16
        | Op::PushH32
        | Op::PushH64
        | Op::PopH8
        | Op::PopH16
        | Op::PopH32
        | Op::PopH64
        | Op::PopMem8
        | Op::PopMem16
        | Op::PopMem32
        | Op::PopMem64
        | Op::StrF
        | Op::CompareF
        | Op::FindF
        | Op::Call => true,
        _ => false,
    }
}

/// Where steps can begin.
fn entries(list: &BTreeMap<usize, Node>, handler: &Handler<'_>) -> BTreeSet<usize> {
    let mut entries = BTreeSet::from([handler.entry]);
    for (&offset, node) in list {
        let Some(instruction) = node.instruction else { continue };
        if instruction.row().group == Group::Map {
            // It may begin again.
            entries.insert(offset);
        }
        let direct = |target: usize| is_direct(list, offset, target);
        if instruction.row().transfer.falls_through()
            && (may_leave(&instruction) || !direct(instruction.next))
        {
            entries.insert(instruction.next);
        }
        let handler_of = instruction.row().transfer == ControlFlow::Handler;
        if let Some(target) = instruction.target(handler.code)
            && (handler_of || !direct(target))
        {
            entries.insert(target);
        }
    }
    entries
}

/// Where execution comes in any other way than from the node before.
fn joined(list: &BTreeMap<usize, Node>, handler: &Handler<'_>) -> BTreeSet<usize> {
    let mut joined = BTreeSet::new();
    let mut before: Option<(usize, Node)> = None;
    for (&offset, &node) in list {
        // The node before that does not lead here is none of the ways.
        let leads = |(_, it): (usize, Node)| {
            it.part == node.part
                && it.instruction.is_some_and(|it| it.next == offset && it.row().transfer.falls_through())
        };
        if !before.is_some_and(leads) {
            joined.insert(offset);
        }
        if let Some(instruction) = node.instruction {
            joined.extend(instruction.target(handler.code));
            let next = list.range(offset + 1..).next().map(|(&offset, _)| offset);
            if instruction.row().transfer.falls_through() && next != Some(instruction.next) {
                joined.insert(instruction.next);
            }
        }
        before = Some((offset, node));
    }
    joined
}

/// Whether code at a node can jump to another.
pub(crate) fn is_direct(list: &BTreeMap<usize, Node>, from: usize, to: usize) -> bool {
    to > from && list.get(&from).map(|it| it.part) == list.get(&to).map(|it| it.part)
}

/// A bound of the instructions that a run executes, from its jumps, calls and exceptions.
fn most_instructions(list: &BTreeMap<usize, Node>, handler: &Handler<'_>) -> u64 {
    let any = |which: &dyn Fn(ControlFlow) -> bool| {
        list.values().any(|node| node.instruction.is_some_and(|it| which(it.row().transfer)))
    };
    let mut pieces = 1;
    if any(&|it| matches!(it, ControlFlow::Jump | ControlFlow::Branch)) {
        pieces += u64::from(handler.jmpmax.min(vm::JUMP_LIMIT));
    }
    if any(&|it| it == ControlFlow::Call) {
        pieces += 2 * u64::from(vm::CALL_LIMIT);
    }
    if any(&|it| it == ControlFlow::Handler) {
        pieces += u64::from(vm::HANDLER_LIMIT);
    }
    pieces * list.len() as u64
}
