//! The program that the kernel calls: everything around the run.
//!
//! ```text
//!     if (filtered && !processes[tgid]) return
//!     if (user, name or control group are others) return
//!     cookie, probe = cookie & 0xffffffff, cpu
//!     if (state[probe].over) return
//!     if (state[probe].limited && (turn = ++state[probe].turns) > last) return
//!     if (turn <= ignore) { ignored++; return }
//!     for each context of the processor: if (cmpxchg(context.busy, 0, now) == 0) goto claimed
//!     missed++; return
//! claimed:
//!     runs++; the record's header; the fields
//!     step() || bpf_loop(step)
//!     the record into the processor's ring: logged++ or dropped++
//!     context.busy = 0
//!     after an exit to a core dump: wait until the process was asked to stop
//! ```
//!
//! A program at a uprobe can be preempted, and one that sleeps can wait: then other threads hit
//! probes on the same processor. So a context is claimed with its own word, and a processor has
//! several. The time of a record is taken after the claim, which is not before the time in the
//! word: so the reader, who sees the words, knows from when on records may still come.

use bpf::{Alu, Atomic, Cond, Helper, Insn, Label, Reg, Size};
use vm::Effects;

use crate::by_process;
use crate::compiler::Compiler;
use crate::emit::{CONTEXT, REGISTERS};
use crate::handler::{AttachKind, Condition};
use crate::layout::FRAMES;
use crate::layout::{Field, Map, RECORD, STACK, count, frame, state};
use crate::record;
use crate::thread_check;
use crate::{core_dumps, layout, light, output, registers, scripts};

/// What the frame of the program holds, from its top down.
mod slot {
    /// The callback's argument: the context, then the registers.
    pub(super) const CONTEXT: i16 = -16;
    pub(super) const REGISTERS: i16 = -8;
    /// A key of a map.
    pub(super) const KEY: i16 = -24;
    pub(super) const COOKIE: i16 = -32;
    /// The address of the probe's state, and of its counts on this processor.
    pub(super) const STATE: i16 = -40;
    pub(super) const COUNTS: i16 = -48;
    pub(super) const TURN: i16 = -56;
    /// When the context was claimed.
    pub(super) const CLAIM: i16 = -64;
    /// The processor, for a handler without a context.
    pub(super) const PROCESSOR: i16 = -72;
    /// The thread's name.
    pub(super) const NAME: i16 = -88;
    /// For hits by process.
    pub(super) const BY_PROCESS: i16 = NAME - super::by_process::STACK;
    /// For an exit to a core dump.
    pub(super) const DUMP: super::core_dumps::Frame = super::core_dumps::Frame::below(BY_PROCESS);
}

/// Rounds of `bpf_loop`: the most that the kernel allows.
const ROUNDS: i32 = 1 << 23;

