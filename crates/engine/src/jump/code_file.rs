//! The trampolines and landing pads of an arming as a memory file. Processes to which the arming is
//! copied map it, and share the pages that need no change.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::sys::stat::{fstat, major, minor};
use process::{FilePiece, Mapping};

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

    /// Whether these pieces are mapped from this file, according to a process's mappings.
    pub(super) fn is_mapped_at(&self, pieces: &[FilePiece], mappings: &[Mapping]) -> bool {
        let Ok(file) = fstat(&self.file) else { return false };
        let device = (major(file.st_dev) as u32, minor(file.st_dev) as u32);
        let is_from_file = |piece: &FilePiece| {
            let mut at = piece.place;
            // Pieces side by side may be one mapping, and one piece may be several.
            while at < piece.place + piece.size {
                let place = mappings.partition_point(|mapping| mapping.end <= at);
                let Some(mapping) = mappings.get(place).filter(|mapping| mapping.start <= at) else {
                    return false;
                };
                let offset = mapping.offset.wrapping_add(at - mapping.start);
                let expected = piece.offset.wrapping_add(at - piece.place);
                if (mapping.device, mapping.inode, offset) != (device, file.st_ino, expected) {
                    return false;
                }
                at = mapping.end;
            }
            true
        };
        pieces.iter().all(is_from_file)
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
    fn what_is_mapped_is_this_file_at_its_offsets() {
        let written = [(0x4000, vec![1])];
        let one = CodeFile::of(vec![(0x4000, 0x2000), (0x9000, 0x1000)], &written).expect("memory");
        let other = CodeFile::of(vec![(0x4000, 0x3000)], &written).expect("memory");
        let map = |file: &CodeFile| {
            let file = File::from(file.file.try_clone().expect("descriptors"));
            memmap2::MmapOptions::new().map_raw_read_only(&file).expect("memory")
        };
        let (mapped, foreign) = (map(&one), map(&other));
        let mappings = process::maps(std::process::id() as i32).expect("it is this process");
        let at = |place: *const u8, size, offset| FilePiece { place: place as u64 + offset, size, offset };
        let whole = [at(mapped.as_ptr(), 0x2000, 0), at(mapped.as_ptr(), 0x1000, 0x2000)];
        assert!(one.is_mapped_at(&whole, &mappings));
        assert!(one.is_mapped_at(&[at(mapped.as_ptr(), 0x3000, 0)], &mappings));
        assert!(!one.is_mapped_at(&[at(foreign.as_ptr(), 0x1000, 0)], &mappings));
        assert!(!one.is_mapped_at(&[whole[0], at(foreign.as_ptr(), 0x1000, 0x2000)], &mappings));
        let shifted = FilePiece { offset: 0x1000, ..whole[0] };
        assert!(!one.is_mapped_at(&[shifted], &mappings));
        assert!(!one.is_mapped_at(&[FilePiece { place: 0x1000, ..whole[0] }], &mappings));
        assert!(!one.is_mapped_at(&whole, &[]));
    }

    #[test]
    fn bytes_that_are_mapped_nowhere_are_an_error() {
        assert!(CodeFile::of(vec![(0x4000, 0x1000)], &[(0x3fff, vec![1])]).is_err());
    }
}
