//! The memory that handlers cannot access: areas that dprobes has mapped in a process, and bytes
//! that it has written into code.
//!
//! The tracer writes a table into each address space whose handlers access memory; the process
//! cannot write there. Before each access compiled code looks at the first part of the table, with
//! a few instructions and no search:
//!
//! ```text
//!     leaf = table.leaves[address >> 27 & 0x7fff]           the leaf of 128 MiB, as an offset from the clean one
//!     mark = table.clean[leaf + (address >> 12 & 0x7fff)]   the mark of the page
//! ```
//!
//! A mark of 0 says that nothing of ours is in the page or in the next page. Any other mark only
//! asks for a closer look, since pages that are 4 TiB apart share a mark. The exact answer is in
//! the [`Lists`], which the agent searches.
//!
//! | offset | what is there |
//! |---|---|
//! | 0 | a word of 4 bytes for each leaf, by bits 27 to 41 of the address: its offset from [`CLEAN_LEAF`] |
//! | [`CLEAN_LEAF`] | the leaf of what has no mark |
//! | [`SUSPECT_LEAF`] | the leaf of what has no leaf of its own, since there are too many: all marks are [`MARK_OURS`] |
//! | [`LEAVES`] | [`LEAF_COUNT`] leaves |
//! | [`LISTS`] | [`Lists`] |
//! | [`LIST`] | the first list: ranges, then bytes |
//! | [`LIST`] + [`LIST_SIZE`] | the second |

use core::sync::atomic::AtomicU32;

/// How many low bits of an address select a byte in a leaf.
pub const LEAF_BITS: u32 = 27;
/// How many low bits of an address select a byte in a page.
pub const PAGE_BITS: u32 = 12;
/// The mask of a leaf's number, and of a page's number in its leaf.
pub const INDEX: u32 = 0x7fff;
/// Bytes of a leaf: one mark for each page.
pub const LEAF: u64 = 1 << (LEAF_BITS - PAGE_BITS);

/// The offset of the clean leaf, after the leaves' offsets.
pub const CLEAN_LEAF: u64 = (INDEX as u64 + 1) * 4;
/// The offset of the leaf in which every page is suspect.
pub const SUSPECT_LEAF: u64 = CLEAN_LEAF + LEAF;
/// The offset of the other leaves.
pub const LEAVES: u64 = SUSPECT_LEAF + LEAF;
/// How many other leaves there are.
pub const LEAF_COUNT: u64 = 64;
/// The offset of the [`Lists`].
pub const LISTS: u64 = LEAVES + LEAF_COUNT * LEAF;
/// The offset of the first list.
pub const LIST: u64 = LISTS + crate::constants::PAGE;
/// The most ranges in a list.
pub const RANGES: u64 = 1 << 15;
/// The most changed bytes in a list.
pub const BYTES: u64 = 1 << 18;
/// The offset of the changed bytes from the start of a list.
pub const LIST_BYTES: u64 = RANGES * size_of::<Range>() as u64;
/// Bytes of a list.
pub const LIST_SIZE: u64 = LIST_BYTES + BYTES * 8;
/// Bytes of the whole table. The kernel allocates its pages when they are first written.
pub const SIZE: u64 = LIST + 2 * LIST_SIZE;

/// A mark: something in the page is ours, or may be.
pub const MARK_OURS: u8 = 1;
/// A mark: the page is the program's, but part of the next one is not.
pub const BEFORE_OURS: u8 = 2;
/// A mark: a stack may grow into the page. If it has not grown there yet, an access would make it
/// grow.
pub const BELOW_STACK: u8 = 4;

/// Which of the two lists is current, and the lengths of both.
#[repr(C)]
#[derive(Debug)]
pub struct Lists {
    /// Changes with every change of the lists; its lowest bit is the index of the current list.
    pub version: AtomicU32,
    /// Ranges in each list.
    pub ranges: [AtomicU32; 2],
    /// Changed bytes in each list.
    pub bytes: [AtomicU32; 2],
    /// Where a stack may grow: the first address and the end, two words each, the low word first.
    pub stack: [AtomicU32; 4],
}

/// Addresses that read as unmapped to handlers. In a list ranges ascend and do not touch.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first address.
    pub start: u64,
    /// The end (exclusive).
    pub end: u64,
}

/// A byte of the program's code that was overwritten, packed into one word. A list is sorted by
/// this word.
pub fn changed_byte(address: u64, original: u8, written: u8) -> u64 {
    address << 16 | u64::from(original) << 8 | u64::from(written)
}
