//! The contents of a PPDF, and the constants of its format.

use super::places::Places;
use crate::object::Object;

/// The first bytes of every PPDF. As in PNG, the first byte is not text, and the line ends and the
/// end-of-file character reveal a transfer in text mode.
pub const MAGIC: [u8; 8] = *b"\x89PPDF\r\n\x1a";
/// The format version. A reader refuses any other.
pub const VERSION: u16 = 1;
/// The format revision. Later ones only add what a reader of this version may skip.
pub const REVISION: u16 = 0;
/// Maximum size of a file in bytes. A program of 8 MiB of text compiles to far less.
pub const MAX_FILE_BYTES: usize = 64 << 20;

/// Size of the header in bytes.
pub(super) const HEADER: usize = 32;
/// Size of a row of the section table in bytes, and the alignment of sections.
pub(super) const ROW: usize = 16;
/// Position of the checksum in the header.
pub(super) const CHECKSUM: std::ops::Range<usize> = 20..24;
/// Maximum number of sections in a file.
pub(super) const MAX_SECTIONS: usize = 256;

/// The contents of a PPDF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ppdf {
    /// The program, with its sites.
    pub object: Object,
    /// The names of the source files, and the lines and columns that messages may need.
    pub places: Places,
}

/// Whether a file that begins with these bytes is a PPDF, damaged or not.
pub fn is_ppdf(start: &[u8]) -> bool {
    start.starts_with(&MAGIC)
}

/// The checksum of a file: CRC-32 (ISO-HDLC, as in zlib and PNG) of all bytes except the checksum.
pub(super) fn checksum(file: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&file[..CHECKSUM.start]);
    hasher.update(&file[CHECKSUM.end..]);
    hasher.finalize()
}
