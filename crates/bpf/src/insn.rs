//! One instruction: its eight bytes and how they are made.
//!
//! ```text
//!      code        registers          offset             immediate
//!     +--------+--------+--------+-----------------+---------------------------------+
//!     | 8 bits | dst: 4 | src: 4 | 16 bits, signed |         32 bits, signed         |
//!     +--------+--------+--------+-----------------+---------------------------------+
//! ```
//!
//! Source: the kernel's `Documentation/bpf/standardization/instruction-set.rst`. Only what Linux
//! 6.1 accepts is here: no `gotol`, no signed division, no sign-extending loads.

use crate::helper::Helper;
use crate::opcode::{alu, class, mode, source};

/// A register. `R10` is the frame's address and read-only, `R1` to `R5` are a call's arguments,
/// `R0` its result; a call preserves `R6` to `R9`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs, reason = "the name of a register says all")]
pub enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// How many bits an operation computes with. One of 32 bits clears the upper half of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// 32 bits: `w1`.
    W32,
    /// 64 bits: `r1`.
    W64,
}

/// The size of an access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Size {
    /// Four bytes.
    Word = 0x00,
    /// Two bytes.
    Half = 0x08,
    /// One byte.
    Byte = 0x10,
    /// Eight bytes.
    Double = 0x18,
}

impl Size {
    /// The number of bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Byte => 1,
            Self::Half => 2,
            Self::Word => 4,
            Self::Double => 8,
        }
    }
}

/// What an arithmetic instruction computes: `dst = dst OP src`. Division by zero gives zero, and a
/// remainder by zero leaves `dst`; both are unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names of operations say all")]
pub enum Alu {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Div = 0x30,
    Or = 0x40,
    And = 0x50,
    /// Shift left. The count is masked with the width - 1.
    Lsh = 0x60,
    /// Shift right, unsigned.
    Rsh = 0x70,
    Mod = 0x90,
    Xor = 0xa0,
    Mov = 0xb0,
    /// Shift right, signed.
    Arsh = 0xc0,
}

/// When a conditional jump is taken: `dst COND src`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Cond {
    /// Equal.
    Eq = 0x10,
    /// Unsigned greater.
    Gt = 0x20,
    /// Unsigned greater or equal.
    Ge = 0x30,
    /// A bit is set in both.
    Set = 0x40,
    /// Not equal.
    Ne = 0x50,
    /// Signed greater.
    Sgt = 0x60,
    /// Signed greater or equal.
    Sge = 0x70,
    /// Unsigned less.
    Lt = 0xa0,
    /// Unsigned less or equal.
    Le = 0xb0,
    /// Signed less.
    Slt = 0xc0,
    /// Signed less or equal.
    Sle = 0xd0,
}

/// An atomic operation on memory. Those that fetch put the old value into the source register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Atomic {
    /// `lock *(dst + offset) += src`
    Add = 0x00,
    /// `lock *(dst + offset) |= src`
    Or = 0x40,
    /// `lock *(dst + offset) &= src`
    And = 0x50,
    /// `lock *(dst + offset) ^= src`
    Xor = 0xa0,
    /// `src = fetch_add(dst + offset, src)`
    FetchAdd = 0x01,
    /// `src = fetch_or(dst + offset, src)`
    FetchOr = 0x41,
    /// `src = fetch_and(dst + offset, src)`
    FetchAnd = 0x51,
    /// `src = fetch_xor(dst + offset, src)`
    FetchXor = 0xa1,
    /// `src = xchg(dst + offset, src)`
    Exchange = 0xe1,
    /// `R0 = cmpxchg(dst + offset, R0, src)`
    CompareExchange = 0xf1,
}

/// The second operand of an arithmetic instruction or a comparison. An immediate is sign-extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A register.
    Reg(Reg),
    /// A number.
    Imm(i32),
}

impl From<Reg> for Operand {
    fn from(reg: Reg) -> Self {
        Self::Reg(reg)
    }
}

impl From<i32> for Operand {
    fn from(imm: i32) -> Self {
        Self::Imm(imm)
    }
}

/// One instruction as the kernel reads it, or one half of a 64-bit load.
///
/// Jumps, calls of functions and loads of addresses have no public constructor: the
/// [`Assembler`](crate::Assembler) makes them, since it knows the distances.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Insn {
    pub(crate) code: u8,
    registers: u8,
    pub(crate) offset: i16,
    pub(crate) imm: i32,
}

impl Insn {
    pub(crate) const fn raw(code: u8, dst: u8, src: u8, offset: i16, imm: i32) -> Self {
        Self { code, registers: dst | src << 4, offset, imm }
    }

