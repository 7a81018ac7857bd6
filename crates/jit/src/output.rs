//! The code of a handler while it is written, with the frame that it runs in.

use core::mem::offset_of;

use layout::{Context, Identity, Registers, claim};

use crate::emit::{Emitter, Label, Stream};
use crate::environment::Environment;
use crate::frame::{Cell, Frame, registers};
use crate::operands::{Alu, Condition, RAX, RDX, RSP, Reg, Rm, Shift};
use crate::owner::of_context;
use crate::shape::Location;

/// Where an instruction finds an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Number(u64),
    /// The site's address.
    Site,
    Register(Reg),
    Memory(Rm),
}

impl Operand {
    /// The operand for an instruction without immediate; `None` for a number.
    pub(crate) fn rm(self) -> Option<Rm> {
        match self {
            Operand::Number(_) | Operand::Site => None,
            Operand::Register(register) => Some(Rm::Reg(register)),
            Operand::Memory(memory) => Some(memory),
        }
    }

    /// The number, if it fits in 32 bits sign-extended.
    pub(crate) fn short(self) -> Option<i32> {
        match self {
            Operand::Number(number) => i32::try_from(number as i64).ok(),
            _ => None,
        }
    }
}

/// Code being written. It knows where data is, but no bytecode and no elements.
pub(crate) struct Output<'a> {
    pub(crate) environment: &'a Environment<'a>,
    pub(crate) emitter: Emitter,
    pub(crate) frame: Frame,
    /// The epilogue, and the epilogue for a hit without a record.
    pub(crate) epilogue: Label,
    pub(crate) discard: Label,
    /// The accesses that may fault, each with where it then continues.
    pub(crate) guarded: Vec<(Label, Label)>,
    /// The most bytes pushed below the frame.
    pub(crate) deepest: i32,
}

