//! Decides whether a call returns to the address after it.
//!
//! The bytes after a call are an instruction only if the callee returns there. Some assembly puts
//! data after a call, whose callee uses the return address to find the data and continues after it;
//! and after a call that never returns there may be anything. So each directly called function is
//! followed from its entry, with what is known of its stack:
//!
//! ```text
//!   entry      0(%rsp) is the return address, `Ret`; %rsp is 0 from it
//!              push %rbx                %rsp is -8
//!              mov  %rsp,%rbp           %rbp is -8, too
//!              pop  %rcx   (at 0)       %rcx is Ret, %rsp is 8
//!              add  $8,%rcx             moved: this one does not return to where it was called from
//! ```
//!
//! A function *moves* its return address if it stores another value over it, or jumps to an address
//! computed from it. A function that does not, and that has a return where the stack is as at its
//! entry, or a tail jump to such a function, returns. Functions of other modules are assumed to
//! follow the ABI, except for those known never to return ([`NEVER_RETURN`]).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::super::frames::Stack;
use super::super::region::branch_target;
use super::walk::FlowAnalysis;

/// The most instructions of one function that are followed; beyond that nothing is known of it.
const MAX_INSTRUCTIONS: usize = 1 << 16;
/// The most rounds in which results are propagated between functions.
const ROUNDS: usize = 64;

/// Functions of other modules that never return.
const NEVER_RETURN: &[&str] = &[
    "abort",
    "exit",
    "_exit",
    "_Exit",
    "quick_exit",
    "__stack_chk_fail",
    "__fortify_fail",
    "__chk_fail",
    "__assert_fail",
    "__assert_perror_fail",
    "__assert",
    "longjmp",
    "_longjmp",
    "siglongjmp",
    "__longjmp_chk",
    "pthread_exit",
    "thrd_exit",
    "_Unwind_Resume",
    "__cxa_throw",
    "__cxa_rethrow",
    "__cxa_bad_cast",
    "__cxa_bad_typeid",
    "__cxa_throw_bad_array_new_length",
    "__cxa_pure_virtual",
    "__cxa_call_unexpected",
    "__cxa_call_terminate",
    "_ZSt9terminatev",
    "__libc_start_main",
    "err",
    "errx",
    "verr",
    "verrx",
    "_ZSt17__throw_bad_allocv",
    "_ZSt20__throw_length_errorPKc",
    "_ZSt19__throw_logic_errorPKc",
    "_ZSt20__throw_out_of_rangePKc",
    "_ZSt24__throw_out_of_range_fmtPKcz",
    "_ZSt16__throw_bad_castv",
    "_ZSt25__throw_bad_function_callv",
    "_ZSt20__throw_system_errori",
    "_ZSt21__throw_runtime_errorPKc",
    "_ZSt28__throw_bad_array_new_lengthv",
    "_ZSt24__throw_invalid_argumentPKc",
];

/// What a function does with its return address.
#[derive(Clone, Debug, Default)]
struct Summary {
    /// It moves it, or may do so.
    moves: bool,
    /// It returns by itself, or leaves by a jump to an unknown function.
    returns: bool,
    /// It leaves by a jump through a register or memory.
    leaves: bool,
    /// Whether it returns to its caller is unknown, since its stack is not known there.
    unknown: bool,
    /// The functions to which it jumps at its end (tail calls).
    tails: Vec<u64>,
}

/// What a register holds: an address, as its distance from the return address's place, or one of
/// these.
type Value = i32;
const UNKNOWN: Value = i32::MIN;
const RETURN: Value = i32::MIN + 1;
/// Computed from the return address.
const DERIVED: Value = i32::MIN + 2;

/// The registers' values, by number.
type State = [Value; 16];

/// Which calls return.
#[derive(Debug, Default)]
pub(super) struct Returns {
    comes_back: HashMap<u64, bool>,
    /// The functions that may or may not return, but do not move their return address.
    unknown: HashSet<u64>,
    /// Whether those are assumed to return.
    pub(super) is_lenient: bool,
    /// Whether any function moves its return address: then an indirect call may call it.
    moved: bool,
}

