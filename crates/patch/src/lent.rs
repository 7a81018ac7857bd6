//! A `syscall` whose second argument, a pointer to eight bytes, is lent to it: it reads others, of its slot's own.
//!
//! The kernel sees the lent bytes; the program sees its own pointer in rsi, before and after. For that, the slot must know how the program has
//! computed it.

use crate::machine::Registers;

/// What is lent to a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent {
    /// The eight bytes that it reads, as a number.
    pub bytes: u64,
    /// The program's own argument.
    pub argument: Argument,
}

/// What the program has in rsi at its system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// An address.
    Address(u64),
    /// What is in another register, and so much more.
    Sum {
        /// The register's number in [`Registers::gpr`]: none that a system call changes (rax, rcx, r11), nor rsi.
        register: u8,
        /// How much more.
        displacement: i32,
    },
}

impl Argument {
    /// The same argument where the program's data are `by` bytes farther.
    pub(crate) fn moved(self, by: u64) -> Argument {
        match self {
            Argument::Address(address) => Argument::Address(address.wrapping_add(by)),
            sum @ Argument::Sum { .. } => sum,
        }
    }

    /// Its value for a thread with these registers.
    pub(crate) fn value(self, registers: &Registers) -> u64 {
        match self {
            Argument::Address(address) => address,
            Argument::Sum { register, displacement } => {
                registers.gpr[usize::from(register & 15)].wrapping_add_signed(displacement.into())
            }
        }
    }

    /// `lea rsi, [register+displacement]`; an address is loaded otherwise.
    pub(crate) fn load(self) -> Vec<u8> {
        let Argument::Sum { register, displacement } = self else { return Vec::new() };
        // REX.W, and REX.B for r8 to r15; a base of rsp or r12 needs a byte of its own.
        let mut bytes = vec![0x48 | u8::from(register >= 8), 0x8d, 0xb0 | (register & 7)];
        if register & 7 == 4 {
            bytes.push(0x24);
        }
        bytes.extend_from_slice(&displacement.to_le_bytes());
        bytes
    }
}