impl<'a> Output<'a> {
    /// No code yet, for a handler with this frame.
    pub(crate) fn new(environment: &'a Environment<'a>, frame: Frame) -> Output<'a> {
        let mut emitter = Emitter::new();
        let (epilogue, discard) = (emitter.label(), emitter.label());
        Output { environment, emitter, frame, epilogue, discard, guarded: Vec::new(), deepest: 0 }
    }

    /// Notes that the next instruction, one memory access, may fault and then continues at
    /// `repair`.
    ///
    /// A fault changes rax, which never holds an element.
    pub(crate) fn guard(&mut self, repair: Label) {
        let access = self.emitter.here_label();
        self.guarded.push((access, repair));
    }

    /// Notes that this many bytes are pushed below the frame and what is below it already.
    pub(crate) fn pushes(&mut self, bytes: i32) {
        self.deepest = self.deepest.max(self.frame.below + bytes);
    }

    /// An element at a position of the shape as an operand.
    pub(crate) fn operand(&mut self, location: Location, place: usize) -> Operand {
        match location {
            Location::Number(number) => Operand::Number(number),
            Location::Site => Operand::Site,
            Location::Program(number) if self.frame.is_saved(number) => {
                Operand::Memory(self.frame.saved_at(number))
            }
            Location::Program(number) | Location::Register(number) => Operand::Register(Reg(number)),
            Location::Cell => Operand::Memory(self.frame.cell(Cell::Element(place))),
        }
    }

    /// Sets a register to an operand. Changes no flags.
    pub(crate) fn set(&mut self, register: Reg, operand: Operand) {
        match operand {
            Operand::Number(number) => self.emitter.number(register, number),
            Operand::Site => self.emitter.site(register, self.environment.site),
            Operand::Register(from) => self.emitter.load(register, from),
            Operand::Memory(memory) => self.emitter.load(register, memory),
        }
    }

    /// Stores an operand; one in memory, through rax. Changes no flags.
    pub(crate) fn store(&mut self, to: Rm, operand: Operand) {
        match operand {
            Operand::Number(number) => self.emitter.store_number(to, number),
            Operand::Site => self.emitter.store_site(to, self.environment.site),
            Operand::Register(from) => self.emitter.store(to, from),
            Operand::Memory(memory) => {
                self.emitter.load(RAX, memory);
                self.emitter.store(to, RAX);
            }
        }
    }

    /// Sets a register to the site's rsp.
    pub(crate) fn site_rsp(&mut self, register: Reg) {
        let size = self.frame.size();
        self.emitter.address(register, Rm::At(RSP, size));
    }

    /// Stores the program's general registers and rip in a context, as they are now. Changes rax.
    pub(crate) fn store_program_registers(&mut self, context: Reg) {
        self.frame.change(RAX);
        let place = |offset: usize| of_context(context, offset_of!(Context, registers) + offset);
        let general = |register: Reg| place(offset_of!(Registers, general) + 8 * usize::from(register.0));
        for register in registers(!(1 << RSP.0)) {
            if self.frame.is_saved(register.0) {
                let saved = self.frame.saved_at(register.0);
                self.emitter.load(RAX, saved);
                self.emitter.store(general(register), RAX);
            } else {
                self.emitter.store(general(register), register);
            }
        }
        self.site_rsp(RAX);
        self.emitter.store(general(RSP), RAX);
        self.emitter.store_site(place(offset_of!(Registers, rip)), self.environment.site);
    }

    /// Applies an operation to a register and an operand; large numbers go through rax.
    pub(crate) fn apply(&mut self, op: Alu, register: Reg, operand: Operand) {
        match (operand.short(), operand.rm()) {
            (Some(short), _) => self.emitter.alu_number(op, register, short),
            (None, Some(rm)) => self.emitter.alu(op, register, rm),
            (None, None) => {
                self.set(RAX, operand);
                self.frame.change(RAX);
                self.emitter.alu(op, register, RAX);
            }
        }
    }

    /// The emitter, with rax noted as changed.
    pub(crate) fn with_rax(&mut self) -> &mut Emitter {
        self.frame.change(RAX);
        &mut self.emitter
    }

    /// Sets edx:eax to the time stamp counter, or to its substitute.
    pub(crate) fn time(&mut self) {
        let (coarse, done) = (self.emitter.label(), self.emitter.label());
        let clockless = self.identity(offset_of!(Identity, no_rdtsc));
        let time = self.identity(offset_of!(Identity, time));
        self.emitter.alu32_number(Alu::Cmp, clockless, 0);
        self.emitter.jump_if(Condition::NotEqual, coarse);
        self.emitter.time();
        self.emitter.bind(done);
        let stream = self.emitter.aside(Stream::Cold);
        self.emitter.bind(coarse);
        self.emitter.load(RAX, time);
        self.emitter.load(RDX, RAX);
        self.emitter.shift(Shift::Right, RDX, 32);
        self.emitter.jump(done);
        self.emitter.end_detour(stream);
    }

    /// Sets rdx to the time stamp counter or its substitute. Changes rax.
    pub(crate) fn time_in_one(&mut self) {
        self.time();
        self.emitter.shift(Shift::Left, RDX, 32);
        self.emitter.alu(Alu::Or, RDX, RAX);
    }

    /// Ends a run that makes no record, or whose record is discarded. `claimed`: the register of
    /// its claimed context.
    pub(crate) fn end_without_record(&mut self, claimed: Option<Reg>) {
        if let Some(context) = claimed {
            let claim = of_context(context, offset_of!(Context, claim));
            self.emitter.store32_number(claim, claim::FREE);
        }
        self.forget_record();
        let epilogue = self.epilogue;
        self.emitter.jump(epilogue);
    }

    /// If records are tentative, notes that there is none: commit code then writes to a dummy word.
    pub(crate) fn forget_record(&mut self) {
        if self.environment.tentative {
            let nothing = self.environment.identity + offset_of!(Identity, dummy_state) as u32;
            let cell = self.frame.commit_cell();
            self.emitter.store_number(cell, nothing.into());
        }
    }
}