impl Returns {
    /// Whether a direct call to an address returns.
    pub(super) fn call_returns(&self, target: u64) -> bool {
        self.comes_back.get(&target).copied().unwrap_or(false) || self.is_lenient && self.is_unknown(target)
    }

    /// Whether it is unknown if a function returns.
    pub(super) fn is_unknown(&self, target: u64) -> bool {
        self.unknown.contains(&target)
    }

    /// Whether an indirect call returns.
    pub(super) fn indirect_call_returns(&self) -> bool {
        !self.moved
    }

    /// Analyzes all functions that are or may be called.
    pub(super) fn of(walk: &FlowAnalysis<'_>, functions: impl Iterator<Item = u64>) -> Returns {
        let mut summaries: HashMap<u64, Summary> = HashMap::new();
        let mut open: Vec<u64> = functions.collect();
        let mut factory = InstructionInfoFactory::new();
        while let Some(function) = open.pop() {
            if let Entry::Vacant(place) = summaries.entry(function) {
                let summary = place.insert(Follow::new(walk, &mut factory, function).run());
                open.extend(&summary.tails);
            }
        }
        // A function that jumps to one that moves its return address moves its own.
        for _ in 0..ROUNDS {
            let moving = |summary: &Summary| {
                let tail = |tail: &u64| summaries.get(tail).is_some_and(|tail| tail.moves);
                !summary.moves && summary.tails.iter().any(tail)
            };
            let more: Vec<u64> = summaries
                .iter()
                .filter(|(_, summary)| moving(summary))
                .map(|(function, _)| *function)
                .collect();
            if more.is_empty() {
                break;
            }
            more.iter().filter_map(|function| summaries.get_mut(function).map(|it| it.moves = true)).count();
        }
        let moved = summaries.values().any(|summary| summary.moves);
        let mut comes_back: HashMap<u64, bool> = summaries
            .iter()
            .map(|(&function, summary)| {
                (function, !summary.moves && (summary.returns || summary.leaves && !moved))
            })
            .collect();
        for _ in 0..ROUNDS {
            let more: Vec<u64> = summaries
                .iter()
                .filter(|(function, summary)| {
                    let tail = |tail: &u64| comes_back.get(tail) == Some(&true);
                    !summary.moves
                        && comes_back.get(function) == Some(&false)
                        && summary.tails.iter().any(tail)
                })
                .map(|(function, _)| *function)
                .collect();
            if more.is_empty() {
                break;
            }
            comes_back.extend(more.into_iter().map(|function| (function, true)));
        }
        let unknown: HashSet<u64> = summaries
            .iter()
            .filter(|(_, summary)| {
                let tail = |tail: &u64| summaries.get(tail).is_some_and(|tail| tail.unknown);
                !summary.moves && (summary.unknown || summary.tails.iter().any(tail))
            })
            .map(|(function, _)| *function)
            .collect();
        Returns { comes_back, unknown, is_lenient: false, moved }
    }
}

/// Whether a function of another module never returns.
pub(super) fn never_returns(name: &str) -> bool {
    NEVER_RETURN.contains(&name)
}

/// Follows the code of one function.
struct Follow<'a, 'b> {
    walk: &'a FlowAnalysis<'b>,
    factory: &'a mut InstructionInfoFactory,
    function: u64,
    /// What is known at the targets of jumps.
    states: HashMap<u64, State>,
    open: Vec<u64>,
    summary: Summary,
    /// Whether an address computed from the return address has been stored in memory: then a jump
    /// to an unknown target may go there.
    spilled: bool,
}

/// What comes after an instruction.
enum Next {
    /// The next instruction.
    On,
    /// Nothing of this path.
    End,
}

const RSP: usize = 4;
const RBP: usize = 5;

