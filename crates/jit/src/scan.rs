//! Analyses a handler's bytecode before compilation: follows every path with its stack depth.
//!
//! Compiled code knows statically where each stack element is, and forgets popped ones. That is
//! correct only if no instruction can see a popped element. Handlers with such instructions
//! ([`Facts::interpret_only`]) are interpreted from the start.

use crate::environment::Handler;
use layout::RESUME_ELEMENTS;
use std::collections::HashSet;
use vm::{ControlFlow, Effects, Instruction, Op, Register, Word};

/// The instruction at an offset, if a whole one is there.
pub(crate) fn instruction_at(code: &[u8], offset: usize) -> Option<Instruction> {
    Instruction::at(code, offset, Word::W8)
}

/// The machine number of the general register that a name denotes, and whether the name means its
/// low half.
pub(crate) fn general(register: Register) -> Option<(u8, bool)> {
    Some(match register {
        Register::Rax => (0, false),
        Register::Rcx => (1, false),
        Register::Rdx => (2, false),
        Register::Rbx => (3, false),
        Register::Rsp => (4, false),
        Register::Rbp => (5, false),
        Register::Rsi => (6, false),
        Register::Rdi => (7, false),
        Register::R8 => (8, false),
        Register::R9 => (9, false),
        Register::R10 => (10, false),
        Register::R11 => (11, false),
        Register::R12 => (12, false),
        Register::R13 => (13, false),
        Register::R14 => (14, false),
        Register::R15 => (15, false),
        Register::Eax => (0, true),
        Register::Ecx => (1, true),
        Register::Edx => (2, true),
        Register::Ebx => (3, true),
        Register::Esp => (4, true),
        Register::Ebp => (5, true),
        Register::Esi => (6, true),
        Register::Edi => (7, true),
        _ => return None,
    })
}

/// The results of the scan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Whether to interpret it from the start.
    pub(crate) interpret_only: bool,
    /// Whether a path may reach the same place twice.
    pub(crate) cyclic: bool,
    /// The general registers that it pushes, by number.
    pub(crate) named: u16,
    /// The general registers that it pops.
    pub(crate) popped: u16,
    /// Whether any instruction reads the flags.
    pub(crate) reads_flags: bool,
    /// Whether it can make a record: it logs, or can end other than by `abort`.
    pub(crate) records: bool,
    /// Whether it may call the agent for maps, or have strings in a context.
    pub(crate) calls: bool,
    /// Whether it can end by `remove`.
    pub(crate) removes: bool,
    /// The least stack depth: 0, or less if it pops what it has not pushed.
    pub(crate) least: i32,
    /// The greatest stack depth, if not opaque.
    most: i32,
    /// Jump targets.
    pub(crate) targets: HashSet<usize>,
    /// The offset of a call of a debug facility.
    pub(crate) facility: Option<usize>,
    /// The number of instructions followed: an upper bound of what a non-opaque run executes
    /// between two taken jumps.
    pub(crate) steps: u32,
}

/// The most instructions to follow, over all paths.
pub(crate) const STEPS: u32 = 4096;

/// A place on a path.
struct PathState {
    offset: usize,
    depth: i32,
    /// The return offsets of active calls.
    back: Vec<usize>,
    /// The top element, if the previous instruction pushed it as a number.
    pushed: Option<u64>,
}

/// Scans a handler.
pub(crate) fn scan(handler: &Handler<'_>) -> Facts {
    let mut facts = Facts::default();
    let mut seen: HashSet<(usize, i32, Vec<usize>)> = HashSet::new();
    let mut paths = vec![PathState { offset: handler.entry, depth: 0, back: Vec::new(), pushed: None }];
    while let Some(mut place) = paths.pop() {
        while let Some(instruction) = instruction_at(handler.code, place.offset) {
            facts.steps += 1;
            // Too many paths: nothing is compiled.
            if facts.steps > STEPS {
                facts.interpret_only = true;
                facts.reads_flags = true;
                facts.reach(handler);
                return facts;
            }
            if !facts.step(handler, &mut place, instruction, &mut paths, &mut seen) {
                break;
            }
        }
    }
    // The state passed to the interpreter must have room for all elements.
    if facts.most - facts.least > RESUME_ELEMENTS as i32 {
        facts.interpret_only = true;
    }
    facts
}

impl Facts {
    /// The most instructions that a non-opaque run executes. Between two taken jumps it never
    /// reaches the same instruction within the same calls twice, and without a backward jump it
    /// never does at all.
    pub(crate) fn most_instructions(&self, jmpmax: u32) -> u64 {
        let pieces = if self.cyclic { u64::from(jmpmax) + 1 } else { 1 };
        pieces * u64::from(self.steps)
    }

    /// Visits each reachable instruction once, on any path, to find how the handler may end.
    fn reach(&mut self, handler: &Handler<'_>) {
        let mut seen = vec![false; handler.code.len()];
        let mut places = vec![handler.entry];
        while let Some(offset) = places.pop() {
            let Some(instruction) = instruction_at(handler.code, offset) else { continue };
            if std::mem::replace(&mut seen[offset], true) {
                continue;
            }
            self.removes |= instruction.effects().contains(Effects::REMOVES);
            // Other numbers raise exceptions; exception handlers are followed from where they are
            // set.
            if instruction.op == Op::ExitTo && (1..=3).contains(&instruction.operand) {
                self.facility = Some(self.facility.map_or(offset, |first| first.min(offset)));
            }
            if instruction.row().transfer.falls_through() {
                places.push(instruction.next);
            }
            places.extend(instruction.target(handler.code));
        }
    }

