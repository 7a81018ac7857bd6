//! The heap of a hit (5.0): blocks of bytes, which a handler refers to by handles.
//!
//! Every hit starts without blocks. A handle is the number of the `malloc` that returned it, from 1
//! on; it is never reused. Blocks are contiguous, in the order of their handles, and the blocks
//! behind a freed one move down: a block fits if enough bytes are free, and no program can see
//! where it lies. A new block is zeroed. A block may have size 0 and is freed like any other (5.0
//! refused that). Blocks have no headers, so all bytes of the heap are usable.

use crate::Exception;

/// The maximum size in bytes of all heap blocks of a run together, whatever the program says (5.0).
pub const HEAP_LIMIT: usize = 16 * 1024;

/// The maximum number of heap blocks at a time.
pub const HEAP_BLOCKS: usize = 256;

/// The heap of a run.
pub(crate) struct Heap {
    bytes: [u8; HEAP_LIMIT],
    blocks: [Block; HEAP_BLOCKS],
    /// Number of blocks.
    count: usize,
    /// Their total size in bytes.
    used: usize,
    /// The last handle returned.
    last: u32,
}

/// The position of a block.
#[derive(Clone, Copy)]
struct Block {
    handle: u32,
    start: u16,
    size: u16,
}

impl Heap {
    /// A heap without blocks.
    pub(crate) const fn new() -> Heap {
        let blocks = [Block { handle: 0, start: 0, size: 0 }; HEAP_BLOCKS];
        Heap { bytes: [0; HEAP_LIMIT], blocks, count: 0, used: 0, last: 0 }
    }

    /// Drops all blocks.
    pub(crate) fn clear(&mut self) {
        (self.count, self.used, self.last) = (0, 0, 0);
    }

    /// Allocates a block and returns its handle. All blocks together may have `limit` bytes.
    pub(crate) fn allocate(&mut self, size: u64, limit: usize) -> Result<u64, Exception> {
        let none = || Exception::new(Exception::HEAP_NOMEM, size, 0);
        if size > limit.min(HEAP_LIMIT).saturating_sub(self.used) as u64 {
            return Err(none());
        }
        let handle = self.last.checked_add(1).ok_or_else(none)?;
        let place = self.blocks.get_mut(self.count).ok_or_else(none)?;
        let (start, end) = (self.used, self.used + size as usize);
        // HEAP_LIMIT fits a u16.
        *place = Block { handle, start: start as u16, size: size as u16 };
        self.bytes[start..end].fill(0);
        (self.count, self.used, self.last) = (self.count + 1, end, handle);
        Ok(handle.into())
    }

    /// Frees a block.
    pub(crate) fn free(&mut self, handle: u64) -> Result<(), Exception> {
        let number = self.find(handle, 0)?;
        let Block { start, size, .. } = self.blocks[number];
        self.bytes.copy_within(usize::from(start + size)..self.used, start.into());
        self.blocks.copy_within(number + 1..self.count, number);
        self.count -= 1;
        self.used -= usize::from(size);
        for later in &mut self.blocks[number..self.count] {
            later.start -= size;
        }
        Ok(())
    }

    /// The bytes of a block. `offset` is the one popped with its handle, for the exception.
    pub(crate) fn block(&mut self, handle: u64, offset: u64) -> Result<&mut [u8], Exception> {
        let Block { start, size, .. } = self.blocks[self.find(handle, offset)?];
        Ok(&mut self.bytes[start.into()..usize::from(start + size)])
    }

    /// The index of a block in `blocks`, which is sorted by handle.
    fn find(&self, handle: u64, offset: u64) -> Result<usize, Exception> {
        let blocks = &self.blocks[..self.count];
        let found = blocks.binary_search_by_key(&handle, |block| block.handle.into());
        found.map_err(|_| Exception::new(Exception::INVALID_HANDLE, handle, offset))
    }
}

/// The `N` bytes at an offset in `block`, which has that handle.
pub(crate) fn value<const N: usize>(
    block: &mut [u8],
    handle: u64,
    offset: u64,
) -> Result<&mut [u8; N], Exception> {
    let rest = usize::try_from(offset).ok().and_then(|offset| block.get_mut(offset..));
    let outside = || Exception::new(Exception::INVALID_OFFSET, handle, offset);
    rest.and_then(|rest| rest.first_chunk_mut()).ok_or_else(outside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_their_bytes_whatever_is_freed_around_them() {
        let mut heap = Heap::new();
        // Blocks of 0 to 99 bytes, each filled with its own number; then every third is freed and
        // others take the space.
        let fill = |heap: &mut Heap, size: u64| {
            let handle = heap.allocate(size, HEAP_LIMIT).expect("room");
            heap.block(handle, 0).expect("a block").fill(handle as u8);
            handle
        };
        let first: Vec<u64> = (0..100).map(|size| fill(&mut heap, size)).collect();
        for handle in first.iter().step_by(3) {
            heap.free(*handle).expect("a block");
        }
        let second: Vec<u64> = (0..40).map(|size| fill(&mut heap, 2 * size)).collect();
        for (place, &handle) in first.iter().enumerate() {
            match heap.block(handle, 7) {
                Ok(block) => assert_eq!(block, vec![handle as u8; place]),
                Err(exception) => {
                    assert_eq!(exception, Exception::new(Exception::INVALID_HANDLE, handle, 7));
                    assert_eq!(place % 3, 0);
                }
            }
        }
        for (place, &handle) in second.iter().enumerate() {
            assert_eq!(heap.block(handle, 0).expect("a block"), vec![handle as u8; 2 * place]);
        }
        let used: usize =
            (0..100).filter(|place| place % 3 != 0).sum::<usize>() + (0..40).map(|it| 2 * it).sum::<usize>();
        assert_eq!(heap.used, used);
        assert!(heap.allocate((HEAP_LIMIT - used) as u64 + 1, usize::MAX).is_err());
        assert!(heap.allocate((HEAP_LIMIT - used) as u64, usize::MAX).is_ok());
    }
}
