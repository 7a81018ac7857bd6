//! The trampolines and landing pads of an arming as a memory file. Processes to which the arming is
//! copied map it, and share the pages that need no change.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use process::FilePiece;

use super::shared::within_limits;

/// The file, sealed against changes.
#[derive(Debug)]
pub(super) struct CodeFile {
    file: OwnedFd,
    /// Which part is mapped where, by address.
    pieces: Vec<FilePiece>,
}

impl CodeFile {
    /// Makes the file from the memory to be mapped (addresses and sizes) and the bytes written
    /// there.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(super) fn of(mut mapped: Vec<(u64, u64)>, written: &[(u64, Vec<u8>)]) -> io::Result<CodeFile> {
        mapped.sort_unstable();
        let (mut pieces, mut offset): (Vec<FilePiece>, u64) = (Vec::with_capacity(mapped.len()), 0);
        for (place, size) in mapped {
            match pieces.last_mut().filter(|last| last.place + last.size == place) {
                Some(last) => last.size += size,
                None => pieces.push(FilePiece { place, size, offset }),
            }
            offset += size;
        }
        let within = |address: u64| {
            let piece = pieces[..pieces.partition_point(|piece| piece.place <= address)].last()?;
            Some(piece.offset + (address - piece.place))
        };
        let at = |address| within(address).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput));
        let write = |file: &File| {
            let mut written = written.iter();
            written.try_for_each(|(address, bytes)| file.write_all_at(bytes, at(*address)?))
        };
        let file = within_limits(|| process::sealed_memory(offset, write))?;
        Ok(CodeFile { file, pieces })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The parts to be mapped in a process in which all addresses are `by` bytes higher.
    pub(super) fn pieces(&self, by: u64) -> Vec<FilePiece> {
        let moved = |piece: &FilePiece| FilePiece { place: piece.place.wrapping_add(by), ..*piece };
        self.pieces.iter().map(moved).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_touches_is_one_piece_and_all_is_written_where_it_is_mapped() {
        let mapped = vec![(0x9000, 0x1000), (0x4000, 0x2000), (0x6000, 0x1000)];
        let written = [(0x5ffe, vec![1, 2, 3, 4]), (0x9abc, vec![5])];
        let file = CodeFile::of(mapped, &written).expect("memory");
        let piece = |place, size, offset| FilePiece { place, size, offset };
        assert_eq!(file.pieces(0x1_0000), [piece(0x1_4000, 0x3000, 0), piece(0x1_9000, 0x1000, 0x3000)]);
        let content = File::from(file.file);
        let mut bytes = vec![0; 0x4000];
        content.read_exact_at(&mut bytes, 0).expect("it is as long");
        assert_eq!((&bytes[0x1ffe..0x2002], bytes[0x3abc]), (&[1, 2, 3, 4][..], 5));
        assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 5);
        assert!(content.write_all_at(&[1], 0).is_err(), "nobody changes it any more");
    }

    #[test]
    fn bytes_that_are_mapped_nowhere_are_an_error() {
        assert!(CodeFile::of(vec![(0x4000, 0x1000)], &[(0x3fff, vec![1])]).is_err());
    }
}
