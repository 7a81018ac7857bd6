//! Stacks of x86-64 programs, compiled with or without frame pointers.
//!
//! A program without frame pointers says in its ELF file, in `.eh_frame`, where each instruction's
//! caller left the return address. That is a language of its own, and far too slow and too large
//! for a probe's handler. So there are two halves:
//!
//! ```text
//!   the tracer (feature `std`)                      the probed process (no_std)
//!   ELF file --Table::read--> rows --build--> index ==mapped==> Index --walk--> return addresses
//! ```
//!
//! * [`Table::read`] turns a file's unwinding information into a sorted table of [`Row`]s of 8
//!   bytes. [`build`] lays the tables of all modules of a process out as one block of words; with
//!   [`list`] and [`words`] a block grows as modules come.
//! * [`walk`] finds the row of an instruction by binary search, applies it, and so goes from frame
//!   to frame. Registers and memory are the caller's to give. [`walk_frame_pointers`] uses no
//!   table. [`Memos`] keep what the last walks have read: most stacks come again.
//!
//! Design constraints:
//!
//! * The walker runs in a handler, at any instruction: in prologues, epilogues, entries of the
//!   procedure linkage table, handlers of signals. It has no `unsafe`, allocates nothing, and takes
//!   at most as many steps as there is room for frames.
//! * Tables and stacks are untrusted. Any words are a valid index, any bytes are a valid stack. A
//!   wrong table gives wrong frames, nothing worse.
//! * An ELF file is untrusted. Building takes time and memory in proportion to the file, and both
//!   have a limit.
//! * What a row cannot express is [`Rule::Unsupported`]. There, and where no module is, the walker
//!   follows the frame pointer.
//!
//! | file | what it is |
//! |---|---|
//! | `row` | a row: what the rules are, and how one is packed into 32 bits |
//! | `lookup` | modules, and the search for the row of an address |
//! | `index` | the block of words with all modules; its reader and its builder |
//! | `registers` | registers of the innermost frame, and where those of the others are |
//! | `walk` | from frame to frame |
//! | `memo` | walks that were done before |
//! | `table` | from an ELF file to rows: `elf` finds the sections, `entries` lists the functions, `rules` translates their rows, `rows` collects them, `stubs` knows code that has no information or special one |
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "std")]
extern crate std;

mod index;
mod lookup;
mod memo;
mod registers;
mod row;
#[cfg(feature = "std")]
mod table;
mod walk;

pub use index::Index;
#[cfg(feature = "std")]
pub use index::{Listed, build, list, word_count, words};
pub use lookup::{Lookup, Module};
pub use memo::Memos;
pub use registers::Registers;
pub use row::{Base, Cfa, Row, Rule, Saved};
#[cfg(feature = "std")]
pub use table::{Table, TableError};
pub use walk::{walk, walk_frame_pointers};
