//! What one function does with its return address: whether a call of it returns to the address
//! after the call.
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
//! entry, or a tail jump to such a function, returns.
//!
//! In: the code found so far, and the function's address. Out: a [`Summary`].

use std::collections::HashMap;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::super::frames::Stack;
use super::super::region::branch_target;
use super::register_values::{DERIVED, RBP, RETURN, RSP, State, UNKNOWN, is_place, moved, number, push};
use super::returns::never_returns;
use super::walk::FlowAnalysis;

/// The most instructions of one function that are followed; beyond that nothing is known of it.
const MAX_INSTRUCTIONS: usize = 1 << 16;

/// What a function does with its return address.
#[derive(Clone, Debug, Default)]
pub(super) struct Summary {
    /// It moves it, or may do so.
    pub(super) moves: bool,
    /// It returns by itself, or leaves by a jump to an unknown function.
    pub(super) returns: bool,
    /// It leaves by a jump through a register or memory.
    pub(super) leaves: bool,
    /// Whether it returns to its caller is unknown, since its stack is not known there.
    pub(super) unknown: bool,
    /// The functions to which it jumps at its end (tail calls).
    pub(super) tails: Vec<u64>,
}

/// Follows the code of one function.
pub(super) struct Follow<'a, 'b> {
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

impl<'a, 'b> Follow<'a, 'b> {
    pub(super) fn new(
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

    pub(super) fn run(mut self) -> Summary {
        let mut left = MAX_INSTRUCTIONS;
        let mut unresolved = false;
        let mut here = self.walk.piece_decoder(self.function);
        while let Some(start) = self.open.pop() {
            let Some(mut state) = self.states.get(&start).copied() else { continue };
            let mut at = start;
            while let Some(instruction) = self.walk.decode_in(&mut here, at) {
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

fn is_call(it: &Instruction) -> bool {
    it.is_call_near() || it.is_call_near_indirect()
}
