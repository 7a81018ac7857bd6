//! The two kinds of code that a process can run on x86-64.

/// The mode in which the processor executes an instruction: it decides decoding and address width.
///
/// On Linux a stopped thread's code segment tells: 0x33 is 64-bit code, 0x23 is 32-bit code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// 32-bit code: i386 programs under a 64-bit kernel ("compatibility mode"). Uses only the low
    /// halves of the first eight general registers of [`crate::Registers`].
    Bits32,
    /// 64-bit code.
    #[default]
    Bits64,
}

impl Mode {
    /// The bits of an address: 32 or 64.
    pub const fn bits(self) -> u32 {
        match self {
            Mode::Bits32 => 32,
            Mode::Bits64 => 64,
        }
    }

    /// The bytes of an address, and of what a call pushes: 4 or 8.
    pub(crate) const fn word(self) -> u64 {
        (self.bits() / 8) as u64
    }

    /// The last address.
    pub(crate) const fn last(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }

    /// Truncates a value to the width of an address, as the processor does with the instruction
    /// pointer, the stack pointer and every address computation.
    pub(crate) const fn cut(self, value: u64) -> u64 {
        value & self.last()
    }
}
