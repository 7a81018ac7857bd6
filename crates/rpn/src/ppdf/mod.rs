//! PPDF, the pre-processed probe definition file: a compiled program whose probes were resolved to places in a file.
//!
//! It is built once, where the module's file and its symbols are, and applied where neither compiler nor symbols
//! need be (dprobes(8), `--build-ppdf` and `--apply-ppdf`). So that it is never applied to another module than it
//! was built for, it holds the module's build-id and the bytes of each probed instruction.
//!
//! # The format
//!
//! All numbers are little-endian. `docs/ppdf.md` describes every field.
//!
//! ```text
//! header    magic 8 | version 2 | revision 2 | sections 4        one row of a hex dump
//!           length 4 | CRC-32 4 | machine 2 | word 1 | zeros 5   one row
//! table     for each section: tag 4 | offset 4 | length 4 | count 4        one row each
//! sections  each starts at a multiple of 16; the gaps are zeros
//! ```
//!
//! A tag is four letters. Section `HEAD` and each record of section `PROB` are lists of *fields*: tag 4, length 4,
//! value. As in PNG, a tag that begins with a capital letter has to be understood; one that begins with a small
//! letter may be passed over by a reader that does not know it. So the format grows without breaking: what changes
//! the meaning of a program gets a capital letter, and an older reader refuses it by name.
//!
//! # Design constraints
//!
//! * Pure: bytes in, a [`Ppdf`] out, and back. No file, no process, no operating system.
//! * The reader's input is untrusted. It never panics; its time and memory are in proportion to the file's length; the
//!   checksum is verified before anything else is believed, and everything is checked all the same, since anyone
//!   can compute a checksum. An error says at which offset what was found and what was expected.
//! * What [`write()`] gives, [`read`] takes, and gives back the same. An object for which that would not hold is not
//!   written.

mod bytes;
mod error;
mod format;
mod places;
mod program;
mod read;
mod tag;
#[cfg(test)]
mod tests;
mod write;

pub use error::{Damaged, Unwritable};
pub use format::{LARGEST, MAGIC, Ppdf, REVISION, VERSION, is_ppdf};
pub use places::Places;
pub use read::read;
pub use write::write;
