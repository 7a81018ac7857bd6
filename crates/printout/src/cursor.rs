//! Reads words and bytes from untrusted memory, never beyond its end.

use crate::error::Wrong;

/// Bytes that are read from their beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    whole: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, whole: bytes.len() }
    }

    /// How many bytes were read.
    pub(crate) fn offset(&self) -> usize {
        self.whole - self.bytes.len()
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }

    /// The next bytes.
    pub(crate) fn take(&mut self, count: u64) -> Result<&'a [u8], Wrong> {
        let short = Wrong::TooShort { wanted: count, left: self.bytes.len() };
        let count = usize::try_from(count).map_err(|_| short)?;
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(short)?;
        self.bytes = rest;
        Ok(taken)
    }

    /// The next bytes, of which there are as many as fill words.
    pub(crate) fn take_padded(&mut self, count: u64) -> Result<&'a [u8], Wrong> {
        let taken = self.take(padded(count))?;
        // `count` is not more than was taken.
        Ok(&taken[..usize::try_from(count).unwrap_or(taken.len()).min(taken.len())])
    }

    /// The next word.
    pub(crate) fn word(&mut self) -> Result<u64, Wrong> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
    }

    /// The next `bytes` (1, 2, 4 or 8) as a little-endian number.
    pub(crate) fn number(&mut self, bytes: u8) -> Result<u64, Wrong> {
        let taken = self.take(u64::from(bytes))?;
        Ok(taken.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

/// The next multiple of a word's size.
pub(crate) fn padded(count: u64) -> u64 {
    count.saturating_add(7) & !7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_beyond_the_end() {
        let mut cursor = Cursor::new(&[1, 0, 0, 0, 0, 0, 0, 0, 2, 3, 4]);
        assert_eq!(cursor.word(), Ok(1));
        assert_eq!(cursor.number(2), Ok(0x302));
        assert_eq!(cursor.word(), Err(Wrong::TooShort { wanted: 8, left: 1 }));
        assert_eq!(cursor.take(u64::MAX), Err(Wrong::TooShort { wanted: u64::MAX, left: 1 }));
        assert!(cursor.take_padded(u64::MAX).is_err());
        assert_eq!((cursor.offset(), cursor.left()), (10, 1));
    }
}
