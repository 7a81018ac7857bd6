//! The compiler: follows a handler's bytecode along every path from its entry and emits machine
//! code.
//!
//! A place where paths meet is emitted once for each [`Shape`] with which it is reached. Without
//! cycles there are few shapes, and everything (elements, log length, jumps taken) stays known at
//! compile time. With cycles or many paths, shapes are unified at such places: elements are stored
//! to their cells, and counts are in cells from the start.

use crate::compiled::{Compiled, Parts};
use crate::emit::{Emitter, Label, Stream};
use crate::environment::{Environment, Handler};
use crate::frame::{Cell, Frame, FrameLayout};
use crate::operands::{RAX, Reg};
use crate::scan::{Facts, STEPS, instruction_at};
use crate::shape::{Location, Shape};
use std::collections::HashMap;
use vm::Op;

/// The most places to emit in [`Mode::Known`].
const KNOWN_PLACES: usize = 64;

/// The most bytes of a handler's code. A handler that needs more is interpreted.
const MAX_BYTES: usize = 64 << 10;

/// The most instructions between two checks of the instruction count.
pub(crate) const SLACK: u32 = 2 * STEPS;

/// How a handler is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Everything that can be known at compile time stays known.
    Known,
    /// Shapes are unified where paths meet.
    Merged,
    /// Nothing is compiled; the interpreter runs the handler.
    Interpreted,
}

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

