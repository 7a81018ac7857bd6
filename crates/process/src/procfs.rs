//! Reads the small files of /proc; every event of a process needs some of them.
//!
//! The crate procfs is no slower, but refuses a whole file if a name or path in it is not UTF-8,
//! which any process can have.

use std::fs::File;
use std::io::{self, Read};

/// Bytes requested in one read: more than nearly all of these files have.
const ROOM: usize = 4096;

/// The content of a file that the kernel writes as one piece: `status`, `stat`, `statm`, `comm`,
/// `auxv`. Such a file reports no size; a short read means its end. So one call is enough, where
/// reading until nothing is left takes a dozen.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read_piece(path: &str) -> io::Result<Vec<u8>> {
    read_all(File::open(path)?, ROOM)
}

/// Bytes of a list requested in one read. The kernel returns at most a page of whole lines.
const LIST: usize = 1 << 15;
/// The most bytes of a list. The kernel's default limit is 65,530 mappings (`vm.max_map_count`), of
/// some hundred bytes each.
const LONGEST_LIST: usize = 1 << 30;

/// The content of a file that the kernel writes line by line, in pieces: `maps`, `children`. An
/// empty read means its end.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read_to_end(mut file: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut filled = 0;
    loop {
        if bytes.len() < filled + LIST / 2 {
            bytes.resize(filled + LIST, 0);
        }
        match file.read(&mut bytes[filled..]) {
            Ok(0) => {
                bytes.truncate(filled);
                return Ok(bytes);
            }
            Ok(count) if filled < LONGEST_LIST => filled += count,
            Ok(_) => return Err(io::ErrorKind::FileTooLarge.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn read_all(mut file: impl Read, room: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; room];
    let mut filled = 0;
    loop {
        match file.read(&mut bytes[filled..]) {
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if filled < bytes.len() {
            bytes.truncate(filled);
            return Ok(bytes);
        }
        bytes.resize(2 * filled, 0);
    }
}

#[cfg(test)]
mod tests {
    use memmap2::MmapOptions;

    use super::*;

    /// Counts the calls.
    struct Counted<'a>(&'a [u8], &'a mut u32);

    impl Read for Counted<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            *self.1 += 1;
            self.0.read(into)
        }
    }

    #[test]
    fn all_is_read_in_as_few_calls_as_can_be() {
        for (length, expected) in [(0, 1), (15, 1), (16, 2), (31, 2), (32, 3), (100, 4)] {
            let text: Vec<u8> = (0..length).collect();
            let mut calls = 0;
            let read = read_all(Counted(&text, &mut calls), 16).expect("memory can be read");
            assert_eq!((read, calls), (text, expected), "{length} bytes");
        }
    }

    #[test]
    fn the_kernels_files_are_read_to_their_ends() {
        let own = |name: &str| format!("/proc/self/{name}");
        let status = read_piece(&own("status")).expect("a process has a status");
        assert!(
            status.starts_with(b"Name:") && status.ends_with(b"\n"),
            "{}",
            String::from_utf8_lossy(&status)
        );
        assert_eq!(std::fs::read(own("auxv")).ok(), read_piece(&own("auxv")).ok());
        assert_eq!(std::fs::read(own("comm")).ok(), read_piece(&own("comm")).ok());
        assert!(read_piece("/proc/self/nothing").is_err());
        assert_eq!(File::open(own("comm")).and_then(read_to_end).ok(), read_piece(&own("comm")).ok());
        // So many mappings that the list comes in several pieces.
        let program = File::open(own("exe")).expect("a process has a program");
        let page = || MmapOptions::new().len(1).map_raw_read_only(&program).expect("memory");
        let _pages: Vec<_> = (0..100).map(|_| page()).collect();
        let maps = File::open(own("smaps")).and_then(read_to_end).expect("a process has mappings");
        assert!(
            maps.len() > LIST && maps.ends_with(b"\n") && maps.windows(8).any(|word| word == b"[stack]\n")
        );
    }
}
