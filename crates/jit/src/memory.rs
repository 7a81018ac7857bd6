//! The program's memory: plain loads and stores. One that faults goes on where the run leaves compiled code, before the
//! instruction; the interpreter makes of it what it makes of it.

use crate::compiler::Compiler;
use crate::emit::{Label, Stream};
use crate::instructions::{Reg, Rm};
use crate::registers::Operand;
use crate::shape::Location;
use agent::layout::LOW_END;

impl Compiler<'_> {
    /// Notes that the next instruction, one access, may fault, and where it goes on then.
    ///
    /// rax is changed by a fault. No element is ever in it.
    pub(crate) fn guard(&mut self, repair: Label) {
        let access = self.emitter.here_label();
        self.guarded.push((access, repair));
    }

    /// The memory at the address that an element holds.
    pub(crate) fn memory_at(&mut self, below: usize) -> Rm {
        match self.operand(below) {
            Operand::Number(address) if address < LOW_END => Rm::Absolute(address as u32),
            _ => Rm::At(self.in_register(below), 0),
        }
    }

    /// `push mem`: pops an address and pushes the bytes there.
    pub(crate) fn push_memory(&mut self, size: usize) {
        let memory = self.memory_at(0);
        // Where nothing else is in the address' register, the value can replace it: a load that faults changes nothing.
        let to = match self.location(0) {
            Location::Register(number) if self.shape.holders(number) == 1 => Reg(number),
            _ => self.take(),
        };
        let leave = self.leave_here();
        self.guard(leave);
        self.emitter.load_sized(size, to, memory);
        self.pop();
        self.push(Location::Register(to.0));
    }

    /// `pop mem`: pops a value, then an address, and stores the value there.
    pub(crate) fn pop_memory(&mut self, size: usize) {
        let memory = self.memory_at(1);
        let leave = self.leave_here();
        let value = self.whole(0);
        self.guard(leave);
        self.emitter.store_sized(size, memory, value);
        self.pop();
        self.pop();
    }

    /// `vfyr`: pops an address and pushes 0 if a byte there can be read, else 1.
    pub(crate) fn verify(&mut self) {
        let memory = self.memory_at(0);
        let to = self.take();
        let (cannot, done) = (self.emitter.label(), self.emitter.label());
        self.emitter.number(to, 0);
        self.guard(cannot);
        self.with_rax().load_sized(1, crate::instructions::RAX, memory);
        self.emitter.bind(done);
        let aside = self.emitter.aside(Stream::Cold);
        self.emitter.bind(cannot);
        self.emitter.number(to, 1);
        self.emitter.jump(done);
        self.emitter.back(aside);
        self.pop();
        self.push(Location::Register(to.0));
    }
}
