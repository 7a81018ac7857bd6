//! Jumps, calls, and the ends of a run.

use bpf::{Alu, Cond, Reg, Size};
use vm::{CALL_DEPTH, CALL_LIMIT, Exception, Instruction};

use crate::compiler::Compiler;
use crate::emit::{ADDRESS, CONTEXT, Top};
use crate::layout::{FRAME, FRAME_MASK, FRAMES, Field, RECORD, frame};
use crate::nodes::{Node, is_direct};
use crate::record;

/// `parm1` of INVALID_OPERAND: an exit facility.
const FACILITY: i32 = 4;

impl Compiler<'_> {
    /// Emits the end of a node that falls through: carries on at the next one.
    pub(crate) fn fall_through(&mut self, from: usize, to: usize) {
        let next = self.nodes.list.range(from + 1..).next().map(|(&offset, &node)| (offset, node));
        match next {
            Some((offset, node)) if offset == to && is_direct(&self.nodes.list, from, to) => {
                if node.joined && node.top.is_none() {
                    self.e.flush();
                }
            }
            _ => self.go_to(from, to),
        }
    }

    /// Goes to another node.
    pub(crate) fn go_to(&mut self, from: usize, to: usize) {
        let Some(&Node { top, .. }) = self.nodes.list.get(&to) else { return };
        if top.is_none() {
            self.e.flush();
        }
        if is_direct(&self.nodes.list, from, to) {
            let label = self.labels[&to];
            self.e.asm.jump(label);
        } else {
            self.e.set(Field::Next, to as i32);
            self.e.end_step();
        }
    }

    /// Counts a jump, if one more is allowed. Uses `R1`.
    fn count_jump(&mut self) {
        let jmpmax = self.handler.jmpmax.min(vm::JUMP_LIMIT) as i32;
        let raise = self.e.raise(Exception::JMP_MAX, jmpmax, 0);
        self.e.get(Reg::R1, Field::Jumps);
        self.e.jump_if(Cond::Eq, Reg::R1, 0, raise);
        self.e.alu(Alu::Add, Reg::R1, -1);
        self.e.set(Field::Jumps, Reg::R1);
    }

    /// `jmp`, and the taken part of the other jumps.
    pub(crate) fn jump(&mut self, instruction: &Instruction) {
        self.count_jump();
        self.jump_counted(instruction);
    }

    fn jump_counted(&mut self, instruction: &Instruction) {
        match instruction.target(self.handler.code) {
            Some(target) => self.go_to(instruction.offset, target),
            None => self.invalid(instruction.offset),
        }
    }

    /// A jump unless the top satisfies a condition with 0, as a signed number.
    pub(crate) fn jump_unless(&mut self, condition: Cond, instruction: &Instruction) {
        let stay = self.e.asm.label();
        self.e.peek(Reg::R1, 0);
        let width = self.e.width();
        self.e.asm.jump_if(width, condition, Reg::R1, 0, stay);
        let top = self.e.top;
        self.jump(instruction);
        self.e.asm.bind(stay);
        self.e.top = top;
    }

    /// `loop`
    pub(crate) fn loop_back(&mut self, instruction: &Instruction) {
        self.count_jump();
        let stay = self.e.asm.label();
        self.e.peek(Reg::R1, 0);
        self.e.word_alu(Alu::Add, Reg::R1, -1);
        self.e.poke(0, Reg::R1);
        self.e.jump_if(Cond::Eq, Reg::R1, 0, stay);
        let top = self.e.top;
        self.jump_counted(instruction);
        self.e.asm.bind(stay);
        self.e.top = top;
    }

    /// `dst` = the address of the current frame, but for [`FRAMES`].
    pub(crate) fn frame(&mut self, dst: Reg) {
        self.e.get(dst, Field::Depth);
        self.e.alu(Alu::And, dst, FRAME_MASK);
        self.e.alu(Alu::Mul, dst, FRAME);
        self.e.alu(Alu::Add, dst, CONTEXT);
    }

    /// `call`
    pub(crate) fn call(&mut self, instruction: &Instruction) {
        let deep = self.e.raise(Exception::CALL_STACK_OVERFLOW, CALL_DEPTH as i32, 0);
        let many = self.e.raise(Exception::CALL_STACK_OVERFLOW, CALL_LIMIT as i32, 0);
        self.e.get(Reg::R1, Field::Depth);
        self.e.jump_if(Cond::Ge, Reg::R1, CALL_DEPTH as i32, deep);
        self.e.get(Reg::R2, Field::Calls);
        self.e.jump_if(Cond::Eq, Reg::R2, 0, many);
        let Some(target) = instruction.target(self.handler.code) else {
            return self.invalid(instruction.offset);
        };
        self.e.alu(Alu::Add, Reg::R1, 1);
        self.e.set(Field::Depth, Reg::R1);
        self.e.alu(Alu::Add, Reg::R2, -1);
        self.e.set(Field::Calls, Reg::R2);
        self.frame(Reg::R1);
        self.e.store_imm(Size::Double, Reg::R1, FRAMES + frame::CALLEE, target as i32);
        self.e.store_imm(Size::Double, Reg::R1, FRAMES + frame::BACK, instruction.next as i32);
        self.e.get(Reg::R2, Field::Base);
        self.e.store(Size::Double, Reg::R1, FRAMES + frame::BASE, Reg::R2);
        for word in (frame::HANDLER..FRAME as i16).step_by(8) {
            self.e.store_imm(Size::Double, Reg::R1, FRAMES + word, 0);
        }
        self.go_to(instruction.offset, target);
    }

    /// `ret`
    pub(crate) fn ret(&mut self) {
        let none = self.e.raise(Exception::CALL_STACK_OVERFLOW, 0, 0);
        self.e.get(Reg::R2, Field::Depth);
        self.e.jump_if(Cond::Eq, Reg::R2, 0, none);
        self.return_from_frame();
        self.e.load(Size::Double, Reg::R3, Reg::R1, FRAMES + frame::BACK);
        self.e.set(Field::Next, Reg::R3);
        self.e.flush();
        self.e.end_step();
    }

    /// Returns from a call, with its depth in `R2`: restores the base, and leaves the address of
    /// the frame in `R1`.
    pub(crate) fn return_from_frame(&mut self) {
        self.frame(Reg::R1);
        self.e.load(Size::Double, Reg::R3, Reg::R1, FRAMES + frame::BASE);
        self.e.set(Field::Base, Reg::R3);
        self.e.alu(Alu::Add, Reg::R2, -1);
        self.e.set(Field::Depth, Reg::R2);
    }

    /// `sx`
    pub(crate) fn set_handler(&mut self, instruction: &Instruction) {
        match instruction.target(self.handler.code) {
            Some(target) => {
                self.frame(Reg::R1);
                self.e.store_imm(Size::Double, Reg::R1, FRAMES + frame::HANDLER, target as i32 + 1);
            }
            None => self.invalid(instruction.offset),
        }
    }

    /// `ux`
    pub(crate) fn clear_handler(&mut self) {
        self.frame(Reg::R1);
        self.e.store_imm(Size::Double, Reg::R1, FRAMES + frame::HANDLER, 0);
    }

    /// Ends the run in one of the ways of [`record::end`].
    pub(crate) fn end_run(&mut self, end: i32) {
        self.e.flush();
        self.e.store_imm(Size::Word, CONTEXT, RECORD + record::END, end);
        self.e.mov(Reg::R0, 1);
        self.e.asm.exit();
    }

    /// `exit n`
    pub(crate) fn exit_to(&mut self, facility: u64) {
        match facility {
            1..=3 => {
                self.e.store_imm(Size::Word, CONTEXT, RECORD + record::FACILITY, facility as i32);
                self.end_run(record::end::EXIT_TO);
            }
            _ => self.raise_always(Exception::INVALID_OPERAND, FACILITY, facility as i32),
        }
    }

    /// Counts an instruction, if the run may execute one more.
    pub(crate) fn count_instruction(&mut self) {
        let top = self.e.top;
        let more = self.e.asm.label();
        self.e.get(Reg::R1, Field::Left);
        self.e.jump_if(Cond::Ne, Reg::R1, 0, more);
        self.e.flush();
        self.e.go(crate::routine::Micro::EndInstructions);
        self.e.asm.bind(more);
        self.e.top = top;
        self.e.alu(Alu::Add, Reg::R1, -1);
        self.e.set(Field::Left, Reg::R1);
    }

    /// In the program, when all rounds are used up: the run ends as if it had reached `insmax`.
    pub(crate) fn end_at_limit(&mut self) {
        self.e.store_imm(Size::Word, CONTEXT, RECORD + record::END, record::end::EXCEPTION);
        let insmax = self.handler.insmax.min(vm::INSTRUCTION_LIMIT) as i32;
        for (place, value) in
            [(record::CODE, i32::from(Exception::JMP_MAX)), (record::PARM1, insmax), (record::PARM2, 1)]
        {
            self.e.store_imm(Size::Double, CONTEXT, RECORD + place, value);
        }
    }

    /// The stack base pointer and its element: `dst` = the slot `dst` above the base.
    pub(crate) fn above_base(&mut self, index: Reg) {
        self.e.get(ADDRESS, Field::Base);
        self.e.alu(Alu::Add, index, ADDRESS);
    }

    /// The slot `index` above the top.
    pub(crate) fn above_top(&mut self, index: Reg) {
        match self.e.top {
            Top::Known(slot) => self.e.alu(Alu::Add, index, i32::from(slot)),
            Top::Above(distance) => {
                self.e.get(ADDRESS, Field::Top);
                self.e.alu(Alu::Add, index, ADDRESS);
                self.e.alu(Alu::Add, index, distance);
            }
        }
    }
}