    /// The code, the registers, the offset and the immediate of an instruction that uses an
    /// operand.
    pub(crate) fn with(code: u8, dst: Reg, operand: Operand) -> Self {
        match operand {
            Operand::Reg(src) => Self::raw(code | source::REG, dst as u8, src as u8, 0, 0),
            Operand::Imm(imm) => Self::raw(code, dst as u8, 0, 0, imm),
        }
    }

    pub(crate) const fn dst(self) -> u8 {
        self.registers & 15
    }

    pub(crate) const fn src(self) -> u8 {
        self.registers >> 4
    }

    /// `dst = dst OP src`
    pub fn alu(width: Width, op: Alu, dst: Reg, src: impl Into<Operand>) -> Self {
        let class = match width {
            Width::W32 => class::ALU,
            Width::W64 => class::ALU64,
        };
        Self::with(class | op as u8, dst, src.into())
    }

    /// `dst = dst OP src` in 64 bits.
    pub fn alu64(op: Alu, dst: Reg, src: impl Into<Operand>) -> Self {
        Self::alu(Width::W64, op, dst, src)
    }

    /// `dst = dst OP src` in 32 bits; the upper half becomes zero.
    pub fn alu32(op: Alu, dst: Reg, src: impl Into<Operand>) -> Self {
        Self::alu(Width::W32, op, dst, src)
    }

    /// `dst = src`
    pub fn mov(dst: Reg, src: impl Into<Operand>) -> Self {
        Self::alu64(Alu::Mov, dst, src)
    }

    /// `dst = src & 0xffffffff`
    pub fn mov32(dst: Reg, src: impl Into<Operand>) -> Self {
        Self::alu32(Alu::Mov, dst, src)
    }

    /// `dst = -dst`
    pub const fn neg(width: Width, dst: Reg) -> Self {
        let class = match width {
            Width::W32 => class::ALU,
            Width::W64 => class::ALU64,
        };
        Self::raw(class | alu::NEG, dst as u8, 0, 0, 0)
    }

    /// Reverses the lowest 2, 4 or 8 bytes of a register; the upper ones become zero.
    pub const fn big_endian(size: Size, dst: Reg) -> Self {
        let bits = size.bytes() as i32 * 8;
        Self::raw(class::ALU | alu::END | source::REG, dst as u8, 0, 0, bits)
    }

    /// `dst = *(src + offset)`, zero-extended.
    pub const fn load(size: Size, dst: Reg, src: Reg, offset: i16) -> Self {
        Self::raw(class::LDX | mode::MEM | size as u8, dst as u8, src as u8, offset, 0)
    }

    /// `*(dst + offset) = src`
    pub const fn store(size: Size, dst: Reg, offset: i16, src: Reg) -> Self {
        Self::raw(class::STX | mode::MEM | size as u8, dst as u8, src as u8, offset, 0)
    }

    /// `*(dst + offset) = imm`, sign-extended.
    pub const fn store_imm(size: Size, dst: Reg, offset: i16, imm: i32) -> Self {
        Self::raw(class::ST | mode::MEM | size as u8, dst as u8, 0, offset, imm)
    }

    /// An atomic operation on `*(dst + offset)`. The size is `Word` or `Double`; the verifier
    /// refuses others.
    pub const fn atomic(op: Atomic, size: Size, dst: Reg, offset: i16, src: Reg) -> Self {
        Self::raw(class::STX | mode::ATOMIC | size as u8, dst as u8, src as u8, offset, op as i32)
    }

    /// `R0 = helper(R1, ...)`
    pub const fn call(helper: Helper) -> Self {
        Self::raw(class::JMP | crate::opcode::jump::CALL, 0, 0, 0, helper.number())
    }

    /// Ends the function; the result is `R0`.
    pub const fn exit() -> Self {
        Self::raw(class::JMP | crate::opcode::jump::EXIT, 0, 0, 0, 0)
    }

    /// The two halves of a load of 64 bits: a number, or, if the pseudo source says so, an address
    /// that the kernel knows.
    pub(crate) const fn load64(dst: Reg, pseudo: u8, low: i32, high: i32) -> [Self; 2] {
        let code = class::LD | mode::IMM | Size::Double as u8;
        [Self::raw(code, dst as u8, pseudo, 0, low), Self::raw(0, 0, 0, 0, high)]
    }

    /// Whether this is the first half of a load of 64 bits.
    pub(crate) const fn is_load64(self) -> bool {
        self.code == class::LD | mode::IMM | Size::Double as u8
    }

    /// The bytes as a file of x86-64 has them.
    pub fn bytes(self) -> [u8; 8] {
        let mut bytes = [self.code, self.registers, 0, 0, 0, 0, 0, 0];
        bytes[2..4].copy_from_slice(&self.offset.to_le_bytes());
        bytes[4..].copy_from_slice(&self.imm.to_le_bytes());
        bytes
    }
}