impl<'a, 'b> Follow<'a, 'b> {
    fn new(
        walk: &'a FlowAnalysis<'b>,
        factory: &'a mut InstructionInfoFactory,
        function: u64,
    ) -> Follow<'a, 'b> {
        let mut entry = [UNKNOWN; 16];
        entry[RSP] = 0;
        let states = HashMap::from([(function, entry)]);
        Follow {
            walk,
            factory,
            function,
            states,
            open: vec![function],
            summary: Summary::default(),
            spilled: false,
        }
    }

    fn run(mut self) -> Summary {
        let mut left = MAX_INSTRUCTIONS;
        let mut unresolved = false;
        while let Some(start) = self.open.pop() {
            let Some(mut state) = self.states.get(&start).copied() else { continue };
            let mut at = start;
            while let Some(instruction) = self.walk.decode(at) {
                if left == 0 {
                    return Summary { unknown: true, ..Summary::default() };
                }
                left -= 1;
                let next = self.step(&instruction, &mut state, &mut unresolved);
                at = instruction.next_ip();
                if matches!(next, Next::End) || self.summary.moves {
                    break;
                }
                if at != self.function && self.walk.is_function(at) {
                    // A call there never returns, so it does not fall through to the next function.
                    if !is_call(&instruction) {
                        self.jump(at, &state);
                    }
                    break;
                }
                // A jump target is continued once for all paths that reach it.
                if self.walk.is_jumped_to(at) {
                    self.arrive(at, &state);
                    break;
                }
            }
            if self.summary.moves {
                return self.summary;
            }
        }
        self.summary.moves |= self.spilled && (unresolved || self.summary.leaves);
        // If part of it is not seen, its unwinding entry counts as evidence that it returns.
        self.summary.unknown |= unresolved;
        self.summary.returns |= unresolved && self.walk.image().frames().stack_at(self.function).is_some();
        self.summary
    }

    /// Notes that control reaches an address with this state.
    fn arrive(&mut self, at: u64, state: &State) {
        match self.states.get_mut(&at) {
            None => {
                self.states.insert(at, *state);
                self.open.push(at);
            }
            Some(known) => {
                let mut changed = false;
                for (known, new) in known.iter_mut().zip(state) {
                    if *known != *new && *known != UNKNOWN {
                        *known = UNKNOWN;
                        changed = true;
                    }
                }
                if changed {
                    self.open.push(at);
                }
            }
        }
    }

    /// Follows a jump, taken or not, within the function or to another one.
    fn jump(&mut self, target: u64, state: &State) {
        let is_other = target != self.function && self.walk.is_function(target) && state[RSP] == 0;
        match is_other {
            true => self.summary.tails.push(target),
            false => self.arrive(target, state),
        }
    }

    fn step(&mut self, it: &Instruction, state: &mut State, unresolved: &mut bool) -> Next {
        let before = *state;
        self.touch_memory(it, &before);
        match it.flow_control() {
            FlowControl::Return => {
                let at = match before[RSP] {
                    UNKNOWN => match self.walk.image().frames().stack_at(it.ip()) {
                        Some(Stack::AtEntry) => 0,
                        _ => UNKNOWN,
                    },
                    at => at,
                };
                match at {
                    0 => self.summary.returns = true,
                    // A jump to an address that was pushed.
                    _ if before[RSP] != UNKNOWN && before[RSP] < 0 => self.summary.leaves = true,
                    // Another stack, or something above the return address: the target is unknown.
                    _ => self.summary.unknown = true,
                }
                return Next::End;
            }
            FlowControl::UnconditionalBranch => {
                branch_target(it).into_iter().for_each(|target| self.jump(target, &before));
                return Next::End;
            }
            FlowControl::ConditionalBranch => {
                branch_target(it).into_iter().for_each(|target| self.jump(target, &before));
                return Next::On;
            }
            FlowControl::IndirectBranch => {
                self.indirect(it, &before, unresolved);
                return Next::End;
            }
            _ if is_call(it) => {
                // The call overwrites the return address.
                self.summary.moves |= before[RSP] == 8;
                if branch_target(it) == Some(it.next_ip()) {
                    push(state);
                    return Next::On;
                }
                for register in [0, 1, 2, 6, 7, 8, 9, 10, 11] {
                    // A callee that gets the return address's place may store to it.
                    self.summary.moves |= matches!(register, 1 | 2 | 6..=9) && state[register] == 0;
                    state[register] = UNKNOWN;
                }
                let never = match branch_target(it) {
                    Some(target) => self.walk.never_returns(target),
                    None => self.walk.slot_of(it).is_some_and(|(name, _)| never_returns(name)),
                };
                return if never { Next::End } else { Next::On };
            }
            FlowControl::Exception => return Next::End,
            FlowControl::Call => {
                // A system call.
                for register in [0, 1, 11] {
                    state[register] = UNKNOWN;
                }
                return Next::On;
            }
            _ if it.mnemonic() == Mnemonic::Hlt || it.mnemonic() == Mnemonic::Int3 => return Next::End,
            _ => {}
        }
        self.compute(it, &before, state);
        Next::On
    }

