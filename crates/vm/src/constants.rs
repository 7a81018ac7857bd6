//! The constants of a program: byte strings that handlers copy to their frames.
//!
//! ```text
//!     count of class 0 | count of class 1 | count of class 2 | (start, length) of each | bytes
//!     u32                u32                u32                u32    u32
//! ```
//!
//! Class 0 are the literals of a script; class 1 are the attach points' full names and class 2 the
//! names of their functions, both by minor code.

/// The number of classes.
const CLASSES: usize = 3;

/// The constants, as they are laid out in memory. Any bytes are valid.
#[derive(Clone, Copy, Debug, Default)]
pub struct Constants<'a>(pub &'a [u8]);

impl<'a> Constants<'a> {
    /// The constant with a number: its class above its index of 32 bits.
    pub fn get(self, number: u64) -> Option<&'a [u8]> {
        let (class, index) = ((number >> 32) as usize, number as u32 as usize);
        if class >= CLASSES || index >= self.number(class)? {
            return None;
        }
        let before: usize = (0..class).map_while(|class| self.number(class)).sum();
        let entry = CLASSES + 2 * (before + index);
        let (start, length) = (self.number(entry)?, self.number(entry + 1)?);
        self.0.get(start..start.checked_add(length)?)
    }

    /// The 4-byte number at a place.
    fn number(self, place: usize) -> Option<usize> {
        let bytes = self.0.get(4 * place..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_is_found_by_class_and_index() {
        let mut bytes = Vec::new();
        for number in [2_u32, 0, 1, 36, 1, 37, 2, 39, 0] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(b"abc");
        let constants = Constants(&bytes);
        assert_eq!(constants.get(0), Some(&b"a"[..]));
        assert_eq!(constants.get(1), Some(&b"bc"[..]));
        assert_eq!(constants.get(2), None);
        assert_eq!(constants.get(1 << 32), None);
        assert_eq!(constants.get(2 << 32), Some(&b""[..]));
        assert_eq!(constants.get(3 << 32), None);
        assert_eq!(Constants(&bytes[..38]).get(1), None);
        assert_eq!(Constants(&[0xff; 40]).get(5), None);
    }
}
