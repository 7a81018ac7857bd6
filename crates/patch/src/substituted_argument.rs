//! A `syscall` whose second argument, a pointer to eight bytes, is substituted by a pointer to data
//! in its slot.
//!
//! The kernel reads the substituted bytes; the program sees its own pointer in rsi before and
//! after. To restore it, the slot must know how the program computed it.

use crate::machine::Registers;

/// The substituted argument of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubstitutedArgument {
    /// The eight bytes that the kernel reads, as a number.
    pub bytes: u64,
    /// How the program computes its own argument.
    pub argument: Argument,
}

/// How the program computes rsi for its system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A constant address.
    Address(u64),
    /// Another register plus a displacement.
    Sum {
        /// The register's number in [`Registers::gpr`]; not rsi, nor one that a system call changes
        /// (rax, rcx, r11).
        register: u8,
        /// The displacement, in bytes.
        displacement: i32,
    },
}

impl Argument {
    /// The same argument where the program's data is `by` bytes higher.
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

    /// Encodes `lea rsi, [register+displacement]`; empty for an address, which the slot loads
    /// itself.
    pub(crate) fn load(self) -> Vec<u8> {
        let Argument::Sum { register, displacement } = self else { return Vec::new() };
        // REX.W, and REX.B for r8 to r15; a base of rsp or r12 needs a SIB byte.
        let mut bytes = vec![0x48 | u8::from(register >= 8), 0x8d, 0xb0 | (register & 7)];
        if register & 7 == 4 {
            bytes.push(0x24);
        }
        bytes.extend_from_slice(&displacement.to_le_bytes());
        bytes
    }
}
