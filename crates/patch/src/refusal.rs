//! The reasons why an instruction cannot be displaced.

use std::ops::RangeInclusive;

/// Why an instruction cannot be displaced. Nothing was written anywhere.
///
/// `text` is the instruction in Intel's syntax, `address` that of its first byte.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The bytes end before the instruction does.
    #[error("the instruction at {address:#x} is cut off by the end of its mapping (bytes: {bytes})")]
    Truncated {
        /// Of the instruction.
        address: u64,
        /// How many bytes there are.
        available: usize,
        /// Those bytes, in hexadecimal.
        bytes: String,
    },
    /// No known instruction begins with these bytes.
    #[error("the bytes {bytes} at {address:#x} are not a known instruction in {bits}-bit code")]
    Unknown {
        /// Of the bytes.
        address: u64,
        /// The mode of the code: 32 or 64.
        bits: u32,
        /// The bytes, in hexadecimal.
        bytes: String,
    },
    /// `int3`, `int1`, `int n` (including `int 0x80`, the system call of 32-bit code) and `into`:
    /// the language's manual allows no probepoint on a software interrupt. The kernel reports its
    /// address, or its effect cannot be told from our own breakpoint.
    #[error("`{text}` at {address:#x} is a software interrupt, which cannot be probed")]
    SoftwareInterrupt {
        /// Of the instruction.
        address: u64,
        /// The instruction.
        text: String,
    },
    /// A far call, jump or return, or a return from an interrupt: it changes the code segment and
    /// with it the meaning of the slot's bytes.
    #[error(
        "`{text}` at {address:#x} is a far transfer, which changes the code segment and cannot be displaced"
    )]
    FarTransfer {
        /// Of the instruction.
        address: u64,
        /// The instruction.
        text: String,
    },
    /// `sysenter`, and `syscall` in 32-bit code: the kernel returns to an address of its own
    /// choice.
    #[error("`{text}` at {address:#x} does not return to the instruction after it and cannot be displaced")]
    FixedReturn {
        /// Of the instruction.
        address: u64,
        /// The instruction.
        text: String,
    },
    /// `enclu` stores its own return address in rcx, and saves it where no debugger reads it.
    #[error("`{text}` at {address:#x} hands its own address to an enclave and cannot be displaced")]
    Enclave {
        /// Of the instruction.
        address: u64,
        /// The instruction.
        text: String,
    },
    /// A branch with an operand-size prefix: Intel's processors ignore it, AMD's truncate rip to 16
    /// bits.
    #[error(
        "`{text}` at {address:#x} is a branch with an operand-size prefix, which Intel and AMD processors execute \
         differently"
    )]
    MakersDiffer {
        /// Of the instruction.
        address: u64,
        /// The instruction as Intel's processors understand it.
        text: String,
    },
    /// `xbegin` with a 16-bit displacement, which cannot reach its target from a slot.
    #[error("`{text}` at {address:#x} has a 16-bit displacement, which cannot reach its target from a slot")]
    ShortTransaction {
        /// Of the instruction.
        address: u64,
        /// The instruction.
        text: String,
    },
    /// A load of ss blocks traps until the next instruction has run; in a slot that would be the
    /// jump back.
    #[error(
        "`{text}` at {address:#x} loads ss, which blocks traps until the next instruction has run, and cannot be \
         displaced"
    )]
    StackSegment {
        /// Of the instruction.
        address: u64,
        /// The instruction.
        text: String,
    },
    /// A transfer of control that is not proven to work from another address.
    #[error(
        "`{text}` at {address:#x} transfers control in a way that is not proven to work from another address"
    )]
    Unproven {
        /// Of the instruction.
        address: u64,
        /// The instruction.
        text: String,
    },
    /// The requested slot address is too far away.
    #[error(
        "the slot for `{text}` at {address:#x} cannot be at {slot:#x}: it must be between {:#x} and {:#x}",
        reach.start(),
        reach.end()
    )]
    OutOfReach {
        /// Of the instruction.
        address: u64,
        /// The instruction.
        text: String,
        /// The requested slot address.
        slot: u64,
        /// The possible addresses: [`crate::Displaced::reach`].
        reach: RangeInclusive<u64>,
    },
}
