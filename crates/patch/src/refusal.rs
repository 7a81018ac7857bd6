//! Why an instruction cannot be displaced, in one line each.

use std::ops::RangeInclusive;

/// Why an instruction cannot be displaced. Nothing was written anywhere.
///
/// `text` is the instruction in Intel's syntax, `address` that of its first byte.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The bytes end before the instruction does.
    #[error(
        "no whole instruction is in the {available} bytes ({bytes}) from {address:#x} to the end of their mapping"
    )]
    Truncated {
        /// Of the instruction.
        address: u64,
        /// How many bytes there are.
        available: usize,
        /// Those bytes, in hexadecimal.
        bytes: String,
    },
    /// No instruction of such code begins with these bytes, or none that the decoder knows.
    #[error("the bytes {bytes} at {address:#x} are no instruction known in {bits}-bit code")]
    Unknown {
        /// Of the bytes.
        address: u64,
        /// Which code it would be: 32 or 64.
        bits: u32,
        /// The bytes, in hexadecimal.
        bytes: String,
    },
    /// `int3`, `int1`, `int n` (`int 0x80`, too, the system call of 32-bit code) and `into`: as in the language's manual, a probepoint cannot be on a software interrupt. The system reports
    /// its address, or what it does to a breakpoint cannot be told apart from ours.
    #[error("`{text}` at {address:#x} is a software interrupt, which cannot be probed")]
    SoftwareInterrupt {
        /// Of the instruction.
        address: u64,
        /// The instruction.
        text: String,
    },
    /// A far call, jump or return, or a return from an interrupt: it changes the code segment, and with it what the slot's
    /// own bytes mean.
    #[error(
        "`{text}` at {address:#x} is a far transfer, which changes the code segment and cannot be displaced"
    )]
    FarTransfer {
        /// Of the instruction.
        address: u64,
        /// The instruction.
        text: String,
    },
    /// `sysenter`, and `syscall` of 32-bit code: the kernel returns to an address of its own choice.
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
    /// A branch with an operand-size prefix: Intel's processors ignore the prefix, AMD's cut rip to 16 bits.
    #[error(
        "`{text}` at {address:#x} has an operand-size prefix, which Intel and AMD understand differently on a branch"
    )]
    MakersDiffer {
        /// Of the instruction.
        address: u64,
        /// The instruction as Intel's processors understand it.
        text: String,
    },
    /// `xbegin` with 16 bits of displacement: they reach no slot.
    #[error(
        "`{text}` at {address:#x} has 16 bits of displacement, which cannot reach its target from a slot"
    )]
    ShortTransaction {
        /// Of the instruction.
        address: u64,
        /// The instruction.
        text: String,
    },
    /// A load of ss holds back traps until the instruction after it has run; in a slot that would be the jump back.
    #[error(
        "`{text}` at {address:#x} loads the stack segment, which acts on the instruction after it as well"
    )]
    StackSegment {
        /// Of the instruction.
        address: u64,
        /// The instruction.
        text: String,
    },
    /// A transfer of control about which nothing is proven.
    #[error(
        "`{text}` at {address:#x} transfers control in a way that is not proven to work from another address"
    )]
    Unproven {
        /// Of the instruction.
        address: u64,
        /// The instruction.
        text: String,
    },
    /// The slot is too far away.
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
        /// Where the slot was to be.
        slot: u64,
        /// Where it can be: [`crate::Displaced::reach`].
        reach: RangeInclusive<u64>,
    },
}
