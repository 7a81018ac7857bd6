//! Leaves compiled code: the interpreter takes over the run before an instruction that is not
//! compiled or that will raise an exception.
//!
//! In: what is known of the run at an instruction (`Shape`). Out: code that writes the run's state
//! to the context (`layout::Resume`) and calls the agent.
//!
//! Each place has code of its own, which knows where the elements are, and shares the rest. This
//! path is not optimized. It pushes all registers first, so that everything is in memory.

use crate::emit::{Label, Stream};
use crate::frame::{Cell, registers};
use crate::operands::{Alu, RAX, RBX, RDI, RDX, RSI, RSP, Reg, Rm};
use crate::output::{Operand, Output};
use crate::owner::of_context;
use crate::ring::{AGENT, Claimed};
use crate::shape::{Code, Count, Location, Log, Shape};
use core::mem::{offset_of, size_of};
use layout::{Context, HEADER, Header, RESUME, Registers, Resume, UNSET, claim::FREE};
use vm::{Call, Element, FrameText, FrameWord, STACK_WORDS};

/// All registers except rsp.
const ALL: u16 = 0xffef;

/// Their size on the stack.
const PUSHED: i32 = 15 * 8;

/// The stack slot of a pushed register; the lowest number is pushed first.
fn pushed(register: Reg) -> Rm {
    let place = if register.0 > RSP.0 { register.0 - 1 } else { register.0 };
    Rm::At(RSP, PUSHED - 8 * (i32::from(place) + 1))
}

/// A field of the context's [`Resume`].
fn of_resume(offset: usize) -> Rm {
    of_context(RBX, RESUME as usize + offset)
}

/// The code of all paths into the interpreter.
#[derive(Debug, Default)]
pub(crate) struct SideExits {
    /// The code that all of them share.
    shared: Option<Label>,
    /// The code that claims a context for those that have none.
    late_claim: Option<Label>,
    /// The last one: instruction offset, shape, label.
    last: Option<(usize, Shape, Label)>,
}

impl SideExits {
    /// Whether there is any.
    pub(crate) fn any(&self) -> bool {
        self.shared.is_some()
    }

    /// Whether any claims a context.
    pub(crate) fn claim(&self) -> bool {
        self.late_claim.is_some()
    }
}

/// Writes the code that leaves before one instruction.
pub(crate) struct SideExit<'l, 'a> {
    pub(crate) out: &'l mut Output<'a>,
    pub(crate) exits: &'l mut SideExits,
    /// What is known of the run there.
    pub(crate) shape: &'l Shape,
    pub(crate) claimed: Claimed,
    /// The offset of the instruction.
    pub(crate) offset: usize,
    /// How many elements below the first one pushed the handler reaches.
    pub(crate) lowest: usize,
    /// Whether instructions are counted.
    pub(crate) counts_steps: bool,
    /// Whether the handler reads the program's flags.
    pub(crate) reads_flags: bool,
}

impl SideExit<'_, '_> {
    /// The code that leaves before the instruction.
    pub(crate) fn emit(mut self) -> Label {
        if let Some((offset, shape, label)) = &self.exits.last
            && *offset == self.offset
            && shape == self.shape
        {
            return *label;
        }
        let stream = self.out.emitter.aside(Stream::Cold);
        let label = self.out.emitter.here_label();
        registers(ALL).for_each(|register| self.out.emitter.push(register));
        self.out.frame.below = PUSHED;
        if self.shape.claimed || self.shape.holds {
            self.out.emitter.load(RBX, self.claimed.context);
        } else {
            let claim = self.late_claim();
            self.out.emitter.call_label(claim);
        }
        self.hand_over_log();
        self.hand_over_stack();
        self.hand_over_words();
        self.hand_over_texts();
        self.hand_over_rest();
        self.out.frame.below = 0;
        let shared = self.shared_leave();
        self.out.emitter.jump(shared);
        self.out.emitter.end_detour(stream);
        self.exits.last = Some((self.offset, self.shape.clone(), label));
        label
    }

    /// Stores a number in a 4-byte field.
    fn hand_over(&mut self, offset: usize, number: u32) {
        self.out.emitter.store32_number(of_resume(offset), number);
    }

    /// Stores a cell in a 4-byte field.
    fn hand_over_cell(&mut self, offset: usize, cell: Cell) {
        let cell = self.out.frame.cell(cell);
        self.out.emitter.load32(RAX, cell);
        self.out.emitter.store32(of_resume(offset), RAX);
    }

