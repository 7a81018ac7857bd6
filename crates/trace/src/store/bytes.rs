//! Encoding of numbers and texts in blocks, with as few bytes as a number needs.
//!
//! A *number* has seven bits in each byte, the lowest first; the highest bit of a byte says that
//! another byte follows (LEB128). A *difference* is signed, and folded into a number: 0, -1, 1, -2
//! become 0, 1, 2, 3. A *text* is a number, and that many bytes of UTF-8.

/// The most bytes that a number takes.
pub(super) const LONGEST: usize = 10;

/// The error of a payload that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DecodeError {
    /// The position of the error, in bytes from the start of the payload.
    pub(super) at: usize,
    /// What was expected, and what was found.
    pub(super) what: String,
}

/// Writes a number at the start of `into`. Returns how many bytes it took.
#[inline]
pub(super) fn put_number(into: &mut [u8; LONGEST], mut value: u64) -> usize {
    let mut at = 0;
    while value >= 0x80 && at < LONGEST - 1 {
        into[at] = value as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    into[at] = value as u8;
    at + 1
}

/// Appends a number.
#[inline]
pub(super) fn push_number(out: &mut Vec<u8>, value: u64) {
    if value < 0x80 {
        return out.push(value as u8);
    }
    let mut bytes = [0; LONGEST];
    let length = put_number(&mut bytes, value);
    out.extend_from_slice(&bytes[..length]);
}

/// Folds a signed difference into a number.
#[inline]
pub(super) fn fold(difference: i64) -> u64 {
    ((difference << 1) ^ (difference >> 63)) as u64
}

/// Unfolds a number into a signed difference.
#[inline]
pub(super) fn unfold(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Appends a number of bytes, then the bytes.
pub(super) fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A read position in a payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Begins at byte `at` of a payload.
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Cursor<'a> {
        Cursor { bytes, at: at.min(bytes.len()) }
    }

    #[inline]
    pub(super) fn at(&self) -> usize {
        self.at
    }

    #[inline]
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// An error at this position.
    #[cold]
    pub(super) fn wrong(&self, what: impl Into<String>) -> DecodeError {
        DecodeError { at: self.at, what: what.into() }
    }

    #[cold]
    fn cut_off(&self, what: &str) -> DecodeError {
        self.wrong(format!("{what}: cut off by the end of the block"))
    }

    /// The next byte.
    #[inline]
    pub(super) fn byte(&mut self, what: &str) -> Result<u8, DecodeError> {
        let Some(&byte) = self.bytes.get(self.at) else { return Err(self.cut_off(what)) };
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    pub(super) fn number(&mut self, what: &str) -> Result<u64, DecodeError> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(byte.into())
            }
            _ => self.long_number(what),
        }
    }

    fn long_number(&mut self, what: &str) -> Result<u64, DecodeError> {
        let start = *self;
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                // A 64-bit number has one bit in the tenth byte.
                let fits = shift < 63 || byte <= 1;
                return if fits {
                    Ok(value)
                } else {
                    Err(start.wrong(format!("{what}: it does not fit in 64 bits")))
                };
            }
        }
        Err(start.wrong(format!("{what}: it does not fit in 64 bits")))
    }

    /// Reads a number of at most 32 bits.
    #[inline]
    pub(super) fn half(&mut self, what: &str) -> Result<u32, DecodeError> {
        let start = *self;
        let value = self.number(what)?;
        u32::try_from(value).map_err(|_| start.wrong(format!("{what}: {value} does not fit in 32 bits")))
    }

    #[inline]
    pub(super) fn difference(&mut self, what: &str) -> Result<i64, DecodeError> {
        self.number(what).map(unfold)
    }

    /// Reads `length` bytes.
    #[inline]
    pub(super) fn take(&mut self, length: u64, what: &str) -> Result<&'a [u8], DecodeError> {
        let rest = &self.bytes[self.at..];
        match usize::try_from(length).ok().and_then(|length| rest.get(..length)) {
            Some(taken) => {
                self.at += taken.len();
                Ok(taken)
            }
            None => Err(self.wrong(format!("{what}: {length} bytes expected, {} left", rest.len()))),
        }
    }

    /// Reads a number of bytes, then the bytes.
    pub(super) fn counted(&mut self, what: &str) -> Result<&'a [u8], DecodeError> {
        let length = self.number(what)?;
        self.take(length, what)
    }

    pub(super) fn text(&mut self, what: &str) -> Result<&'a str, DecodeError> {
        let start = *self;
        std::str::from_utf8(self.counted(what)?).map_err(|_| start.wrong(format!("{what}: not UTF-8")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_takes_as_few_bytes_as_it_needs() {
        for (value, bytes) in [
            (0, &[0][..]),
            (127, &[127]),
            (128, &[0x80, 1]),
            (u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ] {
            let mut out = Vec::new();
            push_number(&mut out, value);
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn a_number_that_is_too_long_or_cut_off_is_refused() {
        for bytes in
            [&[0xff; 11][..], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], &[0x80], &[]]
        {
            assert!(Cursor::new(bytes, 0).number("it").is_err(), "{bytes:x?}");
        }
    }

    proptest! {
        #[test]
        fn numbers_and_differences_come_back(value in any::<u64>(), difference in any::<i64>()) {
            let mut out = Vec::new();
            push_number(&mut out, value);
            push_number(&mut out, fold(difference));
            let mut cursor = Cursor::new(&out, 0);
            prop_assert_eq!(cursor.number("a"), Ok(value));
            prop_assert_eq!(cursor.difference("b"), Ok(difference));
            prop_assert_eq!(cursor.left(), 0);
        }
    }
}