    /// Follows one instruction. Returns whether the path continues at `place`.
    fn step(
        &mut self,
        handler: &Handler<'_>,
        place: &mut PathState,
        instruction: Instruction,
        paths: &mut Vec<PathState>,
        seen: &mut HashSet<(usize, i32, Vec<usize>)>,
    ) -> bool {
        let start = place.offset;
        let pushed = place.pushed.take();
        place.offset = instruction.next;
        let Some(change) = self.change(&instruction, pushed) else {
            // From here on the number of elements, and which of them are visible, is unknown.
            self.interpret_only = true;
            // Follow the rest all the same, for its other facts.
            return self.go_on_unknown(handler, place, instruction, paths, seen, start);
        };
        let lowest = place.depth - change.0;
        place.depth = lowest + change.1;
        self.least = self.least.min(lowest);
        self.most = self.most.max(place.depth);
        self.go_on_unknown(handler, place, instruction, paths, seen, start)
    }

    /// Follows control flow from an instruction whose stack effect is handled.
    fn go_on_unknown(
        &mut self,
        handler: &Handler<'_>,
        place: &mut PathState,
        instruction: Instruction,
        paths: &mut Vec<PathState>,
        seen: &mut HashSet<(usize, i32, Vec<usize>)>,
        start: usize,
    ) -> bool {
        let transfer = instruction.row().transfer;
        match transfer {
            ControlFlow::None => {
                place.pushed = (instruction.op == Op::Push).then_some(instruction.operand);
            }
            ControlFlow::Jump | ControlFlow::Branch | ControlFlow::Handler => {
                if let Some(target) = instruction.target(handler.code) {
                    self.cyclic |= target <= start;
                    self.targets.insert(target);
                    let depth = if self.interpret_only { 0 } else { place.depth };
                    if seen.insert((target, depth, place.back.clone())) {
                        paths.push(PathState {
                            offset: target,
                            depth,
                            back: place.back.clone(),
                            pushed: None,
                        });
                    }
                }
                return transfer.falls_through();
            }
            ControlFlow::Call => match instruction.target(handler.code) {
                Some(target) if place.back.len() < vm::CALL_DEPTH => {
                    place.back.push(instruction.next);
                    place.offset = target;
                }
                _ => return false,
            },
            ControlFlow::Return => match place.back.pop() {
                Some(back) => place.offset = back,
                None => return false,
            },
            ControlFlow::End => {
                match instruction.op {
                    Op::ExitTo if (1..=3).contains(&instruction.operand) => {
                        self.facility.get_or_insert(start);
                    }
                    Op::ExitTo | Op::Abort => {}
                    _ => self.records = true,
                }
                self.removes |= instruction.effects().contains(Effects::REMOVES);
                return false;
            }
        }
        // A path that falls through to a jump target is followed from there once.
        !self.targets.contains(&place.offset)
            || seen.insert((
                place.offset,
                if self.interpret_only { 0 } else { place.depth },
                place.back.clone(),
            ))
    }

    /// How many elements an instruction pops, then pushes; also collects other facts. `None` if
    /// unknown or if it sees popped elements.
    fn change(&mut self, instruction: &Instruction, pushed: Option<u64>) -> Option<(i32, i32)> {
        let count = instruction.operand as i32;
        // The manual allows larger numbers, but no program uses them.
        let number = |value: Option<u64>| value.filter(|&value| value < 4096).map(|value| value as i32);
        self.records |= instruction.effects().contains(Effects::LOGS);
        self.calls |= instruction.effects().contains(Effects::USES_MAPS) || instruction.op == Op::StrF;
        Some(match instruction.op {
            Op::LogImm | Op::LogB | Op::LogW | Op::LogD | Op::Ros => (count.min(4096), 0),
            Op::Log => (number(pushed)? + 1, 0),
            Op::DupImm => (1, 1 + count),
            Op::Dup => {
                // The value is on top, the count below it.
                return None;
            }
            Op::PushR | Op::PushU => {
                let register = instruction.register()?;
                if matches!(register, Register::Rflags | Register::Eflags) {
                    self.reads_flags = true;
                }
                if let Some((number, _)) = general(register) {
                    self.named |= 1 << number;
                }
                (register.pops() as i32, register.pushes(Word::W8) as i32)
            }
            Op::PopR | Op::PopU => {
                if let Some((number, _)) = instruction.register().and_then(general) {
                    self.popped |= 1 << number;
                }
                (1, 0)
            }
            Op::PushMem64 => (1, 1),
            Op::PopMem64 => (2, 0),
            Op::PushH8 | Op::PushH16 | Op::PushH32 | Op::PushH64 => (2, count),
            Op::PopH8 | Op::PopH16 | Op::PopH32 | Op::PopH64 => (2 + count, 0),
            op => {
                let row = op.row();
                // Instructions that name stack slots, and those that call a handler at any depth.
                if row.effects.contains(Effects::NAMES_SLOTS) || row.transfer == ControlFlow::Handler {
                    return None;
                }
                debug_assert!(row.transfer == ControlFlow::None || row.pops == Some(0));
                (row.pops?.into(), row.pushes?.into())
            }
        })
    }
}
