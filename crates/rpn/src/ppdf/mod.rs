//! PPDF, the pre-processed probe definition file: a compiled program whose probes have been
//! resolved to sites in a module's file.
//!
//! It is built once, where the module's file and symbols are, and applied on machines that need
//! neither compiler nor symbols (dprobes(8), `--build-ppdf` and `--apply-ppdf`). It holds the
//! module's build-id and the bytes of each probed instruction, so that it is never applied to a
//! different module.
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
//! A tag is four letters. Section `HEAD` and each record of section `PROB` are lists of *fields*:
//! tag 4, length 4, value. As in PNG, a reader must understand tags that begin with a capital
//! letter, and may skip unknown tags that begin with a small letter. So the format can be extended:
//! additions that change the meaning of a program get a capital letter, and an older reader refuses
//! them by name.
//!
//! # Design constraints
//!
//! * Pure: bytes in, a [`Ppdf`] out, and back. No file, no process, no operating system.
//! * The reader's input is untrusted. It never panics; its time and memory are proportional to the
//!   file's length. The checksum is verified first, but everything else is checked too, since
//!   anyone can compute a checksum. An error gives the offset, what was found and what was
//!   expected.
//! * [`read`] accepts everything that [`write()`] returns, and gives the same object. An object for
//!   which this would not hold is not written.

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
pub use format::{MAGIC, MAX_FILE_BYTES, Ppdf, REVISION, VERSION, is_ppdf};
pub use places::Places;
pub use read::read;
pub use write::write;
