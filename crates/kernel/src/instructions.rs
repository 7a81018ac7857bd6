//! What each instruction of the bytecode becomes.

use bpf::{Alu, Cond, Helper, Reg, Size};
use vm::{Context, Instruction, Op, Operand};

use crate::access::Variables;
use crate::compiler::Compiler;
use crate::emit::Top;
use crate::layout::{Field, SLOT_MASK};
use crate::nodes::{INLINE_DUP, Node};
use crate::record;
use crate::refusal::{Reason, Refusal};
use crate::routine::Micro;
use crate::{arithmetic, fields, frame, logging, registers, scripts};

impl Compiler<'_> {
    /// Emits a node.
    pub(crate) fn node(&mut self, offset: usize, node: &Node) -> Result<(), Refusal> {
        if self.nodes.counts {
            self.count_instruction();
        }
        let Some(instruction) = node.instruction else {
            self.invalid(offset);
            self.e.end_step();
            return Ok(());
        };
        self.instruction(&instruction).map_err(|reason| Refusal { reason, offset })?;
        if instruction.row().transfer.falls_through() {
            self.fall_through(offset, instruction.next);
        } else {
            // After what ends in an exception in any case.
            self.e.end_step();
        }
        Ok(())
    }

    /// Each instruction is named here: without a `_`, none that is added to the table is compiled
    /// as another.
    fn instruction(&mut self, it: &Instruction) -> Result<(), Reason> {
        let operand = it.operand;
        match it.op {
            // Execution.
            Op::Nop => {}
            Op::Jmp => self.jump(it),
            Op::Jlt => self.jump_unless(Cond::Sge, it),
            Op::Jle => self.jump_unless(Cond::Sgt, it),
            Op::Jgt => self.jump_unless(Cond::Sle, it),
            Op::Jge => self.jump_unless(Cond::Slt, it),
            Op::Jz => self.jump_unless(Cond::Ne, it),
            Op::Jnz => self.jump_unless(Cond::Eq, it),
            Op::Loop => self.loop_back(it),
            Op::Call => self.call(it),
            Op::Ret => self.ret(),
            Op::Abort => self.end_run(record::end::ABORT),
            Op::Remove => self.end_run(record::end::REMOVE),
            Op::Exit => self.end_run(record::end::EXIT),
            Op::ExitTo if self.target.place.is_kernel() && !(self.target.facilities && operand < 3) => {
                return Err(Reason::Facility);
            }
            Op::ExitTo => self.exit_to(operand),

            // Logging.
            Op::SetMinImm => logging::set_code(self, record::MINOR, Some(operand)),
            Op::SetMin => logging::set_code(self, record::MINOR, None),
            Op::SetMajImm => logging::set_code(self, record::MAJOR, Some(operand)),
            Op::SetMaj => logging::set_code(self, record::MAJOR, None),
            Op::LogStr => logging::log_range(self, Micro::Text, it.next),
            Op::LogMrf => logging::log_range(self, Micro::Memory, it.next),
            Op::LogImm => logging::log_elements(self, operand, it.next),
            Op::LogB | Op::LogW | Op::LogD => return Err(Reason::Parts),
            Op::Log => logging::log_counted(self, it.next),
            Op::LogLv => logging::log_variables(self, Variables::Local, it.next),
            Op::LogGv => logging::log_variables(self, Variables::Global, it.next),

            // Variables.
            Op::PushGvImm => self.push_variable(Variables::Global, Some(operand)),
            Op::PushGv => self.push_variable(Variables::Global, None),
            Op::PopGvImm => self.pop_variable(Variables::Global, Some(operand)),
            Op::PopGv => self.pop_variable(Variables::Global, None),
            Op::MoveGvImm => self.move_variable(Variables::Global, Some(operand)),
            Op::MoveGv => self.move_variable(Variables::Global, None),
            Op::IncGvImm => self.add_variable(Variables::Global, Some(operand), 1),
            Op::IncGv => self.add_variable(Variables::Global, None, 1),
            Op::DecGvImm => self.add_variable(Variables::Global, Some(operand), -1),
            Op::DecGv => self.add_variable(Variables::Global, None, -1),
            Op::PushLvImm => self.push_variable(Variables::Local, Some(operand)),
            Op::PushLv => self.push_variable(Variables::Local, None),
            Op::PopLvImm => self.pop_variable(Variables::Local, Some(operand)),
            Op::PopLv => self.pop_variable(Variables::Local, None),
            Op::MoveLvImm => self.move_variable(Variables::Local, Some(operand)),
            Op::MoveLv => self.move_variable(Variables::Local, None),
            Op::IncLvImm => self.add_variable(Variables::Local, Some(operand), 1),
            Op::IncLv => self.add_variable(Variables::Local, None, 1),
            Op::DecLvImm => self.add_variable(Variables::Local, Some(operand), -1),
            Op::DecLv => self.add_variable(Variables::Local, None, -1),

            // Arithmetic and logic.
            Op::Add => arithmetic::binary(self, Alu::Add),
            Op::Sub => arithmetic::binary(self, Alu::Sub),
            Op::Mul => arithmetic::binary(self, Alu::Mul),
            Op::And => arithmetic::binary(self, Alu::And),
            Op::Or => arithmetic::binary(self, Alu::Or),
            Op::Xor => arithmetic::binary(self, Alu::Xor),
            Op::Neg => arithmetic::complement(self),
            Op::RolImm | Op::RorImm | Op::ShlImm | Op::ShrImm => arithmetic::shift_by(self, it.op, operand),
            Op::Rol | Op::Ror | Op::Shl | Op::Shr => arithmetic::shift(self, it.op),
            Op::Div => arithmetic::divide(self),
            Op::Idiv => arithmetic::divide_signed(self),
            Op::PblImm | Op::PbrImm | Op::PzlImm | Op::PzrImm => {
                arithmetic::at_position(self, it.op, Some(operand))
            }
            Op::Pbl | Op::Pbr | Op::Pzl | Op::Pzr => arithmetic::at_position(self, it.op, None),
            Op::Xchg => {
                self.e.peek(Reg::R1, 0);
                self.e.peek(Reg::R2, 1);
                self.e.poke(0, Reg::R2);
                self.e.poke(1, Reg::R1);
            }
            Op::DupImm => self.copies_of_top(operand, it.next),
            Op::Dup => {
                self.e.pop(Reg::R1);
                self.e.pop(Reg::R2);
                self.copies(it.next);
            }
            Op::Ros => self.e.discard(operand as i32),

            // Registers and data.
            Op::PushR | Op::PushU => registers::push_register(self, it.op, operand, it.offset)?,
            Op::PopR | Op::PopU => registers::pop_register(self, it.op, operand, it.offset)?,
            Op::Push => self.push_number(operand),
            Op::PushMem8 => self.push_memory(1),
            Op::PushMem16 => self.push_memory(2),
            Op::PushMem32 => self.push_memory(4),
            Op::PushMem64 => self.push_memory(8),
            Op::PopMem8 => self.pop_memory(1, it.next)?,
            Op::PopMem16 => self.pop_memory(2, it.next)?,
            Op::PopMem32 => self.pop_memory(4, it.next)?,
            Op::PopMem64 => self.pop_memory(8, it.next)?,
            Op::Vfyr => self.verify(),
            Op::Vfyrw => return Err(Reason::VerifiesWriting),

            // System.
            Op::PushPid => {
                self.e.call(Helper::GET_CURRENT_PID_TGID);
                self.e.alu(Alu::Rsh, Reg::R0, 32);
                self.e.push(Reg::R0);
            }
            Op::PushProcid => {
                self.e.get(Reg::R1, Field::Cpu);
                self.e.push(Reg::R1);
            }
            Op::PushTask if self.target.place.is_kernel() => {
                self.e.call(Helper::GET_CURRENT_TASK);
                self.e.truncate(Reg::R0);
                self.e.push(Reg::R0);
            }
            Op::PushTask => self.invalid(it.offset),
            Op::PushField => fields::push_field(self, operand, it.offset)?,
            Op::PushParent => return Err(Reason::Parent),
            Op::Override => return Err(Reason::Returns),
            Op::Signal if operand > 1 => self.invalid(it.offset),
            Op::Signal => {
                self.e.pop(Reg::R1);
                self.e.call(if operand == 0 { Helper::SEND_SIGNAL } else { Helper::SEND_SIGNAL_THREAD });
            }
            Op::GlobF => return Err(Reason::Pattern),
            Op::Seg2lin => return Err(Reason::Selector),
            Op::Callk => return Err(Reason::Plugins),
            Op::PushIo8 | Op::PushIo16 | Op::PushIo32 | Op::PopIo8 | Op::PopIo16 | Op::PopIo32 => {
                if self.target.place.is_kernel() {
                    return Err(Reason::Ports);
                }
                // As in every user process: the operands have been popped.
                debug_assert_eq!(it.row().context, Context::Kernel);
                self.e.discard(it.row().pops.map_or(0, i32::from));
                self.invalid(it.offset);
            }

            // Exceptions.
            Op::Sx => self.set_handler(it),
            Op::Ux => self.clear_handler(),
            Op::Rx => self.run_routine(Micro::Again, it.next),
            Op::PushX => {
                for field in [Field::LastParm2, Field::LastParm1, Field::LastCode] {
                    self.e.get(Reg::R1, field);
                    self.e.push(Reg::R1);
                }
            }

            // Scripts.
            Op::Eq => scripts::compare(self, Cond::Eq),
            Op::Slt => scripts::compare(self, Cond::Slt),
            Op::Ult => scripts::compare(self, Cond::Lt),
            Op::Quo => scripts::unsigned(self, Alu::Div),
            Op::Rem => scripts::unsigned(self, Alu::Mod),
            Op::Squo => scripts::signed(self, Alu::Div),
            Op::Srem => scripts::signed(self, Alu::Mod),
            Op::Sar => scripts::shift_signed(self),
            Op::PushTid => scripts::thread_id(self),
            Op::PushNsecs => scripts::time(self, it),
            Op::PushMinor => self.push_number(self.handler.point.minor.into()),
            Op::PushRand => scripts::random(self),
            Op::PushIds => scripts::user_ids(self),

            // The frame.
            Op::PushF => frame::push(self, operand),
            Op::PopF => frame::pop(self, operand),
            Op::PushF8 => frame::push_byte(self),
            Op::FillF => frame::fill(self),
            Op::MoveF => frame::copy(self),
            Op::ReadF => frame::read(self),
            Op::StrF => frame::text(self, it.next),
            Op::TextF => frame::constant(self),
            Op::CompareF => frame::two_ranges(self, Micro::FrameCompare, it.next),
            Op::FindF => frame::two_ranges(self, Micro::FrameFind, it.next),
            Op::LogF => frame::log(self, false),
            Op::LogTextF => frame::log(self, true),
            Op::CommF => frame::name(self),

            // Maps.
            Op::Update
            | Op::Fetch
            | Op::Store
            | Op::Erase
            | Op::Load
            | Op::Put
            | Op::Bump
            | Op::Has
            | Op::Next
            | Op::Entries
            | Op::StackOf
            | Op::KStackOf
            | Op::Depth => scripts::map(self, it)?,

            // Internal registers.
            Op::PushSbp | Op::PushSbpImm => self.push_element(it, Self::above_base),
            Op::PopSbp | Op::PopSbpImm => self.pop_element(it, Self::above_base),
            Op::CopySbp | Op::CopySbpImm => self.copy_to_element(it, Self::above_base),
            Op::PushTsp | Op::PushTspImm => self.push_element(it, Self::above_top),
            Op::PopTsp | Op::PopTspImm => self.pop_element(it, Self::above_top),
            Op::CopyTsp | Op::CopyTspImm => self.copy_to_element(it, Self::above_top),
            Op::SaveSbp => self.push_field(Field::Base),
            Op::RestoreSbp => {
                self.e.pop(Reg::R1);
                self.e.alu(Alu::And, Reg::R1, SLOT_MASK);
                self.e.set(Field::Base, Reg::R1);
            }
            Op::SaveTsp => {
                self.e.mov(Reg::R1, 0);
                self.above_top(Reg::R1);
                self.e.alu(Alu::And, Reg::R1, SLOT_MASK);
                self.e.push(Reg::R1);
            }
            Op::RestoreTsp => {
                self.e.peek(Reg::R1, 0);
                self.e.alu(Alu::And, Reg::R1, SLOT_MASK);
                self.e.set(Field::Top, Reg::R1);
                self.e.top = Top::Above(0);
            }
            Op::PushLp => self.push_field(Field::Length),
            Op::PushPlp => self.push_field(Field::Complete),
            Op::PopLp => self.run_routine_with_top(Micro::Pointer, it.next),
            Op::PushWid => {
                let bits = u64::from(self.handler.word.bits());
                self.push_number(self.handler.word.truncate(bits.wrapping_neg()));
            }

            // Stack tracing and the heap.
            Op::LogSt => {
                self.e.set(Field::BackFromTrace, 0);
                self.run_routine(Micro::Trace, it.next);
            }
            Op::PurgeSt => {
                self.e.set(Field::TraceLength, 0);
                self.e.set(Field::TraceFull, 0);
            }
            Op::TraceLv => self.set_range(crate::layout::frame::LOCALS),
            Op::TraceGv => self.set_range(crate::layout::frame::GLOBALS),
            Op::TracePv => self.set_range(crate::layout::frame::ELEMENTS),
            Op::PushStp => self.push_field(Field::TraceLength),
            Op::PopStp => self.run_routine_with_top(Micro::TraceCut, it.next),
            Op::Malloc => self.run_routine_with_top(Micro::Allocate, it.next),
            Op::Free => {
                self.e.pop(Reg::R1);
                self.e.set(Field::A, Reg::R1);
                self.e.set(Field::B, 0);
                logging::find_block(self, Micro::Free, it.next);
            }
            Op::PushH8 => logging::heap_values(self, Micro::PushHeap, 1, it),
            Op::PushH16 => logging::heap_values(self, Micro::PushHeap, 2, it),
            Op::PushH32 => logging::heap_values(self, Micro::PushHeap, 4, it),
            Op::PushH64 => logging::heap_values(self, Micro::PushHeap, 8, it),
            Op::PopH8 => logging::heap_values(self, Micro::PopHeap, 1, it),
            Op::PopH16 => logging::heap_values(self, Micro::PopHeap, 2, it),
            Op::PopH32 => logging::heap_values(self, Micro::PopHeap, 4, it),
            Op::PopH64 => logging::heap_values(self, Micro::PopHeap, 8, it),
        }
        Ok(())
    }

    /// Pushes an element, by its distance from a stack register: the operand, or the top.
    fn push_element(&mut self, it: &Instruction, above: fn(&mut Self, Reg)) {
        self.distance(it);
        above(self, Reg::R2);
        self.push_slot();
    }

    /// Sets an element to what is popped. A distance that is an operand is from the register as it
    /// was before.
    fn pop_element(&mut self, it: &Instruction, above: fn(&mut Self, Reg)) {
        if it.row().operand == Operand::None {
            self.e.pop(Reg::R1);
            self.e.pop(Reg::R2);
            above(self, Reg::R2);
        } else {
            self.distance(it);
            above(self, Reg::R2);
            self.e.pop(Reg::R1);
        }
        self.set_slot();
    }

    /// Sets an element to the top.
    fn copy_to_element(&mut self, it: &Instruction, above: fn(&mut Self, Reg)) {
        self.distance(it);
        above(self, Reg::R2);
        self.e.peek(Reg::R1, 0);
        self.set_slot();
    }

    /// `R2` = a signed distance: the operand, or the top, which is popped.
    fn distance(&mut self, it: &Instruction) {
        match it.row().operand {
            Operand::None => self.e.pop(Reg::R2),
            _ => self.e.mov(Reg::R2, i32::from(it.operand as u16 as i16)),
        }
    }

    /// Pops a value, which a routine takes (`A`).
    fn run_routine_with_top(&mut self, micro: Micro, next: usize) {
        self.e.pop(Reg::R1);
        self.e.set(Field::A, Reg::R1);
        self.run_routine(micro, next);
    }

    /// Pushes the element in the slot `R2`.
    fn push_slot(&mut self) {
        let (base, offset) = self.e.slot_address(Reg::R2);
        self.e.load(Size::Double, Reg::R1, base, offset);
        self.e.push(Reg::R1);
    }

    /// Sets the element in the slot `R2` to `R1`.
    fn set_slot(&mut self) {
        let (base, offset) = self.e.slot_address(Reg::R2);
        self.e.store(Size::Double, base, offset, Reg::R1);
    }

    fn push_field(&mut self, field: Field) {
        self.e.get(Reg::R1, field);
        self.e.push(Reg::R1);
    }

    /// `dup n`
    fn copies_of_top(&mut self, count: u64, next: usize) {
        self.e.pop(Reg::R1);
        if count <= INLINE_DUP {
            (0..=count).for_each(|_| self.e.push(Reg::R1));
        } else {
            self.e.mov(Reg::R2, count as i32);
            self.copies(next);
        }
    }

    /// Pushes `R1` `R2` + 1 times.
    fn copies(&mut self, next: usize) {
        self.e.set(Field::A, Reg::R1);
        self.e.set(Field::B, Reg::R2);
        self.run_routine(Micro::Copies, next);
    }

    /// Pushes a number.
    pub(crate) fn push_number(&mut self, number: u64) {
        match i32::try_from(number as i64) {
            Ok(small) => self.e.push(small),
            Err(_) => {
                self.e.number(Reg::R1, number);
                self.e.push(Reg::R1);
            }
        }
    }
}