    fn hand_over_log(&mut self) {
        if self.shape.claimed {
            let record = self.claimed.record;
            self.out.emitter.load(RDX, pushed(record));
            self.out.emitter.load(RAX, Rm::At(RDX, offset_of!(Header, time) as i32));
            self.out.emitter.store(of_resume(offset_of!(Resume, time)), RAX);
            self.out.emitter.address(RDX, Rm::At(RDX, HEADER as i32));
            self.out.emitter.store(of_resume(offset_of!(Resume, log)), RDX);
        } else {
            self.out.time();
            self.out.emitter.store32(of_resume(offset_of!(Resume, time)), RAX);
            self.out.emitter.store32(of_resume(offset_of!(Resume, time) + 4), RDX);
        }
        match self.shape.log {
            Log::Known { length, complete } => {
                self.hand_over(offset_of!(Resume, log_length), length as u32);
                self.hand_over(offset_of!(Resume, complete), complete as u32);
            }
            Log::Cells => {
                self.hand_over_cell(offset_of!(Resume, log_length), Cell::Logged);
                self.hand_over_cell(offset_of!(Resume, complete), Cell::Complete);
            }
        }
    }

    fn hand_over_stack(&mut self) {
        let lowest = self.lowest;
        // The first element pushed is in the last slot; elements below it are in slots 0, 1, and so
        // on.
        let slot = |place: usize| (STACK_WORDS + lowest - 1 - place) % STACK_WORDS;
        let mut count = 0;
        for place in 0..self.shape.stack.len() {
            if self.shape.stack[place] == Location::Number(0) {
                continue;
            }
            let at = offset_of!(Resume, elements) + count * size_of::<Element>();
            let operand = match self.location_pushed(self.shape.stack[place]) {
                Some(memory) => Operand::Memory(memory),
                None => self.out.operand(self.shape.stack[place], place),
            };
            self.out.store(of_resume(at + offset_of!(Element, value)), operand);
            self.out.emitter.store_number(of_resume(at + offset_of!(Element, slot)), slot(place) as u64);
            count += 1;
        }
        self.hand_over(offset_of!(Resume, element_count), count as u32);
        // The top is the last element's slot, or for an empty stack the slot above the first.
        let top = (STACK_WORDS + lowest - self.shape.stack.len()) % STACK_WORDS;
        self.hand_over(offset_of!(Resume, top), top as u32);
    }

    fn hand_over_words(&mut self) {
        let mut count = 0;
        for index in 0..self.shape.words.len() {
            let (offset, location) = self.shape.words[index];
            if location == Location::Number(0) {
                continue;
            }
            let at = offset_of!(Resume, words) + count * size_of::<FrameWord>();
            let operand = match (self.location_pushed(location), location) {
                (Some(memory), _) => Operand::Memory(memory),
                (None, Location::Cell) => Operand::Memory(self.out.frame.cell(Cell::Word(offset))),
                (None, location) => self.out.operand(location, 0),
            };
            self.out.store(of_resume(at + offset_of!(FrameWord, value)), operand);
            self.out.emitter.store_number(of_resume(at + offset_of!(FrameWord, offset)), offset.into());
            count += 1;
        }
        self.hand_over(offset_of!(Resume, word_count), count as u32);
    }

    /// The strings are in the context already.
    fn hand_over_texts(&mut self) {
        for (place, text) in self.shape.texts.iter().enumerate() {
            let at = offset_of!(Resume, texts) + place * size_of::<FrameText>();
            let cell = self.out.frame.cell(Cell::Text(text.at));
            self.out.emitter.load32(RAX, cell);
            self.out.emitter.store32(of_resume(at + offset_of!(FrameText, length)), RAX);
            self.out.emitter.store32_number(of_resume(at + offset_of!(FrameText, offset)), text.at.into());
        }
        self.hand_over(offset_of!(Resume, text_count), self.shape.texts.len() as u32);
    }

    /// The memory of what was in a register before all were pushed.
    fn location_pushed(&self, location: Location) -> Option<Rm> {
        match location {
            Location::Register(number) => Some(pushed(Reg(number))),
            Location::Program(number) if !self.out.frame.is_saved(number) => Some(pushed(Reg(number))),
            _ => None,
        }
    }

