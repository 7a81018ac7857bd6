//! The compiler: follows a handler's bytecode along every path from its entry and emits machine
//! code.
//!
//! A place where paths meet is emitted once for each [`Shape`] with which it is reached. Without
//! cycles there are few shapes, and everything (elements, log length, jumps taken) stays known at
//! compile time. With cycles or many paths, shapes are unified at such places: elements are stored
//! to their cells, and counts are in cells from the start.

use crate::compiled::{Compiled, CompiledParts};
use crate::emit::{Label, Stream};
use crate::environment::{Environment, Handler};
use crate::frame::{Cell, Frame, FrameLayout};
use crate::operands::{RAX, Reg};
use crate::output::Output;
use crate::path::Path;
use crate::ring::Claimed;
use crate::run::{Mode, Run};
use crate::scan::{Facts, STEPS, instruction_at};
use crate::shape::Shape;
use crate::side_exit::SideExits;
use std::collections::HashMap;
use vm::Op;

/// The most places to emit in [`Mode::Known`].
const KNOWN_PLACES: usize = 64;

/// The most bytes of a handler's code. A handler that needs more is interpreted.
const MAX_BYTES: usize = 64 << 10;

/// The most instructions between two checks of the instruction count.
pub(crate) const SLACK: u32 = 2 * STEPS;

/// A handler cannot be compiled in a mode: its code is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

/// What follows an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The instruction at this offset.
    At(usize),
    /// Nothing: the path has ended.
    End,
}

/// A handler being compiled: the paths through it.
pub(crate) struct Compiler<'a> {
    pub(crate) run: Run<'a>,
    /// Whether any path may begin a record.
    pub(crate) records: bool,
    /// Whether any path may claim a context.
    pub(crate) claims: bool,
    /// Whether the current instruction is counted already.
    pub(crate) step_counted: bool,
    places: HashMap<(usize, Shape), Label>,
    pending: Vec<(usize, Shape, Label)>,
}

impl<'a> Compiler<'a> {
    /// Compiles a handler in a mode.
    pub(crate) fn compile(
        handler: &'a Handler<'a>,
        environment: &'a Environment<'a>,
        facts: &'a Facts,
        mode: Mode,
    ) -> Result<Compiled, TooLarge> {
        // `pop r` changes a register in its saved copy.
        let mut assumed =
            FrameLayout { saved: facts.popped & !(1 << 4), cells: environment.flags_live.into(), deep: 0 };
        loop {
            let frame = Frame::new(assumed, environment.tentative || environment.waits);
            let mut compiler = Compiler::new(handler, environment, facts, mode, frame);
            let (entry, steps) = compiler.write()?;
            let out = &compiler.run.path.out;
            match out.frame.wrong(out.deepest) {
                Some(right) => assumed = right,
                None => return Ok(compiler.finish(entry, steps)),
            }
        }
    }

