//! Errors of reading and writing a PPDF.

use std::fmt;

/// Why bytes are not a valid PPDF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Offset in bytes from the start of the file.
    pub offset: usize,
    /// The part of the file there: "section `PROB`, probe 2, `Hndl`".
    pub what: String,
    /// What was found.
    pub found: String,
    /// What was expected.
    pub expected: String,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damaged { offset, what, found, expected } = self;
        write!(f, "offset {offset:#x}: {what}: expected {expected}, found {found}")
    }
}

impl std::error::Error for Damaged {}

/// Why an object cannot be written as a PPDF. The compiler never makes such an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unwritable {
    /// It would be larger than [`super::MAX_FILE_BYTES`]; its size in bytes.
    TooLarge(usize),
    /// A reader would refuse it.
    Invalid(Damaged),
    /// A reader would get a different object from it.
    Different,
}

impl fmt::Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unwritable::TooLarge(size) => {
                write!(f, "it would be {size} bytes long; a PPDF has at most {} bytes", super::MAX_FILE_BYTES)
            }
            Unwritable::Invalid(damaged) => write!(f, "a PPDF cannot hold it: {damaged}"),
            Unwritable::Different => {
                f.write_str("a PPDF cannot hold it: a number is too large, or a list is unsorted")
            }
        }
    }
}

impl std::error::Error for Unwritable {}
