//! What an emulation works on: the registers of one stopped thread, and its memory.

/// The carry flag.
pub(crate) const CARRY: u64 = 1 << 0;
/// The parity flag.
pub(crate) const PARITY: u64 = 1 << 2;
/// The auxiliary carry flag.
pub(crate) const AUXILIARY: u64 = 1 << 4;
/// The zero flag.
pub(crate) const ZERO: u64 = 1 << 6;
/// The sign flag.
pub(crate) const SIGN: u64 = 1 << 7;
/// The trap flag: a debug exception after each instruction.
pub(crate) const TRAP: u64 = 1 << 8;
/// The interrupt enable flag.
pub(crate) const INTERRUPT: u64 = 1 << 9;
/// The direction flag of the string instructions.
pub(crate) const DIRECTION: u64 = 1 << 10;
/// The overflow flag.
pub(crate) const OVERFLOW: u64 = 1 << 11;
/// The input/output privilege level, two bits.
pub(crate) const PRIVILEGE: u64 = 3 << 12;
/// The nested task flag.
pub(crate) const NESTED: u64 = 1 << 14;
/// The alignment check flag: a misaligned access of user code faults.
pub(crate) const ALIGNMENT: u64 = 1 << 18;
/// The flag whose changeability says that `cpuid` exists.
pub(crate) const IDENTIFICATION: u64 = 1 << 21;

/// Number of rcx in [`Registers::gpr`].
pub(crate) const RCX: usize = 1;
/// Number of rsp in [`Registers::gpr`].
pub(crate) const RSP: usize = 4;
/// Number of rsi in [`Registers::gpr`].
pub(crate) const RSI: usize = 6;

/// The registers of a stopped thread that an emulation reads or writes.
///
/// The vector and x87 registers are not here: no emulated instruction touches them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The general registers in the order of their encoding: rax rcx rdx rbx rsp rbp rsi rdi r8 to
    /// r15.
    pub gpr: [u64; 16],
    /// The address of the next instruction; at a hit the probed instruction itself, not the byte
    /// after the breakpoint.
    pub rip: u64,
    /// The flags, as `pushfq` stores them.
    pub rflags: u64,
    /// The base address of the fs segment.
    pub fs_base: u64,
    /// The base address of the gs segment.
    pub gs_base: u64,
}

/// Memory, as the emulated thread sees it.
///
/// Each call transfers all bytes or none; `false` means none.
pub trait Memory {
    /// Reads `into.len()` bytes at `address`; false if any of them cannot be read.
    fn read(&mut self, address: u64, into: &mut [u8]) -> bool;
    /// Writes `from.len()` bytes at `address`; false if any of them cannot be written.
    fn write(&mut self, address: u64, from: &[u8]) -> bool;
}

/// An access that an emulation was refused; nothing was changed. The caller then runs the
/// instruction in its slot, where the processor performs it or faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Linear address of the first byte; for a refused jump, the target.
    pub address: u64,
    /// Number of bytes.
    pub size: usize,
    /// Whether it is a write.
    pub write: bool,
    /// Whether it goes through the stack segment: push, call, return, or an operand with rsp or rbp
    /// as its base. At a non-canonical address the processor then raises a stack fault (SIGBUS)
    /// instead of a general protection fault (SIGSEGV).
    pub stack: bool,
}
