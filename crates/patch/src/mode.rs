//! The two kinds of code that one process can run on x86-64: what differs between them, as numbers.

/// The mode in which the processor executes an instruction: what its bytes mean, and how wide its addresses are.
///
/// Of a stopped thread, the code segment says which: 0x33 is 64-bit code on Linux, 0x23 is 32-bit code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// 32-bit code: i386 programs, under a 64-bit kernel ("compatibility mode"). Of [`crate::Registers`] the low
    /// halves of the first eight general registers count.
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

    /// The bytes of an address, which are what a call pushes: 4 or 8.
    pub(crate) const fn word(self) -> u64 {
        (self.bits() / 8) as u64
    }

    /// The last address.
    pub(crate) const fn last(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }

    /// A value cut to the bits of an address, as the processor does with the instruction pointer, the stack pointer and every
    /// sum that is an address.
    pub(crate) const fn cut(self, value: u64) -> u64 {
        value & self.last()
    }
}
