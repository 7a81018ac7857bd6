//! Variables, and the memory of the probed program.

use bpf::{Alu, Atomic, Cond, Helper, Insn, Reg, Size};
use vm::{Exception, Word};

use crate::compiler::Compiler;
use crate::emit::CONTEXT;
use crate::layout::{FRAMES, Field, Map, SCRATCH};
use crate::refusal::Reason;
use crate::routine::Micro;

/// The local variables, or the global ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variables {
    Local,
    Global,
}

impl Variables {
    /// `parm1` of the INVALID_OPERAND that an index out of range raises.
    pub(crate) fn kind(self) -> i32 {
        match self {
            Variables::Local => 1,
            Variables::Global => 2,
        }
    }

    pub(crate) fn map(self) -> Map {
        match self {
            Variables::Local => Map::Locals,
            Variables::Global => Map::Globals,
        }
    }
}

impl Compiler<'_> {
    /// How many variables there are.
    pub(crate) fn count_of(&self, which: Variables) -> i32 {
        match which {
            Variables::Local => self.handler.locals.into(),
            Variables::Global => self.handler.globals.into(),
        }
    }

    /// `R3` = the address of a variable: the one that the operand names, or `R2`.
    fn variable(&mut self, which: Variables, operand: Option<u64>) {
        let count = self.count_of(which);
        match operand {
            Some(index) if index < count as u64 => self.e.map_value(Reg::R3, which.map(), 8 * index as u32),
            Some(index) => {
                self.raise_always(Exception::INVALID_OPERAND, which.kind(), index as i32);
                self.e.map_value(Reg::R3, which.map(), 0);
            }
            None => {
                let bad = self.e.raise(Exception::INVALID_OPERAND, which.kind(), Reg::R2);
                self.e.jump_if(Cond::Ge, Reg::R2, count, bad);
                self.e.alu(Alu::Lsh, Reg::R2, 3);
                self.e.map_value(Reg::R3, which.map(), 0);
                self.e.alu(Alu::Add, Reg::R3, Reg::R2);
            }
        }
    }

    /// `push lv` and `push gv`.
    pub(crate) fn push_variable(&mut self, which: Variables, operand: Option<u64>) {
        if operand.is_none() {
            self.e.pop(Reg::R2);
        }
        self.variable(which, operand);
        self.e.load(Size::Double, Reg::R1, Reg::R3, 0);
        self.e.truncate(Reg::R1);
        self.e.push(Reg::R1);
    }

    /// `pop lv` and `pop gv`: with an operand, an index out of range pops nothing.
    pub(crate) fn pop_variable(&mut self, which: Variables, operand: Option<u64>) {
        if operand.is_none() {
            self.e.pop(Reg::R1);
            self.e.pop(Reg::R2);
            self.variable(which, None);
        } else {
            self.variable(which, operand);
            self.e.pop(Reg::R1);
        }
        self.e.store(Size::Double, Reg::R3, 0, Reg::R1);
    }

    /// `move lv` and `move gv`.
    pub(crate) fn move_variable(&mut self, which: Variables, operand: Option<u64>) {
        if operand.is_none() {
            self.e.pop(Reg::R2);
        }
        self.variable(which, operand);
        self.e.peek(Reg::R1, 0);
        self.e.store(Size::Double, Reg::R3, 0, Reg::R1);
    }

    /// `inc` and `dec`.
    pub(crate) fn add_variable(&mut self, which: Variables, operand: Option<u64>, by: i32) {
        if operand.is_none() {
            self.e.pop(Reg::R2);
        }
        self.variable(which, operand);
        self.e.mov(Reg::R1, by);
        self.e.asm.push(Insn::atomic(Atomic::Add, Size::Double, Reg::R3, 0, Reg::R1));
    }

    /// `R0` = 0 if `R2` bytes at the address `R3` were read into `R1`. They lie in one page.
    pub(crate) fn read(&mut self) {
        let user = if self.target.sleepable { Helper::COPY_FROM_USER } else { Helper::PROBE_READ_USER };
        self.e.reads = true;
        if !self.target.place.is_kernel() {
            return self.e.call(user);
        }
        let (of_kernel, done) = (self.e.asm.label(), self.e.asm.label());
        self.e.jump_if(Cond::Slt, Reg::R3, 0, of_kernel);
        self.e.call(user);
        self.e.asm.jump(done);
        self.e.asm.bind(of_kernel);
        self.e.call(Helper::PROBE_READ_KERNEL);
        self.e.asm.bind(done);
    }

    /// `push mem`: reads into the scratch; what faults is sorted out by a routine.
    pub(crate) fn push_memory(&mut self, bytes: i32) {
        self.e.pop(Reg::R8);
        let top = self.e.top;
        let (fault, read) = (self.e.asm.label(), self.e.asm.label());
        if self.handler.word == Word::W4 {
            // Addresses do not wrap, and the process may have memory behind the last one.
            self.e.number(Reg::R1, u64::from(u32::MAX) + 1 - bytes as u64);
            self.e.jump_if(Cond::Gt, Reg::R8, Reg::R1, fault);
        }
        self.e.part(Reg::R1, SCRATCH.into());
        self.e.mov(Reg::R2, bytes);
        self.e.mov(Reg::R3, Reg::R8);
        self.read();
        self.e.jump_if(Cond::Eq, Reg::R0, 0, read);
        self.e.asm.bind(fault);
        self.e.set(Field::A, Reg::R8);
        self.e.set(Field::B, bytes);
        self.e.flush();
        self.e.go(Micro::Fault);
        self.e.asm.bind(read);
        self.e.top = top;
        let size = match bytes {
            1 => Size::Byte,
            2 => Size::Half,
            4 => Size::Word,
            _ => Size::Double,
        };
        if bytes == 8 && self.handler.word == Word::W4 {
            self.e.load(Size::Word, Reg::R1, CONTEXT, SCRATCH + 4);
            self.e.push(Reg::R1);
            self.e.load(Size::Word, Reg::R1, CONTEXT, SCRATCH);
        } else {
            self.e.load(size, Reg::R1, CONTEXT, SCRATCH);
        }
        self.e.push(Reg::R1);
    }

    /// `pop mem`
    pub(crate) fn pop_memory(&mut self, bytes: i32, next: usize) -> Result<(), Reason> {
        if self.target.place.is_kernel() {
            return Err(Reason::WritesKernelMemory);
        }
        if !self.target.writes_memory {
            return Err(Reason::WritesMemory);
        }
        self.e.pop(Reg::R1);
        if bytes == 8 && self.handler.word == Word::W4 {
            self.e.pop(Reg::R2);
            self.e.alu(Alu::Lsh, Reg::R2, 32);
            self.e.alu(Alu::Or, Reg::R1, Reg::R2);
        }
        self.e.set(Field::C, Reg::R1);
        self.e.pop(Reg::R1);
        self.e.set(Field::A, Reg::R1);
        self.e.set(Field::B, bytes);
        self.run_routine(Micro::Store, next);
        Ok(())
    }

    /// `vfyr`
    pub(crate) fn verify(&mut self) {
        let done = self.e.asm.label();
        self.e.part(Reg::R1, SCRATCH.into());
        self.e.mov(Reg::R2, 1);
        self.e.peek(Reg::R3, 0);
        self.read();
        self.e.mov(Reg::R1, Reg::R0);
        self.e.jump_if(Cond::Eq, Reg::R1, 0, done);
        self.e.mov(Reg::R1, 1);
        self.e.asm.bind(done);
        self.e.poke(0, Reg::R1);
    }

    /// `trace lv`, `trace gv` and `trace pv`: pops a count, then the first.
    pub(crate) fn set_range(&mut self, range: i16) {
        self.e.pop(Reg::R2);
        self.e.pop(Reg::R3);
        self.frame(Reg::R1);
        self.e.store(Size::Double, Reg::R1, FRAMES + range, Reg::R3);
        self.e.store(Size::Double, Reg::R1, FRAMES + range + 8, Reg::R2);
    }
}