impl Compiler<'_> {
    /// Emits the program.
    pub(crate) fn program(&mut self, step: Label) {
        let out = self.e.asm.label();
        self.e.mov(REGISTERS, Reg::R1);
        self.filter(out);
        self.turn(out);
        if let Some(steps) = light::steps(self) {
            self.e.store(Size::Double, Reg::R10, slot::PROCESSOR, Reg::R9);
            self.count(count::RUNS);
            light::emit(self, &steps, slot::PROCESSOR);
            self.e.asm.bind(out);
            self.e.mov(Reg::R0, 0);
            return self.e.asm.exit();
        }
        self.claim(out);
        self.begin();
        self.run(step);
        self.end();
        self.e.store_imm(Size::Double, CONTEXT, Field::Busy.at(), 0);
        let round = if self.nodes.dumps { core_dumps::wait(self, &slot::DUMP) } else { None };
        self.e.asm.bind(out);
        self.e.mov(Reg::R0, 0);
        self.e.asm.exit();
        if !self.nodes.reads_written {
            self.clear_function();
        }
        if let Some(round) = round {
            core_dumps::round(self, round, &slot::DUMP);
        }
    }

    /// `R2` = the address of the key, which is a register's lower half.
    pub(crate) fn key(&mut self, from: Reg) {
        self.e.store(Size::Word, Reg::R10, slot::KEY, from);
        self.e.mov(Reg::R2, Reg::R10);
        self.e.alu(Alu::Add, Reg::R2, i32::from(slot::KEY));
    }

    /// Lets pass hits that count: of the chosen processes, and where the condition holds.
    fn filter(&mut self, out: Label) {
        if let Some(condition) = self.target.condition {
            self.condition(condition, out);
        }
        if self.target.filtered {
            self.e.call(Helper::GET_CURRENT_PID_TGID);
            self.e.alu(Alu::Rsh, Reg::R0, 32);
            self.key(Reg::R0);
            self.e.asm.load_map(Reg::R1, Map::Processes as u32);
            self.e.call(Helper::MAP_LOOKUP_ELEM);
            self.e.jump_if(Cond::Eq, Reg::R0, 0, out);
        } else if let Some(except) = self.target.except {
            self.e.call(Helper::GET_CURRENT_PID_TGID);
            self.e.alu(Alu::Rsh, Reg::R0, 32);
            self.e.jump_if(Cond::Eq, Reg::R0, except as i32, out);
        }
        thread_check::emit(&mut self.e, &self.target.only, slot::NAME, out);
    }

    /// Leaves unless a condition of the flags holds. `R1` = 0 if it does not, or for an odd code,
    /// if it does.
    fn condition(&mut self, Condition(code): Condition, out: Label) {
        const CARRY: i32 = 1;
        const PARITY: i32 = 1 << 2;
        const ZERO: i32 = 1 << 6;
        const SIGN: i32 = 1 << 7;
        const OVERFLOW: i32 = 1 << 11;
        self.e.load(Size::Double, Reg::R1, REGISTERS, registers::FLAGS);
        self.e.mov(Reg::R2, Reg::R1);
        match code >> 1 {
            0 => self.e.alu(Alu::And, Reg::R1, OVERFLOW),
            1 => self.e.alu(Alu::And, Reg::R1, CARRY),
            2 => self.e.alu(Alu::And, Reg::R1, ZERO),
            3 => self.e.alu(Alu::And, Reg::R1, CARRY | ZERO),
            4 => self.e.alu(Alu::And, Reg::R1, SIGN),
            5 => self.e.alu(Alu::And, Reg::R1, PARITY),
            less => {
                // The sign differs from the overflow, which is four bits above it.
                self.e.alu(Alu::Rsh, Reg::R1, 4);
                self.e.alu(Alu::Xor, Reg::R1, Reg::R2);
                self.e.alu(Alu::And, Reg::R1, SIGN);
                if less == 7 {
                    self.e.alu(Alu::And, Reg::R2, ZERO);
                    self.e.alu(Alu::Or, Reg::R1, Reg::R2);
                }
            }
        }
        let holds = if code & 1 == 0 { Cond::Eq } else { Cond::Ne };
        self.e.jump_if(holds, Reg::R1, 0, out);
    }

    /// Adds one to a count of the probe on this processor.
    pub(crate) fn count(&mut self, which: u32) {
        self.e.load(Size::Double, Reg::R1, Reg::R10, slot::COUNTS);
        self.e.mov(Reg::R2, 1);
        self.e.asm.push(Insn::atomic(Atomic::Add, Size::Double, Reg::R1, which as i16, Reg::R2));
    }

    /// Counts the hit, and leaves if the handler is not due. Then `R9` is the processor.
    fn turn(&mut self, out: Label) {
        if let Some(cookie) = self.target.cookie {
            self.e.asm.load_imm(Reg::R0, cookie);
        } else {
            self.e.mov(Reg::R1, REGISTERS);
            self.e.call(Helper::GET_ATTACH_COOKIE);
        }
        self.e.store(Size::Double, Reg::R10, slot::COOKIE, Reg::R0);
        self.e.asm.push(Insn::mov32(Reg::R8, Reg::R0));
        self.e.jump_if(Cond::Ge, Reg::R8, self.target.size.probes as i32, out);
        self.e.call(Helper::GET_SMP_PROCESSOR_ID);
        self.e.asm.push(Insn::mov32(Reg::R9, Reg::R0));
        self.e.jump_if(Cond::Ge, Reg::R9, self.target.size.processors as i32, out);

        self.e.mov(Reg::R2, Reg::R8);
        self.e.alu(Alu::Mul, Reg::R2, state::SIZE as i32);
        self.e.map_value(Reg::R1, Map::Probes, 0);
        self.e.alu(Alu::Add, Reg::R1, Reg::R2);
        self.e.store(Size::Double, Reg::R10, slot::STATE, Reg::R1);
        self.e.load(Size::Double, Reg::R2, Reg::R1, state::OVER as i16);
        self.e.jump_if(Cond::Ne, Reg::R2, 0, out);
        let counted = self.e.asm.label();
        self.e.store_imm(Size::Double, Reg::R10, slot::TURN, 0);
        self.e.load(Size::Double, Reg::R2, Reg::R1, state::LIMITED as i16);
        self.e.jump_if(Cond::Eq, Reg::R2, 0, counted);
        self.e.mov(Reg::R3, 1);
        let turns = state::TURNS as i16;
        self.e.asm.push(Insn::atomic(Atomic::FetchAdd, Size::Double, Reg::R1, turns, Reg::R3));
        self.e.alu(Alu::Add, Reg::R3, 1);
        self.e.load(Size::Double, Reg::R2, Reg::R1, state::LAST as i16);
        self.e.jump_if(Cond::Gt, Reg::R3, Reg::R2, out);
        self.e.store(Size::Double, Reg::R10, slot::TURN, Reg::R3);
        self.e.asm.bind(counted);

        self.e.mov(Reg::R2, Reg::R9);
        self.e.alu(Alu::Mul, Reg::R2, self.target.size.probes as i32);
        self.e.alu(Alu::Add, Reg::R2, Reg::R8);
        self.e.alu(Alu::Mul, Reg::R2, count::SIZE as i32);
        self.e.map_value(Reg::R1, Map::Counts, 0);
        self.e.alu(Alu::Add, Reg::R1, Reg::R2);
        self.e.store(Size::Double, Reg::R10, slot::COUNTS, Reg::R1);
        if self.target.by_process {
            by_process::emit(self, slot::BY_PROCESS);
        }

        let due = self.e.asm.label();
        self.e.load(Size::Double, Reg::R3, Reg::R10, slot::TURN);
        self.e.jump_if(Cond::Eq, Reg::R3, 0, due);
        self.e.load(Size::Double, Reg::R1, Reg::R10, slot::STATE);
        let not_last = self.e.asm.label();
        self.e.load(Size::Double, Reg::R2, Reg::R1, state::LAST as i16);
        self.e.jump_if(Cond::Ne, Reg::R3, Reg::R2, not_last);
        self.e.store_imm(Size::Double, Reg::R1, state::OVER as i16, state::DISABLED);
        self.e.asm.bind(not_last);
        self.e.load(Size::Double, Reg::R2, Reg::R1, state::IGNORE as i16);
        self.e.jump_if(Cond::Gt, Reg::R3, Reg::R2, due);
        self.count(count::IGNORED);
        self.e.asm.jump(out);
        self.e.asm.bind(due);
    }

    /// Claims a context, or counts a miss and leaves.
    fn claim(&mut self, out: Label) {
        let (claimed, missed) = (self.e.asm.label(), self.e.asm.label());
        if self.nodes.is_quiet {
            // No reader waits for a record of it.
            self.e.store_imm(Size::Double, Reg::R10, slot::CLAIM, -1);
        } else {
            self.e.call(Helper::KTIME_GET_BOOT_NS);
            self.e.store(Size::Double, Reg::R10, slot::CLAIM, Reg::R0);
        }
        for number in 0..self.target.size.contexts {
            self.e.mov(Reg::R1, Reg::R9);
            self.e.alu(Alu::Mul, Reg::R1, self.target.size.contexts as i32);
            self.e.alu(Alu::Add, Reg::R1, number as i32);
            self.key(Reg::R1);
            self.e.asm.load_map(Reg::R1, Map::Contexts as u32);
            self.e.call(Helper::MAP_LOOKUP_ELEM);
            self.e.jump_if(Cond::Eq, Reg::R0, 0, missed);
            self.e.mov(CONTEXT, Reg::R0);
            self.e.mov(Reg::R0, 0);
            self.e.load(Size::Double, Reg::R1, Reg::R10, slot::CLAIM);
            let busy = Field::Busy.at();
            self.e.asm.push(Insn::atomic(Atomic::CompareExchange, Size::Double, CONTEXT, busy, Reg::R1));
            self.e.jump_if(Cond::Eq, Reg::R0, 0, claimed);
        }
        self.e.asm.bind(missed);
        self.count(count::MISSED);
        self.e.asm.jump(out);
        self.e.asm.bind(claimed);
        self.count(count::RUNS);
    }

    /// Prepares the context.
    fn begin(&mut self) {
        if self.nodes.is_quiet {
            if self.nodes.reads_address {
                registers::store_in_record(self);
            }
        } else {
            self.header();
        }
        self.e.store_imm(Size::Double, CONTEXT, RECORD + record::MAJOR, -1);
        self.e.store_imm(Size::Double, CONTEXT, RECORD + record::END, 0);
        self.e.set(Field::Cpu, Reg::R9);
        self.fields();
    }

    /// The record's header.
    fn header(&mut self) {
        let store = |this: &mut Self, size, place: i16| this.e.store(size, CONTEXT, RECORD + place, Reg::R0);
        self.e.call(Helper::KTIME_GET_BOOT_NS);
        store(self, Size::Double, record::TIME);
        self.e.load(Size::Double, Reg::R0, Reg::R10, slot::COOKIE);
        store(self, Size::Double, record::COOKIE);
        self.e.call(Helper::GET_CURRENT_PID_TGID);
        store(self, Size::Word, record::TID);
        self.e.alu(Alu::Rsh, Reg::R0, 32);
        store(self, Size::Word, record::TGID);
        self.e.call(Helper::GET_CURRENT_UID_GID);
        store(self, Size::Word, record::UID);
        self.e.store(Size::Word, CONTEXT, RECORD + record::CPU, Reg::R9);
        self.e.part(Reg::R1, i32::from(RECORD + record::COMM));
        self.e.thread_name();
        self.e.store_imm(Size::Double, CONTEXT, RECORD + record::CS, 0);
        registers::store_in_record(self);
        self.e.mov(Reg::R0, 0);
        if matches!(self.target.place, AttachKind::UserBreakpoint | AttachKind::KernelBreakpoint) {
            self.e.load(Size::Double, Reg::R0, REGISTERS, registers::ADDRESS);
        }
        store(self, Size::Double, record::ADDRESS);
    }

    /// The fields at the start of a run.
    fn fields(&mut self) {
        self.e.set(Field::Next, self.handler.entry as i32);
        self.e.set(Field::Calls, vm::CALL_LIMIT as i32);
        self.e.set(Field::Jumps, self.handler.jmpmax.min(vm::JUMP_LIMIT) as i32);
        self.e.set(Field::Left, self.handler.insmax.min(vm::INSTRUCTION_LIMIT) as i32);
        for field in [
            Field::Top,
            Field::Base,
            Field::Depth,
            Field::Length,
            Field::Complete,
            Field::LastCode,
            Field::LastParm1,
            Field::LastParm2,
            Field::Handled,
            Field::TraceLength,
            Field::TraceFull,
            Field::Blocks,
            Field::HeapUsed,
            Field::LastHandle,
            Field::Erased,
        ] {
            self.e.set(field, 0);
        }
        self.e.set(Field::Tries, scripts::TRIES);
        if !self.handler.is_script && layout::may(self.handler, Effects::USES_FRAME) {
            self.clear_frame();
        }
        self.e.store_imm(Size::Double, CONTEXT, FRAMES + frame::HANDLER, 0);
        if self.nodes.reads_written {
            for slot in 0..8 {
                self.e.store_imm(Size::Double, CONTEXT, STACK + 8 * slot, 0);
            }
        }
    }

    /// Runs steps until one ends the run.
    fn run(&mut self, step: Label) {
        self.e.store(Size::Double, Reg::R10, slot::CONTEXT, CONTEXT);
        self.e.store(Size::Double, Reg::R10, slot::REGISTERS, REGISTERS);
        if !self.nodes.reads_written {
            self.e.mov(Reg::R1, CONTEXT);
            let clear = self.clear_label();
            self.e.asm.call_function(clear);
        }
        let over = self.e.asm.label();
        if self.nodes.parts == 1 {
            // Most handlers need no more than one step: without the loop they take less time.
            self.e.mov(Reg::R1, 0);
            self.e.mov(Reg::R2, Reg::R10);
            self.e.alu(Alu::Add, Reg::R2, i32::from(slot::CONTEXT));
            self.e.asm.call_function(step);
            self.e.jump_if(Cond::Ne, Reg::R0, 0, over);
        }
        self.e.mov(Reg::R1, ROUNDS);
        self.e.asm.load_function(Reg::R2, step);
        self.e.mov(Reg::R3, Reg::R10);
        self.e.alu(Alu::Add, Reg::R3, i32::from(slot::CONTEXT));
        self.e.mov(Reg::R4, 0);
        self.e.call(Helper::LOOP);
        self.e.asm.bind(over);
        let ended = self.e.asm.label();
        self.e.load(Size::Word, Reg::R1, CONTEXT, RECORD + record::END);
        self.e.jump_if(Cond::Ne, Reg::R1, 0, ended);
        self.end_at_limit();
        self.e.asm.bind(ended);
    }

    /// The label of the function that clears the stack.
    fn clear_label(&mut self) -> Label {
        *self.clear.get_or_insert_with(|| self.e.asm.label())
    }

    /// Emits the function that clears the stack: `clear(context)`.
    fn clear_function(&mut self) {
        let label = self.clear_label();
        self.e.asm.function(label);
        for slot in 0..vm::STACK_WORDS as i16 {
            self.e.store_imm(Size::Double, Reg::R1, STACK + 8 * slot, 0);
        }
        self.e.end_step();
    }

    /// Counts how the run ended, and writes its record.
    fn end(&mut self) {
        let (release, removes, counted) = (self.e.asm.label(), self.e.asm.label(), self.e.asm.label());
        let (exception, output) = (self.e.asm.label(), self.e.asm.label());
        self.e.load(Size::Word, Reg::R8, CONTEXT, RECORD + record::END);
        if self.nodes.dumps {
            core_dumps::ask(self, &slot::DUMP, slot::COOKIE, slot::STATE);
        }
        self.e.jump_if(Cond::Eq, Reg::R8, record::end::EXIT, output);
        self.e.jump_if(Cond::Eq, Reg::R8, record::end::ABORT, release);
        self.e.jump_if(Cond::Eq, Reg::R8, record::end::EXCEPTION, exception);
        self.e.jump_if(Cond::Eq, Reg::R8, record::end::REMOVE, removes);
        self.e.load(Size::Word, Reg::R1, CONTEXT, RECORD + record::FACILITY);
        self.e.jump_if(Cond::Gt, Reg::R1, 2, output);
        self.e.asm.bind(removes);
        self.e.load(Size::Double, Reg::R1, Reg::R10, slot::STATE);
        self.e.store_imm(Size::Double, Reg::R1, state::OVER as i16, state::REMOVED);
        self.e.asm.jump(output);
        self.e.asm.bind(exception);
        self.count(count::EXCEPTIONS);
        self.e.asm.bind(output);
        if !self.nodes.is_quiet {
            output::output(self, release);
        }
        self.e.asm.bind(counted);
        self.e.asm.bind(release);
    }
}
