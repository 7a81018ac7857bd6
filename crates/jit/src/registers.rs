//! Allocates registers for stack elements and moves elements.

use crate::compiler::Compiler;
use crate::emit::Emitter;
use crate::frame::Cell;
use crate::operands::{Alu, RAX, RSP, Reg, Rm};
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

impl Compiler<'_> {
    /// The position in the shape of the element `below` the top.
    pub(crate) fn place_of(&self, below: usize) -> Option<usize> {
        self.shape.stack.len().checked_sub(below + 1)
    }

    /// Where the element `below` the top is.
    pub(crate) fn location(&self, below: usize) -> Location {
        // Elements below the lowest that the handler pops are 0.
        self.place_of(below).map_or(Location::Number(0), |place| self.shape.stack[place])
    }

    /// The element `below` the top as an operand.
    pub(crate) fn operand(&mut self, below: usize) -> Operand {
        let location = self.location(below);
        let place = self.place_of(below).unwrap_or(0);
        self.operand_of(location, place)
    }

    fn operand_of(&mut self, location: Location, place: usize) -> Operand {
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

    /// Stores the element at a position to its cell. Changes no flags, but rax.
    pub(crate) fn spill(&mut self, place: usize) {
        let operand = self.operand_of(self.shape.stack[place], place);
        let cell = self.frame.cell(Cell::Element(place));
        if operand != Operand::Memory(cell) {
            self.frame.change(RAX);
            self.store(cell, operand);
        }
        self.shape.stack[place] = Location::Cell;
    }

    /// Stores all elements of a register to their cells.
    fn free(&mut self, register: Reg) {
        while let Some(place) = self.shape.stack.iter().position(|it| *it == Location::Register(register.0)) {
            self.spill(place);
        }
    }

    /// Takes a register without elements that the current instruction does not use yet.
    pub(crate) fn take(&mut self) -> Reg {
        let usable = |register: &&Reg| self.locked >> register.0 & 1 == 0;
        let free = self.pool.iter().filter(usable).find(|register| !self.shape.holds(register.0));
        let register = match free {
            Some(register) => *register,
            None => {
                // No instruction uses more registers than the pool has, so there is one. The
                // deepest element is needed last.
                let held = self.shape.stack.iter().find_map(|location| match location {
                    Location::Register(number) if self.locked >> number & 1 == 0 => Some(Reg(*number)),
                    _ => None,
                });
                let held = held.unwrap_or(self.pool[0]);
                self.free(held);
                held
            }
        };
        self.use_register(register);
        register
    }

    /// Takes a given register; elements in it are stored to their cells.
    pub(crate) fn take_register(&mut self, register: Reg) {
        self.free(register);
        self.use_register(register);
    }

    fn use_register(&mut self, register: Reg) {
        self.locked |= 1 << register.0;
        self.frame.change(register);
    }

    /// A register that holds the element `below` the top; read only.
    pub(crate) fn in_register(&mut self, below: usize) -> Reg {
        let operand = self.operand(below);
        if let Operand::Register(register) = operand {
            self.locked |= 1 << register.0;
            return register;
        }
        self.load(below)
    }

    /// A register that holds only the element `below` the top, which may be changed. The element
    /// has no other copy.
    pub(crate) fn exclusive_register(&mut self, below: usize) -> Reg {
        if let Location::Register(number) = self.location(below)
            && self.shape.holders(number) == 1
        {
            self.use_register(Reg(number));
            return Reg(number);
        }
        self.load(below)
    }

    /// Loads the element `below` the top into a register of its own, which becomes its location.
    fn load(&mut self, below: usize) -> Reg {
        let register = self.copy(below);
        if let Some(place) = self.place_of(below) {
            self.shape.stack[place] = Location::Register(register.0);
        }
        register
    }

    /// A register with a copy of the element `below` the top, which may be changed. The element
    /// stays.
    pub(crate) fn copy(&mut self, below: usize) -> Reg {
        let register = self.take();
        // Taking a register may have moved the element.
        let operand = self.operand(below);
        self.set(register, operand);
        register
    }

    /// Pops an element.
    pub(crate) fn pop(&mut self) {
        self.shape.stack.pop();
    }

    /// Pushes an element. Load it first if it is in the cell of another position.
    pub(crate) fn push(&mut self, location: Location) {
        debug_assert!(location != Location::Cell);
        self.shape.stack.push(location);
    }

    /// Sets a register to the site's rsp.
    pub(crate) fn site_rsp(&mut self, register: Reg) {
        let size = self.frame.size();
        self.emitter.address(register, Rm::At(RSP, size));
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
}
