//! Buffered reading of a process's memory, for many small reads in ascending order.

use std::cell::RefCell;
use std::io;

use layout::PAGE;
use process::Memory;

/// Bytes read at once.
const SPAN: usize = 1 << 14;

/// A buffered view of a process's memory: bytes close together are read once. For memory that does
/// not change meanwhile, or where stale bytes do no harm.
#[derive(Debug)]
pub(crate) struct Window<'a> {
    memory: &'a Memory,
    /// The buffer: its address and bytes.
    read: RefCell<(u64, Vec<u8>)>,
}

impl<'a> Window<'a> {
    /// An empty buffer.
    pub(crate) fn new(memory: &'a Memory) -> Window<'a> {
        Window { memory, read: RefCell::default() }
    }

    /// The memory itself.
    pub(crate) fn memory(&self) -> &'a Memory {
        self.memory
    }

    /// Reads bytes.
    ///
    /// # Errors
    /// As of [`Memory::peek`].
    pub(crate) fn peek(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        let mut read = self.read.borrow_mut();
        let (start, bytes) = &mut *read;
        if !holds(*start, bytes, address, into.len()) {
            *start = address / PAGE * PAGE;
            bytes.resize(SPAN, 0);
            if self.memory.peek(*start, bytes).is_err() {
                bytes.clear();
            }
        }
        if !holds(*start, bytes, address, into.len()) {
            // Something near it is not mapped.
            return self.memory.peek(address, into);
        }
        let from = (address - *start) as usize;
        into.copy_from_slice(&bytes[from..from + into.len()]);
        Ok(())
    }

    /// Drops the buffer after a write.
    pub(crate) fn forget(&self) {
        self.read.borrow_mut().1.clear();
    }
}

/// Whether `bytes`, read at `start`, contain the whole range at `address`.
fn holds(start: u64, bytes: &[u8], address: u64, length: usize) -> bool {
    address >= start && (address - start).saturating_add(length as u64) <= bytes.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_memory() {
        let own: Vec<u8> = (0..100_000u32).map(|byte| (byte % 253) as u8).collect();
        let memory = Memory::open(std::process::id() as i32).expect("own memory");
        let window = Window::new(&memory);
        let base = own.as_ptr() as u64;
        for (at, length) in
            [(0, 15), (3, 1), (5_000, 15), (16_380, 15), (99_985, 15), (10, 15), (4090, 40_000)]
        {
            let mut bytes = vec![0; length];
            window.peek(base + at as u64, &mut bytes).expect("own memory");
            assert_eq!(bytes, own[at..at + length]);
        }
        let mut byte = [0];
        assert!(window.peek(16, &mut byte).is_err());
        memory.poke(base + 20, &[99]).expect("own memory");
        window.peek(base + 10, &mut byte).expect("own memory");
        window.forget();
        window.peek(base + 20, &mut byte).expect("own memory");
        assert_eq!(byte, [99]);
    }
}
