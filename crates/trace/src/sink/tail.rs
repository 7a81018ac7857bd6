//! What was written last, and is to be taken back: a record of which a part stands at the end of a file.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

/// Takes bytes, and gives the last of them back, if it can.
pub trait Tail: Write {
    /// Takes away the last bytes that were written: so many. False: they stay there.
    fn take_back(&mut self, bytes: u64) -> bool;
}

impl Tail for File {
    /// Only of a regular file that ends where this one was written last: what others have written is theirs.
    fn take_back(&mut self, bytes: u64) -> bool {
        let Some(end) = self.stream_position().ok().and_then(|at| Some((at, at.checked_sub(bytes)?))) else {
            return false;
        };
        let (at, end) = end;
        let is_ours = self.metadata().is_ok_and(|known| known.is_file() && known.len() == at);
        is_ours && self.set_len(end).is_ok() && self.seek(SeekFrom::Start(end)).is_ok()
    }
}

impl Tail for Vec<u8> {
    fn take_back(&mut self, bytes: u64) -> bool {
        let end = usize::try_from(bytes).ok().and_then(|bytes| self.len().checked_sub(bytes));
        end.inspect(|&end| self.truncate(end)).is_some()
    }
}

/// Writes records that stand one after another, each up to its end. Gives how many of them are there as a whole, how many bytes are
/// gone, and why not all. Of a record that was written in part, that part is taken back, if it can be.
pub(super) fn write_records<E>(
    out: &mut impl Tail,
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
    let gone = if part > 0 && out.take_back(part as u64) { whole } else { written };
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
        assert!(one.take_back(3));
        one.write_all(b"three").expect("room");
        assert_eq!(text(), "one three");
        assert!(!one.take_back(100));
        append().write_all(b" other").expect("room");
        assert!(!one.take_back(3));
        assert_eq!(text(), "one three other");
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let mut pipe = File::from(std::os::fd::OwnedFd::from(writer));
        pipe.write_all(b"gone").expect("room");
        assert!(!pipe.take_back(2));
        drop(pipe);
        let mut read = String::new();
        reader.read_to_string(&mut read).expect("text");
        assert_eq!(read, "gone");
    }
}