/// A handler being compiled. Its fields are the whole state of one pass over the handler.
pub(crate) struct Compiler<'a> {
    pub(crate) handler: &'a Handler<'a>,
    pub(crate) environment: &'a Environment<'a>,
    pub(crate) facts: &'a Facts,
    pub(crate) mode: Mode,
    pub(crate) emitter: Emitter,
    pub(crate) frame: Frame,
    /// How many elements below the first one pushed the handler reaches.
    pub(crate) lowest: usize,
    pub(crate) shape: Shape,
    /// The registers for elements, in order of preference at the start.
    pub(crate) pool: Vec<Reg>,
    /// The registers that the current instruction uses, as a bit set.
    pub(crate) locked: u16,
    /// Whether any path may begin a record.
    pub(crate) records: bool,
    /// Whether instructions are counted because a run might exceed its limit.
    pub(crate) counts_steps: bool,
    /// Whether the current instruction is counted already.
    pub(crate) step_counted: bool,
    /// The registers for context and record, once claimed. Before that, `record` holds the
    /// processor's number.
    pub(crate) context: Reg,
    pub(crate) record: Reg,
    /// Whether `context` holds the result of counting the hit until the claim: see
    /// [`Compiler::count`].
    pub(crate) keeps_registered: bool,
    /// The offset of the current instruction.
    pub(crate) offset: usize,
    /// The epilogue, and the epilogue for a hit without a record.
    pub(crate) epilogue: Label,
    pub(crate) discard: Label,
    pub(crate) guarded: Vec<(Label, Label)>,
    /// The code shared by all paths into the interpreter, if any.
    pub(crate) leave: Option<Label>,
    /// The code that claims a context for these paths.
    pub(crate) late_claim: Option<Label>,
    /// The most bytes pushed below the frame.
    pub(crate) deepest: i32,
    /// Whether any path claims a context.
    pub(crate) claims: bool,
    /// The last code to leave: instruction offset, shape, label.
    pub(crate) last_leave: Option<(usize, Shape, Label)>,
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
            match compiler.frame.wrong(compiler.deepest) {
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
        let mut emitter = Emitter::new();
        let (epilogue, discard) = (emitter.label(), emitter.label());
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
        if records {
            pool.retain(|register| *register != record && *register != context);
        }
        let most = facts.most_instructions(handler.jmpmax.min(vm::JUMP_LIMIT));
        let counts_steps = mode == Mode::Merged && most > handler.insmax.min(vm::INSTRUCTION_LIMIT).into();
        let lowest = if mode == Mode::Interpreted { 0 } else { facts.least.unsigned_abs() as usize };
        Compiler {
            handler,
            environment,
            facts,
            mode,
            emitter,
            frame,
            lowest,
            shape: Shape::start(lowest, mode != Mode::Merged),
            pool,
            locked: 0,
            records,
            counts_steps,
            step_counted: false,
            context,
            record,
            keeps_registered: false,
            offset: handler.entry,
            epilogue,
            discard,
            guarded: Vec::new(),
            leave: None,
            late_claim: None,
            deepest: 0,
            claims: false,
            last_leave: None,
            places: HashMap::new(),
            pending: Vec::new(),
        }
    }

    /// Emits the whole handler.
    fn write(&mut self) -> Result<(Label, Vec<(Label, u32)>), TooLarge> {
        let entry = self.emitter.here_label();
        let steps = self.frame.prologue(&mut self.emitter);
        self.keep_flags();
        let first = self.count_hit();
        if self.mode == Mode::Merged {
            self.start_cells(first);
        }
        if self.mode == Mode::Interpreted {
            let leave = self.leave_here();
            self.emitter.jump(leave);
        } else {
            self.path(first)?;
            while let Some((offset, shape, label)) = self.pending.pop() {
                self.shape = shape;
                self.emitter.bind(label);
                self.body(offset)?;
            }
        }
        self.end();
        Ok((entry, steps))
    }

    /// Saves the flags if the program or the handler may read them.
    fn keep_flags(&mut self) {
        if self.facts.reads_flags {
            let cell = self.frame.cell(Cell::AllFlags);
            self.pushes(8);
            self.emitter.push_flags();
            self.emitter.pop(RAX);
            self.emitter.store(cell, RAX);
            self.frame.change(RAX);
        }
        if self.environment.flags_live {
            let cell = self.frame.cell(Cell::Flags);
            self.emitter.save_flags();
            self.emitter.store32(cell, RAX);
            self.frame.change(RAX);
        }
    }

    /// Initializes the counting cells, for a run that continues at offset `first`.
    fn start_cells(&mut self, first: usize) {
        if self.counts_steps {
            let next = |offset: &usize| instruction_at(self.handler.code, *offset).map(|it| it.next);
            let before = std::iter::successors(Some(self.handler.entry), next).take_while(|it| *it != first);
            let count = before.count() as u64;
            let at = self.frame.cell(Cell::Instructions);
            self.emitter.store_number(at, count);
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
            let at = self.frame.cell(cell);
            self.emitter.store_number(at, value);
        }
    }

    /// Emits the end: restores flags and registers. The displaced instruction follows.
    fn end(&mut self) {
        self.emitter.drop_jump(self.epilogue);
        self.emitter.bind(self.epilogue);
        if self.environment.flags_live {
            let cell = self.frame.cell(Cell::Flags);
            self.emitter.load32(RAX, cell);
            self.emitter.restore_flags();
        }
        self.frame.epilogue(&mut self.emitter);
        self.emitter.switch(Stream::Cold);
        self.emitter.bind(self.discard);
        self.forget_record();
        let epilogue = self.epilogue;
        self.emitter.jump(epilogue);
    }

    /// Notes that this many bytes are pushed below the frame and what is below it already.
    pub(crate) fn pushes(&mut self, bytes: i32) {
        self.deepest = self.deepest.max(self.frame.below + bytes);
    }

    fn finish(self, entry: Label, steps: Vec<(Label, u32)>) -> Compiled {
        let stack = (self.frame.size() + self.deepest) as u32;
        Compiled::new(Parts {
            entry,
            steps,
            guarded: self.guarded,
            claims: self.claims,
            leaves: self.leave.is_some(),
            clobbers: self.frame.saved(),
            stack,
            finished: self.emitter.finish(),
        })
    }

    /// Emits a path from an offset on.
    fn path(&mut self, offset: usize) -> Result<(), TooLarge> {
        if self.facts.targets.contains(&offset) {
            let (label, new) = self.place(offset)?;
            if !new {
                self.emitter.jump(label);
                return Ok(());
            }
            self.emitter.bind(label);
        }
        self.body(offset)
    }

    /// Emits a path from an offset on; if the offset is a place, it is bound already.
    fn body(&mut self, mut offset: usize) -> Result<(), TooLarge> {
        loop {
            let Next::At(next) = self.instruction(offset)? else { return Ok(()) };
            if self.counts_steps && !self.step_counted {
                self.shape.steps += 1;
            }
            if self.emitter.size() > MAX_BYTES {
                return Err(TooLarge);
            }
            if self.facts.targets.contains(&next) {
                return self.path(next);
            }
            offset = next;
        }
    }

    /// The label for an offset with this shape (unified first in [`Mode::Merged`]), and whether it
    /// is new.
    fn place(&mut self, offset: usize) -> Result<(Label, bool), TooLarge> {
        if self.mode == Mode::Merged {
            self.count_steps();
            self.settle();
        }
        let key = (offset, self.shape.clone());
        if let Some(label) = self.places.get(&key) {
            return Ok((*label, false));
        }
        if self.mode == Mode::Known && self.places.len() == KNOWN_PLACES {
            return Err(TooLarge);
        }
        let label = self.emitter.label();
        self.places.insert(key, label);
        Ok((label, true))
    }

    /// The label for a jump from here. New places are emitted later.
    pub(crate) fn jump_target(&mut self, offset: usize) -> Result<Label, TooLarge> {
        let (label, new) = self.place(offset)?;
        if new {
            self.pending.push((offset, self.shape.clone(), label));
        }
        Ok(label)
    }

    /// Stores every element to its cell. Changes no flags.
    pub(crate) fn settle(&mut self) {
        for place in 0..self.shape.stack.len() {
            if self.shape.stack[place] != Location::Cell {
                self.spill(place);
            }
        }
    }

    /// Emits one instruction.
    fn instruction(&mut self, offset: usize) -> Result<Next, TooLarge> {
        self.offset = offset;
        self.locked = 0;
        self.step_counted = false;
        let Some(instruction) = instruction_at(self.handler.code, offset) else { return Ok(self.give_up()) };
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
            _ => Ok(if self.straight(instruction) { next } else { self.give_up() }),
        }
    }

    /// Passes the rest of this path to the interpreter.
    pub(crate) fn give_up(&mut self) -> Next {
        let leave = self.leave_here();
        self.emitter.jump(leave);
        Next::End
    }
}