    fn hand_over_rest(&mut self) {
        self.hand_over(offset_of!(Resume, offset), self.offset as u32);
        self.hand_over(offset_of!(Resume, number), self.out.environment.number);
        for (count, cell, offset) in [
            (self.shape.jumps, Cell::Jumps, offset_of!(Resume, jumps)),
            (self.shape.calls_made, Cell::Calls, offset_of!(Resume, calls_made)),
        ] {
            match count {
                Count::Known(count) => self.hand_over(offset, count),
                Count::Cell => self.hand_over_cell(offset, cell),
            }
        }
        let instructions = offset_of!(Resume, instructions);
        if self.counts_steps {
            let cell = self.out.frame.cell(Cell::Instructions);
            self.out.emitter.load32(RAX, cell);
            self.out.emitter.alu32_number(Alu::Add, RAX, self.shape.steps as i32);
            self.out.emitter.store32(of_resume(instructions), RAX);
        } else {
            // None were executed, or too few to matter.
            self.hand_over(instructions, 0);
        }
        for (code, cell, offset) in [
            (self.shape.major, Cell::Major, offset_of!(Resume, major)),
            (self.shape.minor, Cell::Minor, offset_of!(Resume, minor)),
        ] {
            match code {
                Code::Unset => self.hand_over(offset, UNSET),
                Code::Number(number) => self.hand_over(offset, number.into()),
                Code::Cell => self.hand_over_cell(offset, cell),
            }
        }
        self.hand_over(offset_of!(Resume, call_count), self.shape.calls.len() as u32);
        for (place, (callee, back)) in self.shape.calls.clone().into_iter().enumerate() {
            let at = offset_of!(Resume, calls) + place * size_of::<Call>();
            self.hand_over(at + offset_of!(Call, callee), callee);
            self.hand_over(at + offset_of!(Call, back), back);
        }
    }

    /// The code that claims a context on the way out and puts its address in rbx. Emitted once.
    fn late_claim(&mut self) -> Label {
        if let Some(label) = self.exits.late_claim {
            return label;
        }
        let aside = self.out.emitter.aside(Stream::Cold);
        let label = self.out.emitter.here_label();
        self.exits.late_claim = Some(label);
        // The return address.
        let below = std::mem::replace(&mut self.out.frame.below, PUSHED + 8);
        self.out.pushes(0);
        self.out.processor(RDX);
        let mine = self.out.emitter.label();
        self.out.claim_shared(RDX, RBX, mine);
        // The return address, and all registers.
        self.out.emitter.pop(RAX);
        registers(ALL).collect::<Vec<_>>().into_iter().rev().for_each(|it| self.out.emitter.pop(it));
        let discard = self.out.discard;
        self.out.emitter.jump(discard);
        self.out.emitter.bind(mine);
        self.out.set_owner(RBX, None);
        self.out.emitter.ret();
        self.out.frame.below = below;
        self.out.emitter.end_detour(aside);
        label
    }

    /// The code shared by all paths into the interpreter: calls it and restores the registers,
    /// which it may have changed. Emitted once.
    fn shared_leave(&mut self) -> Label {
        if let Some(label) = self.exits.shared {
            return label;
        }
        let aside = self.out.emitter.aside(Stream::Cold);
        let label = self.out.emitter.here_label();
        self.exits.shared = Some(label);
        self.out.frame.below = PUSHED;
        self.out.pushes(AGENT);
        let general = |register: Reg| {
            let place = offset_of!(Context, registers) + offset_of!(Registers, general);
            of_context(RBX, place + 8 * usize::from(register.0))
        };
        for register in registers(ALL) {
            let from = self.program_register(register);
            self.out.emitter.load(RAX, from);
            self.out.emitter.store(general(register), RAX);
        }
        self.out.site_rsp(RAX);
        self.out.emitter.store(general(RSP), RAX);
        let rip = offset_of!(Context, registers) + offset_of!(Registers, rip);
        self.out.emitter.store_site(of_context(RBX, rip), self.out.environment.site);
        if self.reads_flags {
            let cell = self.out.frame.cell(Cell::AllFlags);
            let flags = offset_of!(Context, registers) + offset_of!(Registers, rflags);
            self.out.emitter.load(RAX, cell);
            self.out.emitter.store(of_context(RBX, flags), RAX);
        }
        self.out.emitter.load(RDI, RBX);
        self.out.emitter.number(RSI, self.out.environment.info.into());
        self.out.emitter.number(RAX, self.out.environment.agent.resume.into());
        self.out.emitter.call(RAX);
        if self.out.environment.tentative {
            let cell = self.out.frame.commit_cell();
            self.out.emitter.store(cell, RAX);
        }
        for register in registers(ALL) {
            let to = self.program_register(register);
            self.out.emitter.load(RAX, general(register));
            self.out.emitter.store(to, RAX);
        }
        self.out.emitter.store32_number(of_context(RBX, offset_of!(Context, claim)), FREE);
        registers(ALL).collect::<Vec<_>>().into_iter().rev().for_each(|it| self.out.emitter.pop(it));
        self.out.frame.below = 0;
        let epilogue = self.out.epilogue;
        self.out.emitter.jump(epilogue);
        self.out.emitter.end_detour(aside);
        label
    }

    /// Where the program's value of a register is after all were pushed.
    fn program_register(&mut self, register: Reg) -> Rm {
        if self.out.frame.is_saved(register.0) {
            self.out.frame.saved_at(register.0)
        } else {
            pushed(register)
        }
    }
}