    fn indirect(&mut self, it: &Instruction, before: &State, unresolved: &mut bool) {
        let through = it.op0_register();
        if it.op0_kind() == OpKind::Register && matches!(before[number(through)], RETURN | DERIVED) {
            // `pop %rcx; jmp *%rcx` returns.
            self.summary.returns |= before[number(through)] == RETURN;
            self.summary.moves |= before[number(through)] == DERIVED;
            return;
        }
        if let Some((name, own)) = self.walk.slot_of(it) {
            match own {
                Some(own) => self.summary.tails.push(own),
                None => self.summary.returns |= !never_returns(name),
            }
            return;
        }
        let walk = self.walk;
        if let Some(targets) = walk.targets_of(it.ip()) {
            targets.iter().copied().for_each(|target| self.jump(target, before));
            return;
        }
        // The target may have been read from the bytes after the call.
        self.summary.moves |= before[RSP] == 8;
        match before[RSP] {
            0 => self.summary.leaves = true,
            _ => *unresolved = true,
        }
    }

    /// Notes what a memory operand does to the return address.
    fn touch_memory(&mut self, it: &Instruction, state: &State) {
        for operand in 0..it.op_count() {
            if it.op_kind(operand) != OpKind::Memory
                || it.mnemonic() == Mnemonic::Lea
                || it.mnemonic() == Mnemonic::Nop
            {
                continue;
            }
            if it.memory_index() != Register::None || !is_place(it, state) {
                continue;
            }
            let info = self.factory.info(it);
            let writes = info.used_memory().iter().any(|used| {
                used.base() == it.memory_base()
                    && !matches!(
                        used.access(),
                        OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess | OpAccess::None
                    )
            });
            let stores_same = it.mnemonic() == Mnemonic::Mov
                && it.op1_kind() == OpKind::Register
                && it.op1_register().is_gpr64()
                && state[number(it.op1_register())] == RETURN;
            // `lock orl $0,(%rsp)`: a barrier.
            let changes_nothing =
                matches!(it.mnemonic(), Mnemonic::Or | Mnemonic::Add | Mnemonic::Sub | Mnemonic::Xor)
                    && it.try_immediate(1).is_ok_and(|by| by == 0);
            self.summary.moves |=
                writes && !stores_same && !changes_nothing && it.mnemonic() != Mnemonic::Pop;
        }
    }

