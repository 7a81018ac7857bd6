//! What a PPDF is, and the numbers of its format.

use super::places::Places;
use crate::object::Object;

/// The first bytes of every PPDF. As in PNG, the first byte is no text, and the line ends and the end-of-file
/// character show at once that a transfer took the file for text.
pub const MAGIC: [u8; 8] = *b"\x89PPDF\r\n\x1a";
/// The version: a reader refuses any other.
pub const VERSION: u16 = 1;
/// The revision: later ones only add what a reader of this version may pass over.
pub const REVISION: u16 = 0;
/// Bytes that a file may have. A program of 8 MiB of text becomes far less.
pub const LARGEST: usize = 64 << 20;

/// Bytes of the header.
pub(super) const HEADER: usize = 32;
/// Bytes of an entry of the section table, and what offsets of sections are multiples of.
pub(super) const ROW: usize = 16;
/// Where the checksum stands in the header.
pub(super) const CHECKSUM: std::ops::Range<usize> = 20..24;
/// Sections that a file may have.
pub(super) const MOST_SECTIONS: usize = 256;

/// What a PPDF holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ppdf {
    /// The program, with its sites.
    pub object: Object,
    /// The names of the source files and the lines and columns that messages may need.
    pub places: Places,
}

/// Whether a file that begins with these bytes is a PPDF, sound or not.
pub fn is_ppdf(start: &[u8]) -> bool {
    start.starts_with(&MAGIC)
}

/// The checksum of a whole file: CRC-32 (ISO-HDLC, as in zlib and PNG) of all its bytes but the checksum's own.
pub(super) fn checksum(file: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&file[..CHECKSUM.start]);
    hasher.update(&file[CHECKSUM.end..]);
    hasher.finalize()
}
