//! Floating-point numbers: converted to integers by what their bits say.
//!
//! ```text
//! sign | exponent | fraction        of 64 bits: 1, 11, 52; of 32: 1, 8, 23
//! ```

use crate::ast::Expr;
use crate::types::{Integer, Type};
use vm::Op;

use super::compiler::{Compiler, Result};

/// The bits of the fraction, the greatest exponent, and the exponent of 1.
fn layout(bytes: u8) -> (u8, u64, u64) {
    match bytes {
        4 => (23, 0xff, 0x7f),
        _ => (52, 0x7ff, 0x3ff),
    }
}

/// What a number becomes that no integer of 64 bits can be, as from the processor's own conversion.
const NO_INTEGER: u64 = 1 << 63;

/// Pushes a floating-point number without its fraction, as an integer of a type.
pub(super) fn truncated(compiler: &mut Compiler<'_>, value: &Expr, bytes: u8, to: &Type) -> Result<()> {
    let (fraction, most, one) = layout(bytes);
    let bits = compiler.wide(value)?;
    let number = compiler.take(8, value.at.0)?;
    let shift = compiler.take(8, value.at.0)?;
    let (small, right, huge, done, positive) = (
        compiler.asm.label(),
        compiler.asm.label(),
        compiler.asm.label(),
        compiler.asm.label(),
        compiler.asm.label(),
    );
    let asm = &mut compiler.asm;
    // The exponent less that of 1: less than 0 is less than 1.
    asm.get(bits);
    asm.byte(Op::ShrImm, fraction);
    asm.push(most);
    asm.op(Op::And);
    asm.plus(one.wrapping_neg());
    asm.set(shift);
    asm.push(0);
    asm.get(shift);
    asm.op(Op::Slt);
    asm.jump(Op::Jnz, small);
    asm.drop();
    // From 63 on, infinity and what is no number included, there is no such integer.
    asm.get(shift);
    asm.push(62);
    asm.op(Op::Slt);
    asm.jump(Op::Jnz, huge);
    asm.drop();
    // The fraction with its leading 1, which is so many bits too far to the left, or too few.
    asm.get(bits);
    asm.push((1 << fraction) - 1);
    asm.op(Op::And);
    asm.push(1 << fraction);
    asm.op(Op::Or);
    asm.set(number);
    asm.get(shift);
    asm.plus(u64::from(fraction).wrapping_neg());
    asm.set(shift);
    asm.push(0);
    asm.get(shift);
    asm.op(Op::Slt);
    asm.jump(Op::Jnz, right);
    asm.drop();
    asm.get(shift);
    asm.get(number);
    asm.op(Op::Shl);
    asm.set(number);
    asm.push(0);
    asm.jump(Op::Jmp, done);
    asm.bind(right);
    asm.drop();
    asm.get(shift);
    asm.push(0);
    asm.op(Op::Sub);
    asm.get(number);
    asm.op(Op::Shr);
    asm.set(number);
    asm.push(0);
    asm.jump(Op::Jmp, done);
    asm.bind(small);
    asm.drop();
    asm.push(0);
    asm.set(number);
    asm.push(0);
    asm.jump(Op::Jmp, done);
    asm.bind(huge);
    asm.drop();
    asm.push(NO_INTEGER);
    asm.set(number);
    asm.push(0);
    asm.bind(done);
    asm.drop();
    asm.get(bits);
    asm.byte(Op::ShrImm, bytes * 8 - 1);
    asm.jump(Op::Jz, positive);
    asm.drop();
    asm.get(number);
    asm.push(0);
    asm.op(Op::Sub);
    asm.set(number);
    asm.push(0);
    asm.bind(positive);
    asm.drop();
    asm.get(number);
    let to = to.as_integer().unwrap_or(Integer::U64);
    asm.extend(to.bytes, to.signed);
    Ok(())
}
