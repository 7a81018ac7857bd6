//! Instructions that always continue with the next: arithmetic, variables, registers, codes.

use crate::compiler::Compiler;
use crate::frame::Cell;
use crate::operands::{Alu, Condition, RAX, RCX, RDX, Rm, Shift};
use crate::registers::Operand;
use crate::scan::general;
use crate::shape::{Code, Location, Log};
use layout::PROCESSOR_MASK;
use vm::{Instruction, Op, Register};

/// The most copies that `dup` makes in compiled code.
const COPIES: u64 = 32;

impl Compiler<'_> {
    /// Emits an instruction that continues with the next. Returns false, with nothing relevant
    /// emitted, if it is not compiled.
    pub(crate) fn straight(&mut self, instruction: Instruction) -> bool {
        let Instruction { op, operand, .. } = instruction;
        match op {
            Op::Push => self.push(Location::Number(operand)),
            Op::PushWid => self.push(Location::Number(64_u64.wrapping_neg())),
            Op::PushR | Op::PushU => return self.push_register(instruction),
            Op::PopR | Op::PopU => return self.pop_register(instruction),
            Op::Add => self.binary(Alu::Add, u64::wrapping_add),
            Op::Sub => self.binary(Alu::Sub, u64::wrapping_sub),
            Op::And => self.binary(Alu::And, |first, second| first & second),
            Op::Or => self.binary(Alu::Or, |first, second| first | second),
            Op::Xor => self.binary(Alu::Xor, |first, second| first ^ second),
            Op::Mul => self.multiply(),
            Op::Neg => {
                let top = self.exclusive_register(0);
                self.emitter.not(top);
            }
            Op::RolImm => self.shift(Shift::RotateLeft, operand),
            Op::RorImm => self.shift(Shift::RotateRight, operand),
            Op::ShlImm => self.shift(Shift::Left, operand),
            Op::ShrImm => self.shift(Shift::Right, operand),
            Op::Rol => self.shift_popped(Shift::RotateLeft),
            Op::Ror => self.shift_popped(Shift::RotateRight),
            Op::Shl => self.shift_popped(Shift::Left),
            Op::Shr => self.shift_popped(Shift::Right),
            Op::Div => self.divide(false),
            Op::Idiv => self.divide(true),
            Op::PblImm | Op::PbrImm | Op::PzlImm | Op::PzrImm => return self.at_position(op, operand),
            Op::Pbl | Op::Pbr | Op::Pzl | Op::Pzr => return self.at_popped(op),
            Op::Xchg => self.exchange(),
            Op::DupImm => return self.duplicate(operand),
            Op::Ros => (0..operand).for_each(|_| self.pop()),
            Op::SetMajImm => self.code_number(false, operand as u16),
            Op::SetMinImm => self.code_number(true, operand as u16),
            Op::SetMaj => self.code_popped(false),
            Op::SetMin => self.code_popped(true),
            Op::PushPid => {
                let register = self.take();
                self.process_id(register);
                self.push(Location::Register(register.0));
            }
            Op::PushProcid => {
                let register = self.take();
                self.processor(register);
                self.emitter.alu32_number(Alu::And, register, PROCESSOR_MASK as i32);
                self.push(Location::Register(register.0));
            }
            Op::PushLp => self.push_log_pointer(Cell::Logged),
            Op::PushPlp => self.push_log_pointer(Cell::Complete),
            Op::PushMem8 => self.push_memory(1),
            Op::PushMem16 => self.push_memory(2),
            Op::PushMem32 => self.push_memory(4),
            Op::PushMem64 => self.push_memory(8),
            Op::PopMem8 => self.pop_memory(1),
            Op::PopMem16 => self.pop_memory(2),
            Op::PopMem32 => self.pop_memory(4),
            Op::PopMem64 => self.pop_memory(8),
            Op::Vfyr => self.verify(),
            Op::LogImm | Op::Log | Op::LogStr | Op::LogMrf | Op::LogLv | Op::LogGv => {
                return self.log(instruction);
            }
            _ => return self.variable(instruction),
        }
        true
    }

    fn push_register(&mut self, instruction: Instruction) -> bool {
        let Some(register) = instruction.register() else { return false };
        match (register, general(register)) {
            (_, Some((number, low))) => {
                if number == 4 {
                    let to = self.take();
                    self.site_rsp(to);
                    if low {
                        self.emitter.load32(to, to);
                    }
                    self.push(Location::Register(to.0));
                } else if self.facts.popped >> number & 1 != 0 {
                    // It may have been popped before: read the saved copy.
                    let to = self.take();
                    let from = self.frame.saved_at(number);
                    self.load_name(to, from, low);
                    self.push(Location::Register(to.0));
                } else if low {
                    let to = self.take();
                    self.push(Location::Program(number));
                    let from = self.operand(0).rm().expect("a register is no number");
                    self.pop();
                    self.load_name(to, from, low);
                    self.push(Location::Register(to.0));
                } else {
                    self.push(Location::Program(number));
                }
                true
            }
            (Register::Rip | Register::Eip, _) => {
                let site = self.environment.site;
                let low = register == Register::Eip;
                if !low && site > u64::from(u32::MAX) {
                    self.push(Location::Site);
                } else {
                    self.emitter.is_fixed = true;
                    self.push(Location::Number(if low { site & 0xffff_ffff } else { site }));
                }
                true
            }
            (Register::Rflags | Register::Eflags, _) => {
                let to = self.take();
                let from = self.frame.cell(Cell::AllFlags);
                self.load_name(to, from, register == Register::Eflags);
                self.push(Location::Register(to.0));
                true
            }
            _ => false,
        }
    }

    /// Sets a register to an operand or to its low half.
    fn load_name(&mut self, to: crate::operands::Reg, from: Rm, low: bool) {
        if low { self.emitter.load32(to, from) } else { self.emitter.load(to, from) }
    }

    fn pop_register(&mut self, instruction: Instruction) -> bool {
        let Some((number, low)) = instruction.register().and_then(general) else { return false };
        if number == 4 {
            return false;
        }
        let saved = self.frame.saved_at(number);
        let operand = self.operand(0);
        if low {
            self.set(RAX, operand);
            self.with_rax().load32(RAX, RAX);
            self.emitter.store(saved, RAX);
        } else {
            self.frame.change(RAX);
            self.store(saved, operand);
        }
        self.pop();
        true
    }

    /// Pops two elements and pushes `op` of the first popped and the second.
    fn binary(&mut self, op: Alu, known: fn(u64, u64) -> u64) {
        if let (Operand::Number(first), Operand::Number(second)) = (self.operand(0), self.operand(1)) {
            self.pop();
            self.pop();
            self.push(Location::Number(known(first, second)));
            return;
        }
        let swaps = op != Alu::Sub && matches!(self.operand(0), Operand::Number(_));
        let (to, other) = if swaps { (1, 0) } else { (0, 1) };
        if let Operand::Register(register) = self.operand(other) {
            self.locked |= 1 << register.0;
        }
        let register = self.exclusive_register(to);
        let operand = self.operand(other);
        self.apply(op, register, operand);
        self.pop();
        self.pop();
        self.push(Location::Register(register.0));
    }

    fn multiply(&mut self) {
        if let Operand::Register(register) = self.operand(1) {
            self.locked |= 1 << register.0;
        }
        let register = self.exclusive_register(0);
        let operand = self.operand(1);
        match operand.rm() {
            Some(rm) => self.emitter.multiply(register, rm),
            None => {
                self.set(RAX, operand);
                self.with_rax().multiply(register, RAX);
            }
        }
        self.pop();
        self.pop();
        self.push(Location::Register(register.0));
    }

    /// Shifts the top by a number, modulo 64.
    fn shift(&mut self, op: Shift, count: u64) {
        let register = self.exclusive_register(0);
        self.emitter.shift(op, register, (count & 63) as u8);
    }

    /// Pops a value, then a count, and pushes the value shifted.
    fn shift_popped(&mut self, op: Shift) {
        if let Operand::Number(count) = self.operand(1) {
            let register = self.exclusive_register(0);
            self.emitter.shift(op, register, (count & 63) as u8);
            self.pop();
            self.pop();
            self.push(Location::Register(register.0));
            return;
        }
        // The processor also takes counts modulo 64.
        self.take_register(RCX);
        let register = self.exclusive_register(0);
        let count = self.operand(1);
        self.set(RCX, count);
        self.emitter.shift_by_cl(op, register);
        self.pop();
        self.pop();
        self.push(Location::Register(register.0));
    }

    /// Pops a divisor, then a dividend; pushes the remainder, then the quotient.
    fn divide(&mut self, signed: bool) {
        self.take_register(RDX);
        let divisor = self.copy(0);
        let leave = self.leave_here();
        self.emitter.test(divisor);
        self.emitter.jump_if(Condition::Equal, leave);
        let dividend = self.operand(1);
        self.set(RAX, dividend);
        self.frame.change(RAX);
        if signed {
            // The least number by -1 would trap. For divisor -1: negate, remainder 0.
            let (by_others, done) = (self.emitter.label(), self.emitter.label());
            self.emitter.alu_number(Alu::Cmp, divisor, -1);
            self.emitter.jump_if(Condition::NotEqual, by_others);
            self.emitter.negate(RAX);
            self.emitter.number(RDX, 0);
            self.emitter.jump(done);
            self.emitter.bind(by_others);
            self.emitter.sign();
            self.emitter.divide(true, divisor);
            self.emitter.bind(done);
        } else {
            self.emitter.number(RDX, 0);
            self.emitter.divide(false, divisor);
        }
        self.emitter.load(divisor, RAX);
        self.pop();
        self.pop();
        self.push(Location::Register(RDX.0));
        self.push(Location::Register(divisor.0));
    }

    /// Applies an instruction at a bit position, 1 to 64, to the top.
    fn at_position(&mut self, op: Op, position: u64) -> bool {
        if !(1..=64).contains(&position) {
            return false;
        }
        let bit = 1_u64 << (position - 1);
        let (above, below) = (!(bit | (bit - 1)), bit - 1);
        let register = self.exclusive_register(0);
        // The bits in the instruction's direction.
        let mask = if matches!(op, Op::Pbl | Op::PblImm | Op::Pzl | Op::PzlImm) { above } else { below };
        let copies = matches!(op, Op::Pbl | Op::PblImm | Op::Pbr | Op::PbrImm);
        if copies {
            // Clear the mask, then set it if the bit is set; the bit itself is not in the mask.
            let unset = self.emitter.label();
            self.apply(Alu::And, register, Operand::Number(!mask));
            self.emitter.bit_test(register, (position - 1) as u8);
            self.emitter.jump_if(Condition::AboveOrEqual, unset);
            self.apply(Alu::Or, register, Operand::Number(mask));
            self.emitter.bind(unset);
        } else {
            self.apply(Alu::And, register, Operand::Number(!mask));
        }
        true
    }

    /// Pops a known position and applies the instruction to the new top.
    fn at_popped(&mut self, op: Op) -> bool {
        let Operand::Number(position) = self.operand(0) else { return false };
        if !(1..=64).contains(&position) {
            return false;
        }
        self.pop();
        self.at_position(op, position)
    }

    fn exchange(&mut self) {
        // A cell belongs to its position, so load it.
        for below in [0, 1] {
            if self.location(below) == Location::Cell {
                self.in_register(below);
            }
        }
        let (top, next) = (self.location(0), self.location(1));
        self.pop();
        self.pop();
        self.push(top);
        self.push(next);
    }

    fn duplicate(&mut self, copies: u64) -> bool {
        if copies > COPIES {
            return false;
        }
        if self.location(0) == Location::Cell {
            self.in_register(0);
        }
        let top = self.location(0);
        (0..copies).for_each(|_| self.push(top));
        true
    }

    fn code_number(&mut self, minor: bool, number: u16) {
        if self.mode == crate::compiler::Mode::Merged {
            let cell = self.frame.cell(if minor { Cell::Minor } else { Cell::Major });
            self.emitter.store_number(cell, number.into());
        } else {
            *self.code(minor) = Code::Number(number);
        }
    }

    fn code(&mut self, minor: bool) -> &mut Code {
        if minor { &mut self.shape.minor } else { &mut self.shape.major }
    }

    fn code_popped(&mut self, minor: bool) {
        if let Operand::Number(number) = self.operand(0) {
            self.code_number(minor, number as u16);
        } else {
            let register = self.in_register(0);
            let cell = self.frame.cell(if minor { Cell::Minor } else { Cell::Major });
            self.with_rax().load_sized(2, RAX, Rm::Reg(register));
            self.emitter.store(cell, RAX);
            *self.code(minor) = Code::Cell;
        }
        self.pop();
    }

    fn push_log_pointer(&mut self, cell: Cell) {
        match self.shape.log {
            Log::Known { length, complete } => {
                let value = if cell == Cell::Logged { length } else { complete };
                self.push(Location::Number(value as u64));
            }
            Log::Cells => {
                let register = self.take();
                let from = self.frame.cell(cell);
                self.emitter.load(register, from);
                self.push(Location::Register(register.0));
            }
        }
    }
}
