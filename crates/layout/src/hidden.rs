//! What handlers do not see: the memory that dprobes has mapped in a process, and the bytes that it has written into code.
//!
//! The tracer writes a table into each address space whose handlers access memory; the process cannot write there. Compiled
//! code asks the first part of it before each access, a few instructions without a search:
//!
//! ```text
//!     leaf = table.leaves[address >> 27 & 0x7fff]           the leaf of 128 MiB, as an offset from the clean one
//!     mark = table.clean[leaf + (address >> 12 & 0x7fff)]   the mark of the page
//! ```
//!
//! A mark of 0 says that nothing of ours is in the page or in the one behind it. Any other is a reason to look closer, not an answer:
//! pages that are 4 TiB apart have a mark in common. The answer is in the [`Lists`], which the agent searches.
//!
//! | offset | what is there |
//! |---|---|
//! | 0 | a word of 4 bytes for each leaf, by bits 27 to 41 of the address: its offset from [`CLEAN`] |
//! | [`CLEAN`] | the leaf of what has no mark |
//! | [`SUSPECT`] | the leaf of what has no leaf of its own, since there are too many: all marks are [`OURS`] |
//! | [`LEAVES`] | [`LEAF_COUNT`] leaves |
//! | [`LISTS`] | [`Lists`] |
//! | [`LIST`] | the first list: ranges, then bytes |
//! | [`LIST`] + [`LIST_SIZE`] | the second |

use core::sync::atomic::AtomicU32;

/// The low bits of an address that a leaf covers.
pub const LEAF_BITS: u32 = 27;
/// The low bits of an address that a page covers.
pub const PAGE_BITS: u32 = 12;
/// The bits of a leaf's number, and those of a page's number in its leaf.
pub const INDEX: u32 = 0x7fff;
/// Bytes of a leaf: a mark for each page.
pub const LEAF: u64 = 1 << (LEAF_BITS - PAGE_BITS);

/// Where the clean leaf is, behind the leaves' offsets.
pub const CLEAN: u64 = (INDEX as u64 + 1) * 4;
/// Where the leaf is that is suspect as a whole.
pub const SUSPECT: u64 = CLEAN + LEAF;
/// Where the others are.
pub const LEAVES: u64 = SUSPECT + LEAF;
/// How many others there are.
pub const LEAF_COUNT: u64 = 64;
/// Where the [`Lists`] are.
pub const LISTS: u64 = LEAVES + LEAF_COUNT * LEAF;
/// Where the first list is.
pub const LIST: u64 = LISTS + crate::PAGE;
/// The most ranges in a list.
pub const RANGES: u64 = 1 << 15;
/// The most bytes in a list.
pub const BYTES: u64 = 1 << 18;
/// Where the bytes of a list are, from its start on.
pub const LIST_BYTES: u64 = RANGES * size_of::<Range>() as u64;
/// Bytes of a list.
pub const LIST_SIZE: u64 = LIST_BYTES + BYTES * 8;
/// Bytes of the whole table. Pages are taken when they are written first.
pub const SIZE: u64 = LIST + 2 * LIST_SIZE;

/// A mark: something in the page is ours, or may be.
pub const OURS: u8 = 1;
/// A mark: the page is the program's, but not all of the next one is.
pub const BEFORE_OURS: u8 = 2;
/// A mark: a stack may grow into the page; as long as it has not, an access would make it grow.
pub const BELOW_STACK: u8 = 4;

/// Which list holds, and what is in both.
#[repr(C)]
#[derive(Debug)]
pub struct Lists {
    /// Changes with every change of the lists; its lowest bit says which list holds.
    pub version: AtomicU32,
    /// Ranges in each list.
    pub ranges: [AtomicU32; 2],
    /// Changed bytes in each list.
    pub bytes: [AtomicU32; 2],
    /// Where a stack may grow: the first address, and the one behind the last.
    pub stack: [AtomicU32; 4],
}

/// Addresses at which handlers find nothing: ascending in a list, and apart.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub start: u64,
    /// Behind the last.
    pub end: u64,
}

/// A byte of the program's code in whose place another stands, as one word, by which a list is sorted.
pub fn changed_byte(address: u64, original: u8, written: u8) -> u64 {
    address << 16 | u64::from(original) << 8 | u64::from(written)
}
