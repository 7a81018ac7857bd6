//! Instructions that always continue with the next: arithmetic, variables, registers, codes.

use core::mem::offset_of;

use crate::frame::Cell;
use crate::map_operation::MapOperation;
use crate::operands::{Alu, Condition, RAX, RDX, Rm, Shift};
use crate::output::Operand;
use crate::owner::of_context;
use crate::run::Run;
use crate::scan::general;
use crate::shape::{Code, Location, Log};
use crate::texts::Texts;
use layout::{Context, PROCESSOR_MASK};
use vm::{Clock, Instruction, Op, Register};

impl Run<'_> {
    /// Emits an instruction that continues with the next. Returns false, with nothing relevant
    /// emitted, if it is not compiled.
    pub(crate) fn straight(&mut self, instruction: Instruction) -> bool {
        let Instruction { op, operand, .. } = instruction;
        match op {
            Op::Push => self.path.push(Location::Number(operand)),
            Op::PushWid => self.path.push(Location::Number(64_u64.wrapping_neg())),
            Op::PushR | Op::PushU => return self.push_register(instruction),
            Op::PopR | Op::PopU => return self.pop_register(instruction),
            Op::Add => self.path.binary(Alu::Add, u64::wrapping_add),
            Op::Sub => self.path.binary(Alu::Sub, u64::wrapping_sub),
            Op::And => self.path.binary(Alu::And, |first, second| first & second),
            Op::Or => self.path.binary(Alu::Or, |first, second| first | second),
            Op::Xor => self.path.binary(Alu::Xor, |first, second| first ^ second),
            Op::Mul => self.path.multiply(),
            Op::Eq => self.path.compare(Condition::Equal, |first, second| first == second),
            Op::Slt => self.path.compare(Condition::Less, |first, second| (first as i64) < second as i64),
            Op::Ult => self.path.compare(Condition::Below, |first, second| first < second),
            Op::Sar => self.path.shift_popped(Shift::RightSigned),
            Op::Quo => return self.divide_total(false, true),
            Op::Rem => return self.divide_total(false, false),
            Op::Squo => return self.divide_total(true, true),
            Op::Srem => return self.divide_total(true, false),
            Op::PushF => return self.path.push_word(operand as u16),
            Op::PopF => return self.path.pop_word(operand as u16),
            Op::Update | Op::Fetch | Op::Store | Op::Erase | Op::Load | Op::Put | Op::Bump | Op::Has => {
                return MapOperation::emit(self, op, operand as usize);
            }
            Op::StackOf => return MapOperation::stack(self, operand as usize),
            Op::TextF => return Texts { run: self }.constant(),
            Op::StrF => return Texts { run: self }.read(),
            Op::LogTextF => return Texts { run: self }.log(),
            Op::PushMinor => self.path.push(Location::Number(self.handler.minor.into())),
            Op::Neg => {
                let top = self.path.exclusive_register(0);
                self.path.out.emitter.not(top);
            }
            Op::RolImm => self.path.shift(Shift::RotateLeft, operand),
            Op::RorImm => self.path.shift(Shift::RotateRight, operand),
            Op::ShlImm => self.path.shift(Shift::Left, operand),
            Op::ShrImm => self.path.shift(Shift::Right, operand),
            Op::Rol => self.path.shift_popped(Shift::RotateLeft),
            Op::Ror => self.path.shift_popped(Shift::RotateRight),
            Op::Shl => self.path.shift_popped(Shift::Left),
            Op::Shr => self.path.shift_popped(Shift::Right),
            Op::Div => self.divide(false),
            Op::Idiv => self.divide(true),
            Op::PblImm | Op::PbrImm | Op::PzlImm | Op::PzrImm => return self.path.at_position(op, operand),
            Op::Pbl | Op::Pbr | Op::Pzl | Op::Pzr => return self.path.at_popped(op),
            Op::Xchg => self.path.exchange(),
            Op::DupImm => return self.path.duplicate(operand),
            Op::Ros => (0..operand).for_each(|_| self.path.pop()),
            Op::SetMajImm => self.code_number(false, operand as u16),
            Op::SetMinImm => self.code_number(true, operand as u16),
            Op::SetMaj => self.code_popped(false),
            Op::SetMin => self.code_popped(true),
            Op::PushPid => {
                let register = self.path.take();
                self.path.out.process_id(register);
                self.path.push(Location::Register(register.0));
            }
            Op::PushProcid => {
                let register = self.path.take();
                self.path.out.processor(register);
                self.path.out.emitter.alu32_number(Alu::And, register, PROCESSOR_MASK as i32);
                self.path.push(Location::Register(register.0));
            }
            Op::PushTid => self.push_thread(),
            Op::PushNsecs => return self.push_time(operand),
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

    fn push_thread(&mut self) {
        let register = self.path.take();
        if let Some(context) = self.context() {
            let holder = of_context(context, offset_of!(Context, holder));
            self.path.out.emitter.load32(register, holder);
        } else {
            self.path.out.with_rax();
            self.path.out.thread_id(register, None);
            self.path.out.emitter.load32(register, RAX);
        }
        self.path.push(Location::Register(register.0));
    }

    fn push_time(&mut self, number: u64) -> bool {
        let Some(clock) = Clock::of(number).filter(|_| self.path.out.has_clock()) else { return false };
        self.path.take_register(RDX);
        let register = self.path.take();
        let leave = self.side_exit();
        self.path.out.nanoseconds(clock, register, leave);
        self.path.push(Location::Register(register.0));
        true
    }

    fn push_register(&mut self, instruction: Instruction) -> bool {
        let Some(register) = instruction.register() else { return false };
        match (register, general(register)) {
            (_, Some((number, low))) => {
                if number == 4 {
                    let to = self.path.take();
                    self.path.out.site_rsp(to);
                    if low {
                        self.path.out.emitter.load32(to, to);
                    }
                    self.path.push(Location::Register(to.0));
                } else if self.facts.popped >> number & 1 != 0 {
                    // It may have been popped before: read the saved copy.
                    let to = self.path.take();
                    let from = self.path.out.frame.saved_at(number);
                    self.load_name(to, from, low);
                    self.path.push(Location::Register(to.0));
                } else if low {
                    let to = self.path.take();
                    self.path.push(Location::Program(number));
                    let from = self.path.operand(0).rm().expect("a register is no number");
                    self.path.pop();
                    self.load_name(to, from, low);
                    self.path.push(Location::Register(to.0));
                } else {
                    self.path.push(Location::Program(number));
                }
                true
            }
            (Register::Rip | Register::Eip, _) => {
                let site = self.path.out.environment.site;
                let low = register == Register::Eip;
                if !low && site > u64::from(u32::MAX) {
                    self.path.push(Location::Site);
                } else {
                    self.path.out.emitter.is_fixed = true;
                    self.path.push(Location::Number(if low { site & 0xffff_ffff } else { site }));
                }
                true
            }
            (Register::Rflags | Register::Eflags, _) => {
                let to = self.path.take();
                let from = self.path.out.frame.cell(Cell::AllFlags);
                self.load_name(to, from, register == Register::Eflags);
                self.path.push(Location::Register(to.0));
                true
            }
            _ => false,
        }
    }

    /// Sets a register to an operand or to its low half.
    fn load_name(&mut self, to: crate::operands::Reg, from: Rm, low: bool) {
        if low { self.path.out.emitter.load32(to, from) } else { self.path.out.emitter.load(to, from) }
    }

    fn pop_register(&mut self, instruction: Instruction) -> bool {
        let Some((number, low)) = instruction.register().and_then(general) else { return false };
        if number == 4 {
            return false;
        }
        let saved = self.path.out.frame.saved_at(number);
        let operand = self.path.operand(0);
        if low {
            let out = &mut self.path.out;
            out.set(RAX, operand);
            out.with_rax().load32(RAX, RAX);
            out.emitter.store(saved, RAX);
        } else {
            self.path.out.frame.change(RAX);
            self.path.out.store(saved, operand);
        }
        self.path.pop();
        true
    }

    /// Pops a divisor, then a dividend; pushes the remainder, then the quotient.
    fn divide(&mut self, signed: bool) {
        self.path.take_register(RDX);
        let divisor = self.path.copy(0);
        let leave = self.side_exit();
        self.path.out.emitter.test(divisor);
        self.path.out.emitter.jump_if(Condition::Equal, leave);
        let dividend = self.path.operand(1);
        let out = &mut self.path.out;
        out.set(RAX, dividend);
        out.frame.change(RAX);
        if signed {
            // The least number by -1 would trap. For divisor -1: negate, remainder 0.
            let (by_others, done) = (out.emitter.label(), out.emitter.label());
            out.emitter.alu_number(Alu::Cmp, divisor, -1);
            out.emitter.jump_if(Condition::NotEqual, by_others);
            out.emitter.negate(RAX);
            out.emitter.number(RDX, 0);
            out.emitter.jump(done);
            out.emitter.bind(by_others);
            out.emitter.sign();
            out.emitter.divide(true, divisor);
            out.emitter.bind(done);
        } else {
            out.emitter.number(RDX, 0);
            out.emitter.divide(false, divisor);
        }
        out.emitter.load(divisor, RAX);
        self.path.pop();
        self.path.pop();
        self.path.push(Location::Register(RDX.0));
        self.path.push(Location::Register(divisor.0));
    }

    /// Pops a dividend, then a divisor, and pushes the quotient or the remainder, if the divisor is
    /// a number that cannot trap.
    fn divide_total(&mut self, signed: bool, quotient: bool) -> bool {
        let Operand::Number(divisor) = self.path.operand(1) else { return false };
        if divisor == 0 || signed && divisor == u64::MAX {
            return false;
        }
        self.path.take_register(RDX);
        let register = self.path.take();
        let dividend = self.path.operand(0);
        let out = &mut self.path.out;
        out.set(RAX, dividend);
        out.frame.change(RAX);
        out.emitter.number(register, divisor);
        match signed {
            true => out.emitter.sign(),
            false => out.emitter.number(RDX, 0),
        }
        out.emitter.divide(signed, register);
        out.emitter.load(register, if quotient { RAX } else { RDX });
        self.path.pop();
        self.path.pop();
        self.path.push(Location::Register(register.0));
        true
    }

    fn code_number(&mut self, minor: bool, number: u16) {
        if self.mode == crate::run::Mode::Merged {
            let cell = self.path.out.frame.cell(if minor { Cell::Minor } else { Cell::Major });
            self.path.out.emitter.store_number(cell, number.into());
        } else {
            *self.code(minor) = Code::Number(number);
        }
    }

    fn code(&mut self, minor: bool) -> &mut Code {
        if minor { &mut self.path.shape.minor } else { &mut self.path.shape.major }
    }

    fn code_popped(&mut self, minor: bool) {
        if let Operand::Number(number) = self.path.operand(0) {
            self.code_number(minor, number as u16);
        } else {
            let register = self.path.in_register(0);
            let out = &mut self.path.out;
            let cell = out.frame.cell(if minor { Cell::Minor } else { Cell::Major });
            out.with_rax().load_sized(2, RAX, Rm::Reg(register));
            out.emitter.store(cell, RAX);
            *self.code(minor) = Code::Cell;
        }
        self.path.pop();
    }

    fn push_log_pointer(&mut self, cell: Cell) {
        match self.path.shape.log {
            Log::Known { length, complete } => {
                let value = if cell == Cell::Logged { length } else { complete };
                self.path.push(Location::Number(value as u64));
            }
            Log::Cells => {
                let register = self.path.take();
                let from = self.path.out.frame.cell(cell);
                self.path.out.emitter.load(register, from);
                self.path.push(Location::Register(register.0));
            }
        }
    }
}