    fn new(
        handler: &'a Handler<'a>,
        environment: &'a Environment<'a>,
        facts: &'a Facts,
        mode: Mode,
        frame: Frame,
    ) -> Compiler<'a> {
        // Registers that the handler names come last, so that the program's values stay in place.
        let order = [1, 2, 6, 7, 8, 9, 10, 11, 3, 5, 12, 13, 14, 15].map(Reg);
        let named = facts.named | facts.popped;
        let is_named = |register: &&Reg| named >> register.0 & 1 != 0;
        let mut pool: Vec<Reg> = order.iter().filter(|it| !is_named(it)).copied().collect();
        pool.extend(order.iter().filter(is_named));
        // Shifts, divisions and rdtsc need rcx and rdx.
        let mut fixed = pool.iter().copied().filter(|register| !matches!(register.0, 1 | 2));
        let record = fixed.next().unwrap_or(Reg(8));
        let context = fixed.next().unwrap_or(Reg(9));
        let records = facts.records && mode != Mode::Interpreted && handler.logmax > 0;
        let claims = records || facts.calls && mode != Mode::Interpreted;
        if claims {
            pool.retain(|register| *register != record && *register != context);
        }
        let most = facts.most_instructions(handler.jmpmax.min(vm::JUMP_LIMIT));
        let counts_steps = mode == Mode::Merged && most > handler.insmax.min(vm::INSTRUCTION_LIMIT).into();
        let lowest = if mode == Mode::Interpreted { 0 } else { facts.least.unsigned_abs() as usize };
        let run = Run {
            path: Path {
                out: Output::new(environment, frame),
                shape: Shape::start(lowest, mode != Mode::Merged),
                pool,
                locked: 0,
            },
            handler,
            facts,
            mode,
            lowest,
            offset: handler.entry,
            counts_steps,
            claimed: Claimed::new(context, record, handler.logmax),
            keeps_registered: false,
            claims: false,
            calls: false,
            exits: SideExits::default(),
        };
        Compiler { run, records, claims, step_counted: false, places: HashMap::new(), pending: Vec::new() }
    }

    /// Emits the whole handler.
    fn write(&mut self) -> Result<(Label, Vec<(Label, u32)>), TooLarge> {
        let out = &mut self.run.path.out;
        let entry = out.emitter.here_label();
        let steps = out.frame.prologue(&mut out.emitter);
        self.keep_flags();
        let first = self.count_hit();
        if self.run.mode == Mode::Merged {
            self.start_cells(first);
        }
        if self.run.mode == Mode::Interpreted {
            let leave = self.run.side_exit();
            self.run.path.out.emitter.jump(leave);
        } else {
            self.path(first)?;
            while let Some((offset, shape, label)) = self.pending.pop() {
                self.run.path.shape = shape;
                self.run.path.out.emitter.bind(label);
                self.body(offset)?;
            }
        }
        self.end();
        Ok((entry, steps))
    }

    /// Saves the flags if the program or the handler may read them.
    fn keep_flags(&mut self) {
        if self.run.facts.reads_flags {
            let out = &mut self.run.path.out;
            let cell = out.frame.cell(Cell::AllFlags);
            out.pushes(8);
            out.emitter.push_flags();
            out.emitter.pop(RAX);
            out.emitter.store(cell, RAX);
            out.frame.change(RAX);
        }
        if self.run.path.out.environment.flags_live {
            let out = &mut self.run.path.out;
            let cell = out.frame.cell(Cell::Flags);
            out.emitter.save_flags();
            out.emitter.store32(cell, RAX);
            out.frame.change(RAX);
        }
    }

    /// Initializes the counting cells, for a run that continues at offset `first`.
    fn start_cells(&mut self, first: usize) {
        if self.run.counts_steps {
            let next = |offset: &usize| instruction_at(self.run.handler.code, *offset).map(|it| it.next);
            let before =
                std::iter::successors(Some(self.run.handler.entry), next).take_while(|it| *it != first);
            let count = before.count() as u64;
            let at = self.run.path.out.frame.cell(Cell::Instructions);
            self.run.path.out.emitter.store_number(at, count);
        }
        let unset = u64::from(layout::UNSET);
        for (cell, value) in [
            (Cell::Jumps, 0),
            (Cell::Calls, 0),
            (Cell::Logged, 0),
            (Cell::Complete, 0),
            (Cell::Major, unset),
            (Cell::Minor, unset),
        ] {
            let at = self.run.path.out.frame.cell(cell);
            self.run.path.out.emitter.store_number(at, value);
        }
    }

    /// Emits the end: restores flags and registers. The displaced instruction follows.
    fn end(&mut self) {
        let out = &mut self.run.path.out;
        out.emitter.drop_jump(out.epilogue);
        out.emitter.bind(out.epilogue);
        if out.environment.flags_live {
            let cell = out.frame.cell(Cell::Flags);
            out.emitter.load32(RAX, cell);
            out.emitter.restore_flags();
        }
        out.frame.epilogue(&mut out.emitter);
        out.emitter.switch(Stream::Cold);
        out.emitter.bind(out.discard);
        out.forget_record();
        let epilogue = out.epilogue;
        out.emitter.jump(epilogue);
    }

    fn finish(self, entry: Label, steps: Vec<(Label, u32)>) -> Compiled {
        let claims = self.run.claims || self.run.exits.claim();
        let leaves = self.run.exits.any() || self.run.calls;
        let out = self.run.path.out;
        let stack = (out.frame.size() + out.deepest) as u32;
        Compiled::new(CompiledParts {
            entry,
            steps,
            guarded: out.guarded,
            claims,
            leaves,
            clobbers: out.frame.saved(),
            stack,
            finished: out.emitter.finish(),
        })
    }

    /// Emits a path from an offset on.
    fn path(&mut self, offset: usize) -> Result<(), TooLarge> {
        if self.run.facts.targets.contains(&offset) {
            let (label, new) = self.label_for(offset)?;
            if !new {
                self.run.path.out.emitter.jump(label);
                return Ok(());
            }
            self.run.path.out.emitter.bind(label);
        }
        self.body(offset)
    }

    /// Emits a path from an offset on; if the offset is a place, it is bound already.
    fn body(&mut self, mut offset: usize) -> Result<(), TooLarge> {
        loop {
            let Next::At(next) = self.instruction(offset)? else { return Ok(()) };
            if self.run.counts_steps && !self.step_counted {
                self.run.path.shape.steps += 1;
            }
            if self.run.path.out.emitter.size() > MAX_BYTES {
                return Err(TooLarge);
            }
            if self.run.facts.targets.contains(&next) {
                return self.path(next);
            }
            offset = next;
        }
    }

    /// The label for an offset with this shape (unified first in [`Mode::Merged`]), and whether it
    /// is new.
    fn label_for(&mut self, offset: usize) -> Result<(Label, bool), TooLarge> {
        if self.run.mode == Mode::Merged {
            self.count_steps();
            self.run.path.settle();
        }
        let key = (offset, self.run.path.shape.clone());
        if let Some(label) = self.places.get(&key) {
            return Ok((*label, false));
        }
        if self.run.mode == Mode::Known && self.places.len() == KNOWN_PLACES {
            return Err(TooLarge);
        }
        let label = self.run.path.out.emitter.label();
        self.places.insert(key, label);
        Ok((label, true))
    }

    /// The label for a jump from here. New places are emitted later.
    pub(crate) fn jump_target(&mut self, offset: usize) -> Result<Label, TooLarge> {
        let (label, new) = self.label_for(offset)?;
        if new {
            self.pending.push((offset, self.run.path.shape.clone(), label));
        }
        Ok(label)
    }

    /// Emits one instruction.
    fn instruction(&mut self, offset: usize) -> Result<Next, TooLarge> {
        self.run.offset = offset;
        self.run.path.locked = 0;
        self.step_counted = false;
        let Some(instruction) = instruction_at(self.run.handler.code, offset) else {
            return Ok(self.give_up());
        };
        let next = Next::At(instruction.next);
        match instruction.op {
            Op::Nop => Ok(next),
            Op::Jmp
            | Op::Jlt
            | Op::Jle
            | Op::Jgt
            | Op::Jge
            | Op::Jz
            | Op::Jnz
            | Op::Loop
            | Op::Call
            | Op::Ret => self.control(instruction),
            Op::Abort | Op::Exit | Op::Remove => Ok(self.end_run(instruction.op)),
            _ => Ok(if self.run.straight(instruction) { next } else { self.give_up() }),
        }
    }

    /// Passes the rest of this path to the interpreter.
    pub(crate) fn give_up(&mut self) -> Next {
        let leave = self.run.side_exit();
        self.run.path.out.emitter.jump(leave);
        Next::End
    }
}
