//! What machine instructions are made of: registers, operands in memory, operations, conditions.
//!
//! Each carries the number that stands for it in machine code; `instructions` encodes them.

/// A general register, by its number in machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Reg(pub(crate) u8);

pub(crate) const RAX: Reg = Reg(0);
pub(crate) const RCX: Reg = Reg(1);
pub(crate) const RDX: Reg = Reg(2);
pub(crate) const RBX: Reg = Reg(3);
pub(crate) const RSP: Reg = Reg(4);
pub(crate) const RSI: Reg = Reg(6);
pub(crate) const RDI: Reg = Reg(7);

/// The second operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rm {
    /// A register.
    Reg(Reg),
    /// Memory at a register and a displacement.
    At(Reg, i32),
    /// Memory at `base + index * 2^scale + displacement`.
    Indexed(Reg, Reg, u8, i32),
    /// Memory at `index * 2^scale + displacement`.
    Scaled(Reg, u8, i32),
    /// Memory at an absolute address below 2 GiB.
    Absolute(u32),
    /// Memory at a register and a displacement, relative to the thread's `fs`.
    Thread(Reg, i32),
}

impl From<Reg> for Rm {
    fn from(register: Reg) -> Rm {
        Rm::Reg(register)
    }
}

/// The memory operand some bytes higher.
pub(crate) fn shifted(memory: Rm, bytes: i32) -> Rm {
    match memory {
        Rm::Reg(register) => Rm::Reg(register),
        Rm::At(base, displacement) => Rm::At(base, displacement + bytes),
        Rm::Indexed(base, index, scale, displacement) => {
            Rm::Indexed(base, index, scale, displacement + bytes)
        }
        Rm::Scaled(index, scale, displacement) => Rm::Scaled(index, scale, displacement + bytes),
        Rm::Absolute(address) => Rm::Absolute(address + bytes as u32),
        Rm::Thread(base, displacement) => Rm::Thread(base, displacement + bytes),
    }
}

/// An arithmetic operation, by its number in the opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Alu {
    Add = 0,
    Or = 1,
    /// Adds, and 1 more if the carry flag is set.
    AddCarry = 2,
    And = 4,
    Sub = 5,
    Xor = 6,
    Cmp = 7,
}

/// A shift or rotation, by its number in the opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Shift {
    RotateLeft = 0,
    RotateRight = 1,
    Left = 4,
    Right = 5,
    RightSigned = 7,
}

impl Shift {
    /// A value, shifted by a count modulo 64.
    pub(crate) fn of(self, value: u64, count: u64) -> u64 {
        let count = (count & 63) as u32;
        match self {
            Shift::RotateLeft => value.rotate_left(count),
            Shift::RotateRight => value.rotate_right(count),
            Shift::Left => value << count,
            Shift::Right => value >> count,
            Shift::RightSigned => (value as i64 >> count) as u64,
        }
    }
}

/// A condition, by its number in the opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Condition {
    Below = 2,
    AboveOrEqual = 3,
    Equal = 4,
    NotEqual = 5,
    Above = 7,
    Less = 12,
    GreaterOrEqual = 13,
    LessOrEqual = 14,
    Greater = 15,
}

impl Condition {
    /// The opposite condition.
    pub(crate) fn not(self) -> Condition {
        match self {
            Condition::Below => Condition::AboveOrEqual,
            Condition::AboveOrEqual => Condition::Below,
            Condition::Equal => Condition::NotEqual,
            Condition::NotEqual => Condition::Equal,
            Condition::Above => unreachable!("only compared with jumps that have no opposite here"),
            Condition::Less => Condition::GreaterOrEqual,
            Condition::GreaterOrEqual => Condition::Less,
            Condition::LessOrEqual => Condition::Greater,
            Condition::Greater => Condition::LessOrEqual,
        }
    }
}
