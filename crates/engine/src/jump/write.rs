//! Writes code and descriptions to newly mapped memory that nobody uses yet. What is close together
//! is written in one go.

use std::io;

use process::Memory;

use super::trampoline_allocator::ALIGNMENT;

/// A piece of at least so many bytes is not extended any more.
const PIECE: usize = 1 << 20;

/// Writes bytes, each with their address, in ascending order. Between two that are less than
/// [`ALIGNMENT`] apart there is only the unused rest of the first one's piece of
/// `TrampolineAllocator`; it is filled with zeros.
///
/// # Errors
/// Nothing is mapped there, or the process is gone.
pub(crate) fn all<'a>(memory: &Memory, writes: impl IntoIterator<Item = (u64, &'a [u8])>) -> io::Result<()> {
    apart(memory, writes, ALIGNMENT)
}

/// The same if gaps of less than `distance` bytes are unused.
///
/// # Errors
/// As of [`all`].
pub(crate) fn apart<'a>(
    memory: &Memory,
    writes: impl IntoIterator<Item = (u64, &'a [u8])>,
    distance: u64,
) -> io::Result<()> {
    let (mut start, mut piece) = (0, Vec::new());
    for (address, bytes) in writes {
        let end = start + piece.len() as u64;
        if piece.is_empty() || address < end || address - end >= distance || piece.len() >= PIECE {
            flush(memory, start, &mut piece)?;
            start = address;
        }
        piece.resize((address - start) as usize, 0);
        piece.extend_from_slice(bytes);
    }
    flush(memory, start, &mut piece)
}

fn flush(memory: &Memory, start: u64, piece: &mut Vec<u8>) -> io::Result<()> {
    if !piece.is_empty() {
        memory.poke(start, piece)?;
        piece.clear();
    }
    Ok(())
}

/// Joins writes to pieces in the same way, to be written more than once.
pub(crate) fn together<'a>(
    writes: impl IntoIterator<Item = (u64, &'a [u8])>,
    distance: u64,
) -> Vec<(u64, Vec<u8>)> {
    let mut pieces: Vec<(u64, Vec<u8>)> = Vec::new();
    for (address, bytes) in writes {
        let near = |(start, piece): &&mut (u64, Vec<u8>)| {
            let end = *start + piece.len() as u64;
            (end..end.saturating_add(distance)).contains(&address) && piece.len() < PIECE
        };
        match pieces.last_mut().filter(near) {
            Some((start, piece)) => {
                piece.resize((address - *start) as usize, 0);
                piece.extend_from_slice(bytes);
            }
            None => pieces.push((address, bytes.to_vec())),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_more_than_once_is_in_the_same_pieces() {
        let writes: [(u64, &[u8]); 4] = [(1, &[1, 2]), (32, &[3]), (100, &[4]), (101, &[5])];
        let (first, second) = ([&[1, 2][..], &[0; 29], &[3]].concat(), vec![4, 5]);
        assert_eq!(together(writes, 32), [(1, first), (100, second)]);
    }

    #[test]
    fn what_lies_apart_is_not_touched() {
        let own = vec![0x55u8; 4096];
        let base = own.as_ptr() as u64;
        let memory = Memory::open(std::process::id() as i32).expect("own memory");
        let writes: [(u64, &[u8]); 3] = [(base + 1, &[1, 2]), (base + 32, &[3]), (base + 100, &[4])];
        all(&memory, writes).expect("own memory");
        let mut seen = vec![0; own.len()];
        memory.peek(base, &mut seen).expect("own memory");
        assert_eq!(seen[..4], [0x55, 1, 2, 0], "up to the next one it is unused");
        assert_eq!(seen[31..34], [0, 3, 0x55]);
        assert_eq!(seen[99..102], [0x55, 4, 0x55]);
    }
}
