//! Writing whole records to an output that may take only a part of them.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

/// An output that can remove the bytes that it took last, if it supports that.
pub trait Retractable: Write {
    /// Removes the last `bytes` bytes. False: they cannot be removed.
    fn retract(&mut self, bytes: u64) -> bool;
}

impl Retractable for File {
    /// Only for a regular file that ends where this one has written last: it does not remove what
    /// others have written.
    fn retract(&mut self, bytes: u64) -> bool {
        let Some(end) = self.stream_position().ok().and_then(|at| Some((at, at.checked_sub(bytes)?))) else {
            return false;
        };
        let (at, end) = end;
        let is_ours = self.metadata().is_ok_and(|known| known.is_file() && known.len() == at);
        is_ours && self.set_len(end).is_ok() && self.seek(SeekFrom::Start(end)).is_ok()
    }
}

impl Retractable for Vec<u8> {
    fn retract(&mut self, bytes: u64) -> bool {
        let end = usize::try_from(bytes).ok().and_then(|bytes| self.len().checked_sub(bytes));
        end.inspect(|&end| self.truncate(end)).is_some()
    }
}

/// Writes records that follow one another in `bytes`; `end` gives where each ends. Returns how many
/// records were written as a whole, how many bytes the output has, and why it is not all. A partly
/// written record is removed again if possible.
pub(super) fn write_records<E>(
    out: &mut impl Retractable,
    bytes: &[u8],
    ends: &[E],
    end: impl Fn(&E) -> usize,
) -> (usize, usize, io::Result<()>) {
    let mut written = 0;
    let result = loop {
        let left = &bytes[written..];
        if left.is_empty() {
            break Ok(());
        }
        match out.write(left) {
            Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    let count = ends.partition_point(|it| end(it) <= written);
    let whole = count.checked_sub(1).map_or(0, |last| end(&ends[last]));
    let part = written - whole;
    let gone = if part > 0 && out.retract(part as u64) { whole } else { written };
    (count, gone, result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn only_the_end_of_an_own_file_is_taken_back() {
        let scratch = tempfile::NamedTempFile::new().expect("a file");
        let append = || File::options().append(true).open(scratch.path()).expect("it is there");
        let text = || std::fs::read_to_string(scratch.path()).expect("text");
        let mut one = append();
        one.write_all(b"one two").expect("room");
        assert!(one.retract(3));
        one.write_all(b"three").expect("room");
        assert_eq!(text(), "one three");
        assert!(!one.retract(100));
        append().write_all(b" other").expect("room");
        assert!(!one.retract(3));
        assert_eq!(text(), "one three other");
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let mut pipe = File::from(std::os::fd::OwnedFd::from(writer));
        pipe.write_all(b"gone").expect("room");
        assert!(!pipe.retract(2));
        drop(pipe);
        let mut read = String::new();
        reader.read_to_string(&mut read).expect("text");
        assert_eq!(read, "gone");
    }
}
