//! Fields of a tracepoint's record, which is the program's context; or words that are arguments.
//!
//! ```text
//!     push field, ret       R1 = *(u64 *)(registers + 16)
//!     push field, comm      scratch = registers; R1 = scratch + 16
//! ```
//!
//! An address goes through memory, where the verifier forgets that it is one: it is then a number
//! like any other.

use bpf::{Alu, Helper, Insn, Reg, Size};

use crate::compiler::Compiler;
use crate::emit::{CONTEXT, REGISTERS};
use crate::layout::SCRATCH;
use crate::refusal::Reason;
use crate::tracepoints::FieldAccess;

/// `push field`; `at` is its offset in the bytecode.
pub(crate) fn push_field(c: &mut Compiler<'_>, index: u64, at: usize) -> Result<(), Reason> {
    if !c.target.place.has_fields() {
        if c.target.place.is_kernel() {
            return Err(Reason::NoRecord);
        }
        // As in every user process.
        c.invalid(at);
        return Ok(());
    }
    let Some(field) = usize::try_from(index).ok().and_then(|index| c.fields.get(index)) else {
        c.invalid(at);
        return Ok(());
    };
    match field.ok_or(Reason::NoSuchField)? {
        FieldAccess::Integer { offset, size, signed } => integer(c, offset as i16, size, signed),
        FieldAccess::Inline { offset } => {
            record_address(c);
            c.e.alu(Alu::Add, Reg::R1, i32::from(offset));
        }
        FieldAccess::Located { offset, from } => {
            record_address(c);
            c.e.load(Size::Word, Reg::R2, REGISTERS, offset as i16);
            c.e.alu(Alu::And, Reg::R2, 0xffff);
            c.e.alu(Alu::Add, Reg::R1, Reg::R2);
            c.e.alu(Alu::Add, Reg::R1, i32::from(from));
        }
        FieldAccess::Word { offset } => {
            // It may be an address that the verifier knows, of a struct of the kernel.
            c.e.load(Size::Double, Reg::R1, REGISTERS, offset as i16);
            c.e.store(Size::Double, CONTEXT, SCRATCH, Reg::R1);
            c.e.load(Size::Double, Reg::R1, CONTEXT, SCRATCH);
        }
        FieldAccess::Thread => {
            c.e.call(Helper::GET_CURRENT_PID_TGID);
            c.e.asm.push(Insn::mov32(Reg::R1, Reg::R0));
        }
        FieldAccess::Constant(number) => c.e.number(Reg::R1, number.into()),
        FieldAccess::Hidden => return Err(Reason::HiddenField),
    }
    c.e.truncate(Reg::R1);
    c.e.push(Reg::R1);
    Ok(())
}

/// `R1` = the address of the record, as a number.
fn record_address(c: &mut Compiler<'_>) {
    c.e.store(Size::Double, CONTEXT, SCRATCH, REGISTERS);
    c.e.load(Size::Double, Reg::R1, CONTEXT, SCRATCH);
}

/// `R1` = an integer of the record. The kernel allows aligned loads only: others are done byte
/// by byte.
fn integer(c: &mut Compiler<'_>, offset: i16, size: u8, signed: bool) {
    let bits = 8 * i32::from(size);
    let whole = match size {
        1 => Size::Byte,
        2 => Size::Half,
        4 => Size::Word,
        _ => Size::Double,
    };
    if offset % i16::from(size) == 0 {
        c.e.load(whole, Reg::R1, REGISTERS, offset);
    } else {
        c.e.mov(Reg::R1, 0);
        for byte in (0..i16::from(size)).rev() {
            c.e.load(Size::Byte, Reg::R2, REGISTERS, offset + byte);
            c.e.alu(Alu::Lsh, Reg::R1, 8);
            c.e.alu(Alu::Or, Reg::R1, Reg::R2);
        }
    }
    if signed && bits < 64 {
        c.e.alu(Alu::Lsh, Reg::R1, 64 - bits);
        c.e.alu(Alu::Arsh, Reg::R1, 64 - bits);
    }
}
