//! The machine word: the size of every stack element, variable and address.

/// The word of the probed program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Word {
    /// 4 bytes: i386.
    W4,
    /// 8 bytes: x86-64.
    #[default]
    W8,
}

impl Word {
    /// Bytes in a word: 4 or 8.
    pub const fn bytes(self) -> usize {
        match self {
            Word::W4 => 4,
            Word::W8 => 8,
        }
    }

    /// Bits in a word: 32 or 64.
    pub const fn bits(self) -> u32 {
        match self {
            Word::W4 => 32,
            Word::W8 => 64,
        }
    }

    /// `value` truncated to the word.
    pub const fn truncate(self, value: u64) -> u64 {
        match self {
            Word::W4 => value & 0xffff_ffff,
            Word::W8 => value,
        }
    }

    /// `value`, already a word, as a signed number.
    pub const fn signed(self, value: u64) -> i64 {
        match self {
            Word::W4 => value as u32 as i32 as i64,
            Word::W8 => value as i64,
        }
    }
}
