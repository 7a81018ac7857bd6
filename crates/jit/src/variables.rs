//! Local and global variables.

use crate::count::counted;
use crate::operands::{Alu, Condition, Rm};
use crate::output::Operand;
use crate::run::Run;
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

impl Run<'_> {
    /// Emits an instruction on a variable. Returns false if it is not one, or is not compiled.
    pub(crate) fn variable(&mut self, instruction: Instruction) -> bool {
        use Access::{Decrement, Increment, Move, Pop, Push};
        let locals = Kind { address: self.path.out.environment.locals, count: self.handler.locals };
        let globals = Kind { address: self.path.out.environment.globals, count: self.handler.globals };
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
        if let Some(counter) = counted(self.handler, self.path.out.environment, &instruction) {
            let scratch = self.path.take();
            self.path.out.count(&[counter], scratch, None);
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
                let register = self.path.take();
                self.path.out.emitter.load(register, variable);
                (0..popped).for_each(|_| self.path.pop());
                self.path.push(Location::Register(register.0));
            }
            Access::Pop | Access::Move => {
                // A single store, so that no other thread sees half of it.
                let register = self.path.value_register(popped);
                self.path.out.emitter.store(variable, register);
                let more = usize::from(access == Access::Pop);
                (0..popped + more).for_each(|_| self.path.pop());
            }
            Access::Increment | Access::Decrement => {
                self.path.out.emitter.step(true, access == Access::Decrement, variable);
                (0..popped).for_each(|_| self.path.pop());
            }
        }
    }

    /// A variable whose index is on the stack: below the value for `pop`, else on top.
    fn indexed(&mut self, kind: Kind, access: Access) -> bool {
        let below = usize::from(access == Access::Pop);
        if let Operand::Number(index) = self.path.operand(below) {
            if index >= kind.count.into() {
                return false;
            }
            self.at_index(access, Rm::Absolute(kind.address + 8 * index as u32));
            return true;
        }
        let index = self.path.in_register(below);
        let leave = self.side_exit();
        self.path.out.emitter.alu_number(Alu::Cmp, index, kind.count.into());
        self.path.out.emitter.jump_if(Condition::AboveOrEqual, leave);
        self.at_index(access, Rm::Scaled(index, 3, kind.address as i32));
        true
    }

    fn at_index(&mut self, access: Access, variable: Rm) {
        if access == Access::Pop {
            let register = self.path.value_register(0);
            self.path.out.emitter.store(variable, register);
            self.path.pop();
            self.path.pop();
        } else {
            self.access(access, variable, 1);
        }
    }
}