    /// Notes what an instruction other than a jump does to the registers.
    fn compute(&mut self, it: &Instruction, before: &State, state: &mut State) {
        let (to, from) = (it.op0_register(), it.op1_register());
        let wide = it.op0_kind() == OpKind::Register && to.is_gpr64();
        match it.mnemonic() {
            Mnemonic::Push => {
                let value = match it.op0_kind() {
                    OpKind::Register if to.is_gpr64() => before[number(to)],
                    _ => UNKNOWN,
                };
                // At 8 the push writes to the return address's place; pushing the return address
                // itself restores it.
                self.summary.moves |= before[RSP] == 8 && value != RETURN;
                self.spilled |= value == DERIVED;
                push(state);
                return;
            }
            Mnemonic::Pop => {
                let popped = if before[RSP] == 0 { RETURN } else { UNKNOWN };
                state[RSP] = moved(before[RSP], 8);
                if wide {
                    state[number(to)] = popped;
                }
                self.spilled |= popped == RETURN && !wide;
                return;
            }
            Mnemonic::Leave => {
                state[RSP] = moved(before[RBP], 8);
                state[RBP] = UNKNOWN;
                return;
            }
            Mnemonic::Mov if wide => {
                let value = match it.op1_kind() {
                    OpKind::Register if from.is_gpr64() => before[number(from)],
                    OpKind::Memory if it.memory_index() == Register::None && is_place(it, before) => RETURN,
                    _ => UNKNOWN,
                };
                state[number(to)] = value;
                return;
            }
            Mnemonic::Mov if it.op1_kind() == OpKind::Register && from.is_gpr64() => {
                self.spilled |= before[number(from)] == DERIVED;
                return;
            }
            Mnemonic::Add | Mnemonic::Sub if wide => {
                let by = it.try_immediate(1).ok().and_then(|by| i32::try_from(by.cast_signed()).ok());
                let is_place = !matches!(before[number(to)], UNKNOWN | RETURN | DERIVED);
                if let Some(by) = by.filter(|_| is_place) {
                    let by = if it.mnemonic() == Mnemonic::Add { by } else { by.wrapping_neg() };
                    state[number(to)] = moved(before[number(to)], by);
                    return;
                }
            }
            Mnemonic::Lea if wide && it.memory_index() == Register::None && it.memory_base().is_gpr64() => {
                let base = before[number(it.memory_base())];
                let by = i32::try_from(it.memory_displacement64().cast_signed());
                state[number(to)] = match base {
                    RETURN | DERIVED => DERIVED,
                    base => by.map_or(UNKNOWN, |by| moved(base, by)),
                };
                return;
            }
            Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Nop | Mnemonic::Endbr64 => return,
            _ => {}
        }
        let used = self.factory.info(it).used_registers();
        let general = || used.iter().filter(|used| used.register().full_register().is_gpr64());
        let reads = |access| !matches!(access, OpAccess::Write | OpAccess::None | OpAccess::NoMemAccess);
        let derives = general()
            .any(|used| reads(used.access()) && matches!(before[number(used.register())], RETURN | DERIVED))
            // The return address is read from its place and used in a computation by one
            // instruction.
            || it.memory_index() == Register::None
                && (0..it.op_count()).any(|operand| it.op_kind(operand) == OpKind::Memory)
                && it.mnemonic() != Mnemonic::Lea
                && is_place(it, before);
        for used in general() {
            let reads_only = matches!(
                used.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess | OpAccess::None
            );
            if !reads_only {
                state[number(used.register())] = if derives { DERIVED } else { UNKNOWN };
            }
        }
    }
}

/// Whether an instruction's memory operand overlaps the return address's place.
fn is_place(it: &Instruction, state: &State) -> bool {
    let base = it.memory_base();
    if !base.is_gpr64() || matches!(it.memory_segment(), Register::FS | Register::GS) {
        return false;
    }
    let value = state[number(base)];
    if matches!(value, UNKNOWN | RETURN | DERIVED) {
        return false;
    }
    // For a pop, the address after it.
    let first = i64::from(value).wrapping_add(it.memory_displacement64().cast_signed());
    first < 8 && first.saturating_add((it.memory_size().size() as i64).max(1)) > 0
}

fn is_call(it: &Instruction) -> bool {
    it.is_call_near() || it.is_call_near_indirect()
}

fn push(state: &mut State) {
    state[RSP] = moved(state[RSP], -8);
}

fn moved(value: Value, by: i32) -> Value {
    match value {
        UNKNOWN | RETURN | DERIVED => UNKNOWN,
        value => value.checked_add(by).filter(|it| it.abs() < 1 << 30).unwrap_or(UNKNOWN),
    }
}

fn number(register: Register) -> usize {
    register.full_register().number() & 15
}
