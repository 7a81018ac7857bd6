//! Local and global variables.

use crate::compiler::Compiler;
use crate::operands::{Alu, Condition, RAX, Reg, Rm};
use crate::registers::Operand;
use crate::shape::Location;
use vm::{Instruction, Op};

/// An operation on a variable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Push its value.
    Push,
    /// Set it to the popped element.
    Pop,
    /// Set it to the top, which stays.
    Move,
    /// Increment it.
    Increment,
    /// Decrement it.
    Decrement,
}

/// Local variables, or global ones.
#[derive(Clone, Copy)]
struct Kind {
    address: u32,
    count: u16,
}

impl Compiler<'_> {
    /// Emits an instruction on a variable. Returns false if it is not one, or is not compiled.
    pub(crate) fn variable(&mut self, instruction: Instruction) -> bool {
        use Access::{Decrement, Increment, Move, Pop, Push};
        let locals = Kind { address: self.environment.locals, count: self.handler.locals };
        let globals = Kind { address: self.environment.globals, count: self.handler.globals };
        let index = Some(instruction.operand);
        let (kind, access, index) = match instruction.op {
            Op::PushLvImm => (locals, Push, index),
            Op::PopLvImm => (locals, Pop, index),
            Op::MoveLvImm => (locals, Move, index),
            Op::IncLvImm => (locals, Increment, index),
            Op::DecLvImm => (locals, Decrement, index),
            Op::PushGvImm => (globals, Push, index),
            Op::PopGvImm => (globals, Pop, index),
            Op::MoveGvImm => (globals, Move, index),
            Op::IncGvImm => (globals, Increment, index),
            Op::DecGvImm => (globals, Decrement, index),
            Op::PushLv => (locals, Push, None),
            Op::PopLv => (locals, Pop, None),
            Op::MoveLv => (locals, Move, None),
            Op::IncLv => (locals, Increment, None),
            Op::DecLv => (locals, Decrement, None),
            Op::PushGv => (globals, Push, None),
            Op::PopGv => (globals, Pop, None),
            Op::MoveGv => (globals, Move, None),
            Op::IncGv => (globals, Increment, None),
            Op::DecGv => (globals, Decrement, None),
            _ => return false,
        };
        if let Some(counter) = self.counted(&instruction) {
            let scratch = self.take();
            self.count(&[counter], scratch, None);
            return true;
        }
        match index {
            Some(index) if index < kind.count.into() => {
                let variable = Rm::Absolute(kind.address + 8 * index as u32);
                self.access(access, variable, 0);
                true
            }
            Some(_) => false,
            None => self.indexed(kind, access),
        }
    }

    /// Emits the operation. `popped`: elements above the value to pop first.
    fn access(&mut self, access: Access, variable: Rm, popped: usize) {
        match access {
            Access::Push => {
                let register = self.take();
                self.emitter.load(register, variable);
                (0..popped).for_each(|_| self.pop());
                self.push(Location::Register(register.0));
            }
            Access::Pop | Access::Move => {
                // A single store, so that no other thread sees half of it.
                let register = self.value_register(popped);
                self.emitter.store(variable, register);
                let more = usize::from(access == Access::Pop);
                (0..popped + more).for_each(|_| self.pop());
            }
            Access::Increment | Access::Decrement => {
                self.emitter.step(true, access == Access::Decrement, variable);
                (0..popped).for_each(|_| self.pop());
            }
        }
    }

    /// A register that holds an element: its own register, or rax.
    pub(crate) fn value_register(&mut self, below: usize) -> Reg {
        match self.operand(below) {
            Operand::Register(register) => register,
            operand => {
                self.set(RAX, operand);
                self.frame.change(RAX);
                RAX
            }
        }
    }

    /// A variable whose index is on the stack: below the value for `pop`, else on top.
    fn indexed(&mut self, kind: Kind, access: Access) -> bool {
        let below = usize::from(access == Access::Pop);
        if let Operand::Number(index) = self.operand(below) {
            if index >= kind.count.into() {
                return false;
            }
            self.at_index(access, Rm::Absolute(kind.address + 8 * index as u32));
            return true;
        }
        let index = self.in_register(below);
        let leave = self.leave_here();
        self.emitter.alu_number(Alu::Cmp, index, kind.count.into());
        self.emitter.jump_if(Condition::AboveOrEqual, leave);
        self.at_index(access, Rm::Scaled(index, 3, kind.address as i32));
        true
    }

    fn at_index(&mut self, access: Access, variable: Rm) {
        if access == Access::Pop {
            let register = self.value_register(0);
            self.emitter.store(variable, register);
            self.pop();
            self.pop();
        } else {
            self.access(access, variable, 1);
        }
    }
}
