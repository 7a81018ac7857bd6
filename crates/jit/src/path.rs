//! The path being compiled: what is known of a run on it, and the registers for its elements.

use crate::frame::Cell;
use crate::operands::{RAX, Reg};
use crate::output::{Operand, Output};
use crate::shape::{Location, Shape};

/// A path through the handler, at its current instruction.
pub(crate) struct Path<'a> {
    pub(crate) out: Output<'a>,
    pub(crate) shape: Shape,
    /// The registers for elements, in order of preference at the start.
    pub(crate) pool: Vec<Reg>,
    /// The registers that the current instruction uses, as a bit set.
    pub(crate) locked: u16,
}

impl Path<'_> {
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
        self.out.operand(location, place)
    }

    /// Stores the element at a position to its cell. Changes no flags, but rax.
    pub(crate) fn spill(&mut self, place: usize) {
        let operand = self.out.operand(self.shape.stack[place], place);
        let cell = self.out.frame.cell(Cell::Element(place));
        if operand != Operand::Memory(cell) {
            self.out.frame.change(RAX);
            self.out.store(cell, operand);
        }
        self.shape.stack[place] = Location::Cell;
    }

    /// The word of the handler's frame at an index of the shape as an operand.
    pub(crate) fn word_operand(&mut self, index: usize) -> Operand {
        let (offset, location) = self.shape.words[index];
        match location {
            Location::Cell => Operand::Memory(self.out.frame.cell(Cell::Word(offset))),
            location => self.out.operand(location, 0),
        }
    }

    /// Stores the word at an index to its cell. Changes no flags, but rax.
    fn spill_word(&mut self, index: usize) {
        let operand = self.word_operand(index);
        let cell = self.out.frame.cell(Cell::Word(self.shape.words[index].0));
        if operand != Operand::Memory(cell) {
            self.out.frame.change(RAX);
            self.out.store(cell, operand);
        }
        self.shape.words[index].1 = Location::Cell;
    }

    /// Stores all elements and words of a register to their cells.
    fn free(&mut self, register: Reg) {
        let is_there = |(_, location): &(u16, Location)| *location == Location::Register(register.0);
        while let Some(index) = self.shape.words.iter().position(is_there) {
            self.spill_word(index);
        }
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
                // No instruction uses more registers than the pool has, so there is one. A word
                // is as a rule needed later than an element, the deepest element last.
                let words = self.shape.words.iter().map(|(_, location)| location);
                let held = words.chain(&self.shape.stack).find_map(|location| match location {
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
        self.out.frame.change(register);
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
        self.out.set(register, operand);
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

    /// A register that holds an element: its own register, or rax.
    pub(crate) fn value_register(&mut self, below: usize) -> Reg {
        match self.operand(below) {
            Operand::Register(register) => register,
            operand => {
                self.out.set(RAX, operand);
                self.out.frame.change(RAX);
                RAX
            }
        }
    }

    /// Lets later instructions take a register again.
    pub(crate) fn unlock(&mut self, register: Reg) {
        self.locked &= !(1 << register.0);
    }

    /// Stores every element and word to its cell. Changes no flags.
    pub(crate) fn settle(&mut self) {
        for index in 0..self.shape.words.len() {
            if self.shape.words[index].1 != Location::Cell {
                self.spill_word(index);
            }
        }
        for place in 0..self.shape.stack.len() {
            if self.shape.stack[place] != Location::Cell {
                self.spill(place);
            }
        }
    }
}
