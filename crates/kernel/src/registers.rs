//! Registers of the thread, in the kernel's `struct pt_regs`.

use bpf::{Alu, Cond, Helper, Insn, Reg, Size};
use vm::{Context, Op, Push, Register, RegisterSet, Shape, Word};

use crate::compiler::Compiler;
use crate::emit::{CONTEXT, REGISTERS};
use crate::handler::AttachKind;
use crate::layout::RECORD;
use crate::record;
use crate::refusal::Reason;

pub(crate) const IP: i16 = 128;
pub(crate) const CS: i16 = 136;
pub(crate) const FLAGS: i16 = 144;
pub(crate) const SP: i16 = 152;
pub(crate) const SS: i16 = 160;
/// The address accessed, in `struct bpf_perf_event_data`: behind the registers and the period.
pub(crate) const ADDRESS: i16 = 176;

/// The offset of a register, by any of its names.
pub(crate) fn offset(register: Register) -> Option<i16> {
    Some(match register {
        Register::R15 => 0,
        Register::R14 => 8,
        Register::R13 => 16,
        Register::R12 => 24,
        Register::Rbp | Register::Ebp => 32,
        Register::Rbx | Register::Ebx => 40,
        Register::R11 => 48,
        Register::R10 => 56,
        Register::R9 => 64,
        Register::R8 => 72,
        Register::Rax | Register::Eax => 80,
        Register::Rcx | Register::Ecx => 88,
        Register::Rdx | Register::Edx => 96,
        Register::Rsi | Register::Esi => 104,
        Register::Rdi | Register::Edi => 112,
        Register::Rip | Register::Eip => IP,
        Register::Cs => CS,
        Register::Rflags | Register::Eflags => FLAGS,
        Register::Rsp | Register::Esp => SP,
        Register::Ss => SS,
        _ => return None,
    })
}

/// Why a register cannot be read, if it has no place there.
fn unreadable(register: Register) -> Reason {
    match register.shape() {
        Shape::Cpuid => Reason::Cpuid,
        Shape::ModelSpecific => Reason::ModelSpecificRegister,
        Shape::DescriptorTable => Reason::ControlRegister,
        Shape::General => Reason::SegmentRegister,
        Shape::Word | Shape::Float | Shape::Vector => match register.push() {
            Push::Current => Reason::ControlRegister,
            Push::Both | Push::User => Reason::FloatRegister,
        },
    }
}

/// The register that an operand names, if the program's processor has it.
fn named(c: &Compiler<'_>, operand: u64) -> Option<Register> {
    let register = Register::from_index(operand as u16)?;
    let there = c.handler.word == Word::W8 || register.set() == RegisterSet::Both;
    there.then_some(register)
}

/// `push r` and `push u`.
pub(crate) fn push_register(c: &mut Compiler<'_>, op: Op, operand: u64, at: usize) -> Result<(), Reason> {
    let Some(register) = named(c, operand) else {
        c.invalid(at);
        return Ok(());
    };
    if c.target.place.has_fields() {
        return Err(Reason::NoRegisters);
    }
    let kernel = c.target.place.is_kernel();
    if !kernel && register.context() == Context::Kernel {
        // As in every user process: the number that it takes has been popped.
        c.e.discard(register.pops() as i32);
        c.invalid(at);
        return Ok(());
    }
    let place = offset(register).ok_or_else(|| unreadable(register))?;
    match place {
        _ if kernel && op == Op::PushU => user_register(c, register, place),
        // The program has computed it.
        IP => c.e.load(Size::Double, Reg::R1, CONTEXT, RECORD + record::IP),
        _ => c.e.load(Size::Double, Reg::R1, REGISTERS, place),
    }
    match register {
        // Some kernels keep more in the upper bits.
        Register::Cs | Register::Ss => c.e.alu(Alu::And, Reg::R1, 0xffff),
        _ if register.set() == RegisterSet::Both => c.e.asm.push(Insn::mov32(Reg::R1, Reg::R1)),
        _ => {}
    }
    c.e.push(Reg::R1);
    Ok(())
}

/// Loads a register of the user context into `R1`: as the task has entered the kernel with it.
fn user_register(c: &mut Compiler<'_>, register: Register, place: i16) {
    c.e.call(Helper::GET_CURRENT_TASK_BTF);
    c.e.mov(Reg::R1, Reg::R0);
    c.e.call(Helper::TASK_PT_REGS);
    // Newer kernels have members of two bytes there.
    let is_segment = matches!(register, Register::Cs | Register::Ss);
    let size = if is_segment { Size::Half } else { Size::Double };
    c.e.load(size, Reg::R1, Reg::R0, place);
}

/// `pop r` and `pop u`.
pub(crate) fn pop_register(c: &mut Compiler<'_>, op: Op, operand: u64, at: usize) -> Result<(), Reason> {
    let Some(register) = named(c, operand).filter(|register| register.can_pop()) else {
        c.invalid(at);
        return Ok(());
    };
    if c.target.place.has_fields() {
        return Err(Reason::NoRegisters);
    }
    if c.target.place.is_kernel() && op == Op::PopU {
        return Err(Reason::UserContext);
    }
    let place = offset(register).ok_or(Reason::SetsSegmentRegister)?;
    if !c.target.writes_registers || c.target.place != AttachKind::Uprobe {
        return Err(Reason::SetsRegister);
    }
    c.e.pop(Reg::R1);
    if register.set() == RegisterSet::Both {
        c.e.asm.push(Insn::mov32(Reg::R1, Reg::R1));
    }
    c.e.store(Size::Double, REGISTERS, place, Reg::R1);
    Ok(())
}

/// Stores the registers in the record's header. `push r, rip` takes the address from there.
pub(crate) fn store_in_record(c: &mut Compiler<'_>) {
    if c.target.place.has_fields() {
        for place in [record::SP, record::IP] {
            c.e.store_imm(Size::Double, CONTEXT, RECORD + place, 0);
        }
        return;
    }
    for (register, size, place) in [
        (SP, Size::Double, record::SP),
        // Some kernels keep more in the upper halves of the segment registers.
        (CS, Size::Half, record::CS),
        (SS, Size::Half, record::SS),
    ] {
        c.e.load(Size::Double, Reg::R0, REGISTERS, register);
        c.e.store(size, CONTEXT, RECORD + place, Reg::R0);
    }
    instruction_pointer(c);
    c.e.store(Size::Double, CONTEXT, RECORD + record::IP, Reg::R0);
}

/// `R0` = the probed instruction's address.
fn instruction_pointer(c: &mut Compiler<'_>) {
    let known = c.e.asm.label();
    if c.target.place == AttachKind::Kprobe {
        // The kernel calls programs with the address behind the breakpoint; the function tracer,
        // with one behind its call.
        c.e.mov(Reg::R1, REGISTERS);
        c.e.call(Helper::GET_FUNC_IP);
        c.e.jump_if(Cond::Ne, Reg::R0, 0, known);
        c.e.load(Size::Double, Reg::R0, REGISTERS, IP);
        c.e.alu(Alu::Add, Reg::R0, -1);
    } else {
        c.e.load(Size::Double, Reg::R0, REGISTERS, IP);
    }
    c.e.asm.bind(known);
}
