//! Leaves compiled code: the interpreter takes over the run before an instruction that is not
//! compiled or that will raise an exception.
//!
//! Each place has code of its own, which knows where the elements are, and shares the rest. This
//! path is not optimized. It pushes all registers first, so that everything is in memory.

use crate::compiler::Compiler;
use crate::emit::{Label, Stream};
use crate::frame::{Cell, registers};
use crate::operands::{Alu, RAX, RBX, RDI, RDX, RSI, RSP, Reg, Rm};
use crate::owner::of_context;
use crate::record::AGENT;
use crate::registers::Operand;
use crate::shape::{Code, Count, Location, Log};
use core::mem::{offset_of, size_of};
use layout::{Context, HEADER, Header, RESUME, Registers, Resume, UNSET, claim::FREE};
use vm::{Call, Element, STACK_WORDS};

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

impl Compiler<'_> {
    /// The code that leaves before the current instruction with the current shape.
    pub(crate) fn leave_here(&mut self) -> Label {
        if let Some((offset, shape, label)) = &self.last_leave
            && *offset == self.offset
            && *shape == self.shape
        {
            return *label;
        }
        let stream = self.emitter.aside(Stream::Cold);
        let label = self.emitter.here_label();
        registers(ALL).for_each(|register| self.emitter.push(register));
        self.frame.below = PUSHED;
        if self.shape.claimed {
            self.emitter.load(RBX, self.context);
        } else {
            let claim = self.late_claim();
            self.emitter.call_label(claim);
        }
        self.hand_over_log();
        self.hand_over_stack();
        self.hand_over_rest();
        self.frame.below = 0;
        let shared = self.shared_leave();
        self.emitter.jump(shared);
        self.emitter.back(stream);
        self.last_leave = Some((self.offset, self.shape.clone(), label));
        label
    }

    /// Stores a number in a 4-byte field.
    fn hand_over(&mut self, offset: usize, number: u32) {
        self.emitter.store32_number(of_resume(offset), number);
    }

    /// Stores a cell in a 4-byte field.
    fn hand_over_cell(&mut self, offset: usize, cell: Cell) {
        let cell = self.frame.cell(cell);
        self.emitter.load32(RAX, cell);
        self.emitter.store32(of_resume(offset), RAX);
    }

    fn hand_over_log(&mut self) {
        if self.shape.claimed {
            let record = self.record;
            self.emitter.load(RDX, pushed(record));
            self.emitter.load(RAX, Rm::At(RDX, offset_of!(Header, time) as i32));
            self.emitter.store(of_resume(offset_of!(Resume, time)), RAX);
            self.emitter.address(RDX, Rm::At(RDX, HEADER as i32));
            self.emitter.store(of_resume(offset_of!(Resume, log)), RDX);
        } else {
            self.time();
            self.emitter.store32(of_resume(offset_of!(Resume, time)), RAX);
            self.emitter.store32(of_resume(offset_of!(Resume, time) + 4), RDX);
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
            let operand = match self.location_pushed(place) {
                Some(memory) => Operand::Memory(memory),
                None => self.operand(self.shape.stack.len() - 1 - place),
            };
            self.store(of_resume(at + offset_of!(Element, value)), operand);
            self.emitter.store_number(of_resume(at + offset_of!(Element, slot)), slot(place) as u64);
            count += 1;
        }
        self.hand_over(offset_of!(Resume, element_count), count as u32);
        // The top is the last element's slot, or for an empty stack the slot above the first.
        let top = (STACK_WORDS + lowest - self.shape.stack.len()) % STACK_WORDS;
        self.hand_over(offset_of!(Resume, top), top as u32);
    }

    /// The memory of an element that was in a register before all were pushed.
    fn location_pushed(&self, place: usize) -> Option<Rm> {
        match self.shape.stack[place] {
            Location::Register(number) => Some(pushed(Reg(number))),
            Location::Program(number) if !self.frame.is_saved(number) => Some(pushed(Reg(number))),
            _ => None,
        }
    }

    fn hand_over_rest(&mut self) {
        self.hand_over(offset_of!(Resume, offset), self.offset as u32);
        self.hand_over(offset_of!(Resume, number), self.environment.number);
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
            let cell = self.frame.cell(Cell::Instructions);
            self.emitter.load32(RAX, cell);
            self.emitter.alu32_number(Alu::Add, RAX, self.shape.steps as i32);
            self.emitter.store32(of_resume(instructions), RAX);
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
        if let Some(label) = self.late_claim {
            return label;
        }
        self.claims = true;
        let aside = self.emitter.aside(Stream::Cold);
        let label = self.emitter.here_label();
        self.late_claim = Some(label);
        // The return address.
        let below = std::mem::replace(&mut self.frame.below, PUSHED + 8);
        self.pushes(0);
        self.processor(RDX);
        let mine = self.emitter.label();
        self.claim_shared(RDX, RBX, mine);
        // The return address, and all registers.
        self.emitter.pop(RAX);
        registers(ALL).collect::<Vec<_>>().into_iter().rev().for_each(|it| self.emitter.pop(it));
        let discard = self.discard;
        self.emitter.jump(discard);
        self.emitter.bind(mine);
        self.set_owner(RBX, None);
        self.emitter.ret();
        self.frame.below = below;
        self.emitter.back(aside);
        label
    }

    /// The code shared by all paths into the interpreter: calls it and restores the registers,
    /// which it may have changed. Emitted once.
    fn shared_leave(&mut self) -> Label {
        if let Some(label) = self.leave {
            return label;
        }
        let aside = self.emitter.aside(Stream::Cold);
        let label = self.emitter.here_label();
        self.leave = Some(label);
        self.frame.below = PUSHED;
        self.pushes(AGENT);
        let general = |register: Reg| {
            let place = offset_of!(Context, registers) + offset_of!(Registers, general);
            of_context(RBX, place + 8 * usize::from(register.0))
        };
        for register in registers(ALL) {
            let from = self.program_register(register);
            self.emitter.load(RAX, from);
            self.emitter.store(general(register), RAX);
        }
        self.site_rsp(RAX);
        self.emitter.store(general(RSP), RAX);
        let rip = offset_of!(Context, registers) + offset_of!(Registers, rip);
        self.emitter.store_site(of_context(RBX, rip), self.environment.site);
        if self.facts.reads_flags {
            let cell = self.frame.cell(Cell::AllFlags);
            let flags = offset_of!(Context, registers) + offset_of!(Registers, rflags);
            self.emitter.load(RAX, cell);
            self.emitter.store(of_context(RBX, flags), RAX);
        }
        self.emitter.load(RDI, RBX);
        self.emitter.number(RSI, self.environment.info.into());
        self.emitter.number(RAX, self.environment.agent.resume.into());
        self.emitter.call(RAX);
        if self.environment.tentative {
            let cell = self.frame.commit_cell();
            self.emitter.store(cell, RAX);
        }
        for register in registers(ALL) {
            let to = self.program_register(register);
            self.emitter.load(RAX, general(register));
            self.emitter.store(to, RAX);
        }
        self.emitter.store32_number(of_context(RBX, offset_of!(Context, claim)), FREE);
        registers(ALL).collect::<Vec<_>>().into_iter().rev().for_each(|it| self.emitter.pop(it));
        self.frame.below = 0;
        let epilogue = self.epilogue;
        self.emitter.jump(epilogue);
        self.emitter.back(aside);
        label
    }

    /// Where the program's value of a register is after all were pushed.
    fn program_register(&mut self, register: Reg) -> Rm {
        if self.frame.is_saved(register.0) { self.frame.saved_at(register.0) } else { pushed(register) }
    }
}
