//! Jumps, calls, and the end of a run.

use crate::compiler::{Compiler, Next, SLACK, TooLarge};
use crate::emit::{Label, Stream};
use crate::frame::Cell;
use crate::operands::{Alu, Condition, RAX, Rm};
use crate::output::Operand;
use crate::run::Mode;
use crate::shape::{Count, Location};
use core::mem::offset_of;
use layout::ProbeEnd;
use vm::{CALL_DEPTH, CALL_LIMIT, Instruction, JUMP_LIMIT, Op};

impl Compiler<'_> {
    /// Emits an instruction that may not continue with the next.
    pub(crate) fn control(&mut self, instruction: Instruction) -> Result<Next, TooLarge> {
        match instruction.op {
            Op::Jmp => self.always(instruction),
            Op::Loop => self.repeat(instruction),
            Op::Call => Ok(self.enter(instruction)),
            Op::Ret => Ok(match self.run.path.shape.calls.pop() {
                Some((_, back)) => Next::At(back as usize),
                None => self.give_up(),
            }),
            Op::Jlt => self.conditional(instruction, Condition::Less, |top| top < 0),
            Op::Jle => self.conditional(instruction, Condition::LessOrEqual, |top| top <= 0),
            Op::Jgt => self.conditional(instruction, Condition::Greater, |top| top > 0),
            Op::Jge => self.conditional(instruction, Condition::GreaterOrEqual, |top| top >= 0),
            Op::Jz => self.conditional(instruction, Condition::Equal, |top| top == 0),
            _ => self.conditional(instruction, Condition::NotEqual, |top| top != 0),
        }
    }

    /// The most jumps that a run may take.
    fn jmpmax(&self) -> u32 {
        self.run.handler.jmpmax.min(JUMP_LIMIT)
    }

    /// Counts a taken jump; leaves compiled code if it exceeds the limit. Returns false if that is
    /// known already.
    fn count_jump(&mut self) -> bool {
        match self.run.path.shape.jumps {
            Count::Known(count) if count >= self.jmpmax() => false,
            Count::Known(count) => {
                self.run.path.shape.jumps = Count::Known(count + 1);
                true
            }
            Count::Cell => {
                let leave = self.run.side_exit();
                if self.run.counts_steps {
                    self.look_at_steps(leave);
                }
                let cell = self.run.path.out.frame.cell(Cell::Jumps);
                self.run.path.out.emitter.alu_number(Alu::Cmp, cell, self.jmpmax() as i32);
                self.run.path.out.emitter.jump_if(Condition::AboveOrEqual, leave);
                self.run.path.out.emitter.alu_number(Alu::Add, cell, 1);
                if self.run.counts_steps {
                    self.run.path.shape.steps += 1;
                    self.step_counted = true;
                    self.count_steps();
                }
                true
            }
        }
    }

    /// Leaves compiled code if the run might exceed its instruction limit before the next check, or
    /// if its probe was removed; the interpreter decides.
    fn look_at_steps(&mut self, leave: Label) {
        let most = self.run.handler.insmax.min(vm::INSTRUCTION_LIMIT) - SLACK;
        let out = &mut self.run.path.out;
        let cell = out.frame.cell(Cell::Instructions);
        out.emitter.alu_number(Alu::Cmp, cell, most as i32);
        out.emitter.jump_if(Condition::Above, leave);
        let removed = Rm::Absolute(out.environment.over + offset_of!(ProbeEnd, removed) as u32);
        out.emitter.alu32_number(Alu::Cmp, removed, 0);
        out.emitter.jump_if(Condition::NotEqual, leave);
    }

    /// Adds the pending instructions to their cell. Changes flags only if there are any; there are
    /// none after a counted jump.
    pub(crate) fn count_steps(&mut self) {
        let steps = std::mem::take(&mut self.run.path.shape.steps);
        if steps > 0 {
            let cell = self.run.path.out.frame.cell(Cell::Instructions);
            self.run.path.out.emitter.alu_number(Alu::Add, cell, steps as i32);
        }
    }

    fn always(&mut self, instruction: Instruction) -> Result<Next, TooLarge> {
        match instruction.target(self.run.handler.code) {
            Some(target) if self.count_jump() => Ok(Next::At(target)),
            _ => Ok(self.give_up()),
        }
    }

    /// A conditional jump on the top.
    fn conditional(
        &mut self,
        instruction: Instruction,
        condition: Condition,
        known: fn(i64) -> bool,
    ) -> Result<Next, TooLarge> {
        let constant = match self.run.path.operand(0) {
            Operand::Number(number) => Some(number),
            // The site's address is always above 0.
            Operand::Site => Some(self.run.path.out.environment.site),
            _ => None,
        };
        if let Some(number) = constant {
            return if known(number as i64) {
                self.always(instruction)
            } else {
                Ok(Next::At(instruction.next))
            };
        }
        match self.run.path.operand(0) {
            Operand::Register(register) => self.run.path.out.emitter.test(register),
            Operand::Memory(memory) => self.run.path.out.emitter.alu_number(Alu::Cmp, memory, 0),
            Operand::Number(_) | Operand::Site => unreachable!("dealt with above"),
        }
        let not_taken = self.run.path.shape.clone();
        self.branch(condition, instruction)?;
        self.run.path.shape = not_taken;
        self.step_counted = false;
        Ok(Next::At(instruction.next))
    }

    /// Jumps on a condition of the flags, and counts the jump.
    fn branch(&mut self, condition: Condition, instruction: Instruction) -> Result<(), TooLarge> {
        let Some(target) = instruction.target(self.run.handler.code) else {
            let leave = self.run.side_exit();
            self.run.path.out.emitter.jump_if(condition, leave);
            return Ok(());
        };
        if matches!(self.run.path.shape.jumps, Count::Known(_)) {
            let to = if self.count_jump() { self.jump_target(target)? } else { self.run.side_exit() };
            self.run.path.out.emitter.jump_if(condition, to);
            return Ok(());
        }
        // Count and settle only if the jump is taken.
        let skip = self.run.path.out.emitter.label();
        self.run.path.out.emitter.jump_if(condition.not(), skip);
        self.count_jump();
        let to = self.jump_target(target)?;
        self.run.path.out.emitter.jump(to);
        self.run.path.out.emitter.bind(skip);
        Ok(())
    }

    /// `loop`: counts the jump, decrements the top, and jumps if it is not 0.
    fn repeat(&mut self, instruction: Instruction) -> Result<Next, TooLarge> {
        let Some(target) = instruction.target(self.run.handler.code) else { return Ok(self.give_up()) };
        if self.run.path.place_of(0).is_none() {
            // Below the lowest element: it has no place to store the result.
            return Ok(self.give_up());
        }
        if !self.count_jump() {
            return Ok(self.give_up());
        }
        if let Operand::Number(number) = self.run.path.operand(0) {
            let number = number.wrapping_sub(1);
            self.run.path.pop();
            self.run.path.push(Location::Number(number));
            return Ok(Next::At(if number != 0 { target } else { instruction.next }));
        }
        let top = self.run.path.exclusive_register(0);
        self.run.path.out.emitter.alu_number(Alu::Sub, top, 1);
        let not_taken = self.run.path.shape.clone();
        // Settling changes no flags.
        let to = self.jump_target(target)?;
        self.run.path.out.emitter.jump_if(Condition::NotEqual, to);
        if self.run.mode == Mode::Known {
            self.run.path.shape = not_taken;
        }
        Ok(Next::At(instruction.next))
    }

    /// `call`: the callee is compiled inline.
    fn enter(&mut self, instruction: Instruction) -> Next {
        let Some(target) = instruction.target(self.run.handler.code) else { return self.give_up() };
        if self.run.path.shape.calls.len() >= CALL_DEPTH {
            return self.give_up();
        }
        match self.run.path.shape.calls_made {
            Count::Known(count) if count >= CALL_LIMIT => return self.give_up(),
            Count::Known(count) => self.run.path.shape.calls_made = Count::Known(count + 1),
            Count::Cell => {
                let leave = self.run.side_exit();
                let out = &mut self.run.path.out;
                let cell = out.frame.cell(Cell::Calls);
                out.emitter.alu_number(Alu::Cmp, cell, CALL_LIMIT as i32);
                out.emitter.jump_if(Condition::AboveOrEqual, leave);
                out.emitter.alu_number(Alu::Add, cell, 1);
            }
        }
        self.run.path.shape.calls.push((target as u32, instruction.next as u32));
        Next::At(target)
    }

    /// `exit`, `abort`, `remove`.
    pub(crate) fn end_run(&mut self, op: Op) -> Next {
        if op == Op::Remove {
            let again = self.run.path.out.emitter.label();
            let over = self.run.path.out.environment.over;
            let closed = Rm::Absolute(over + offset_of!(ProbeEnd, closed) as u32);
            let removed = Rm::Absolute(over + offset_of!(ProbeEnd, removed) as u32);
            let emitter = self.run.path.out.with_rax();
            emitter.number(RAX, ProbeEnd::BY_HANDLER.into());
            emitter.exchange32(RAX, removed);
            emitter.store32_number(closed, 1);
            emitter.test32(RAX);
            emitter.jump_if(Condition::NotEqual, again);
            // Another thread's run removed the probe first: only one hit is the last.
            let before = self.run.path.out.emitter.aside(Stream::Cold);
            self.run.path.out.emitter.bind(again);
            self.run.end_without_record();
            self.run.path.out.emitter.end_detour(before);
        }
        if op == Op::Abort || self.run.handler.logmax == 0 {
            self.run.end_without_record();
        } else {
            self.run.end_with_record();
        }
        Next::End
    }
}
