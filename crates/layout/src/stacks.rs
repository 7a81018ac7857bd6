//! Where a process has the tables for walking stacks without frame pointers: a [`Directory`], a
//! page that only the tracer writes.
//!
//! The tables are in a *block*, elsewhere, whose first word says how many words it has. It grows:
//! whatever was written stays as it is, and when modules come or go the tracer writes the rows of
//! new ones and another list of all modules behind it. Then it writes a slot of the directory, and
//! then the one byte that says which slot is current, and at last the version. So a thread that
//! walks a stack meanwhile has the list before or the list after, both whole; and one that has read
//! a version before it looked for the list has that version's list or a later one.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

/// How many slots there are. The first is never used: 0 says that there is no block.
pub const SLOTS: usize = 256;

/// How many bits of a slot's word are the place of the list.
const LIST_BITS: u32 = 29;
/// The end of the addresses of a process.
const END: u64 = 1 << 47;

/// Which list is current.
#[repr(C, align(8))]
#[derive(Debug)]
pub struct Directory {
    /// The index of the current slot; 0: there is none.
    pub current: AtomicU8,
    /// Slots: see [`slot`].
    pub slots: [AtomicU64; SLOTS],
    /// A number that no other list of this process has had.
    pub version: AtomicU64,
}

/// The word of a slot: a block's address, a multiple of the page size, and the index of the block's
/// word where the list begins. `None` if they do not fit.
pub fn slot(block: u64, list: usize) -> Option<u64> {
    let list = u64::try_from(list).ok().filter(|list| *list < 1 << LIST_BITS)?;
    let is_block = block.is_multiple_of(crate::PAGE) && (1..END).contains(&block);
    is_block.then_some(block << (LIST_BITS - crate::PAGE.trailing_zeros()) | list)
}

impl Directory {
    /// How often a slot is read again that may have been written meanwhile. The tracer comes back
    /// to a slot after all the others.
    const TRIES: usize = 4;

    /// The address of the current block, and the index of the word where the list begins.
    pub fn block(&self) -> Option<(u64, usize)> {
        for _ in 0..Directory::TRIES {
            let current = self.current.load(Ordering::Acquire);
            if current == 0 {
                return None;
            }
            let slot = self.slots[usize::from(current)].load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            if self.current.load(Ordering::Relaxed) == current {
                let list = slot & ((1 << LIST_BITS) - 1);
                let block = slot >> LIST_BITS << crate::PAGE.trailing_zeros();
                return (block != 0).then_some((block, list as usize));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> Directory {
        Directory {
            current: AtomicU8::new(0),
            slots: [const { AtomicU64::new(0) }; SLOTS],
            version: AtomicU64::new(0),
        }
    }

    #[test]
    fn a_slot_holds_a_block_and_a_list() {
        let directory = directory();
        assert_eq!(directory.block(), None);
        for (block, list) in [(0x1000, 0), (0x7fff_ffff_f000, (1 << 29) - 1), (0x7f12_3456_7000, 77)] {
            let word = slot(block, list).expect("it fits");
            directory.slots[255].store(word, Ordering::Relaxed);
            directory.current.store(255, Ordering::Relaxed);
            assert_eq!(directory.block(), Some((block, list)));
        }
        directory.current.store(3, Ordering::Relaxed);
        assert_eq!(directory.block(), None);
    }

    #[test]
    fn what_does_not_fit_is_no_slot() {
        for (block, list) in [(0, 0), (0x1008, 0), (1 << 47, 0), (0x1000, 1 << 29), (0x1000, usize::MAX)] {
            assert_eq!(slot(block, list), None, "{block:#x} {list}");
        }
    }

    #[test]
    fn it_is_less_than_a_page() {
        assert!(size_of::<Directory>() as u64 <= crate::PAGE);
    }
}
