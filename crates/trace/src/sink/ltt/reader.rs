//! Reads a stream from a file or a pipe, also while it is written.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};

use super::events::{Decoded, Decoder, Event};
use crate::raw::Malformed;

/// How many bytes are read at once.
const CHUNK: usize = 1 << 16;

/// Reads the entries of a stream one by one. It holds no more than one entry and 64 KiB.
///
/// The writer of a file may remove the part of an event for which there was no room. So a part of
/// an event is not kept: it is read again when there is more.
#[derive(Debug)]
pub struct EventReader {
    file: File,
    /// Whether it is a regular file, which grows. Anything else ends when its writers are gone.
    grows: bool,
    decoder: Decoder,
    bytes: Vec<u8>,
    /// The bytes of `bytes` that are decoded.
    used: usize,
    /// The offset in the stream of the first byte that is not decoded.
    offset: u64,
}

/// What a reader finds next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// An entry.
    Event(Event),
    /// A file has no further entry yet; so many bytes of one are there.
    NothingYet(usize),
    /// The writers of a pipe are gone, and have left so many bytes of an entry.
    End(usize),
}

/// Why a stream cannot be read further.
#[derive(Debug)]
pub enum ReadError {
    /// The file cannot be read.
    Io(io::Error),
    /// At this offset is no entry.
    Malformed(u64, Malformed),
    /// The file was emptied or cut since it was read, up to this offset.
    Shrunk(u64),
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReadError::Io(error) => error.fmt(f),
            ReadError::Malformed(offset, wrong) => {
                write!(f, "offset {offset:#x}: this is no entry of a stream of raw events: {wrong}")
            }
            ReadError::Shrunk(offset) => {
                write!(
                    f,
                    "the file was emptied or cut after it was read up to offset {offset:#x}; read it anew"
                )
            }
        }
    }
}

impl std::error::Error for ReadError {}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> ReadError {
        ReadError::Io(error)
    }
}

impl EventReader {
    /// Reads a file or a pipe from where it is.
    ///
    /// # Errors
    /// Nothing is known of the file.
    pub fn new(file: File) -> io::Result<EventReader> {
        let grows = file.metadata()?.is_file();
        Ok(EventReader { file, grows, decoder: Decoder::default(), bytes: Vec::new(), used: 0, offset: 0 })
    }

    /// The next entry. For a pipe it waits for one.
    ///
    /// # Errors
    /// What is there cannot be read, or is no entry. After an error the reader is of no further
    /// use.
    #[expect(
        clippy::should_implement_trait,
        reason = "the end of an iterator would not be the end of a file"
    )]
    pub fn next(&mut self) -> Result<Next, ReadError> {
        loop {
            let wanted = match self.decoder.decode(&self.bytes[self.used..]) {
                Ok(Decoded::Whole(event, length)) => {
                    self.used += length;
                    self.offset += length as u64;
                    return Ok(Next::Event(event));
                }
                Ok(Decoded::Part(length)) => length,
                Err(wrong) => {
                    return Err(ReadError::Malformed(self.offset + wrong.offset as u64, wrong));
                }
            };
            if self.more(wanted)? == 0 {
                let part = self.bytes.len() - self.used;
                if !self.grows {
                    return Ok(Next::End(part));
                }
                self.go_back()?;
                return Ok(Next::NothingYet(part));
            }
        }
    }

    /// Whether all that was read is decoded, or a part of an entry.
    pub fn is_drained(&self) -> bool {
        let left = &self.bytes[self.used..];
        left.first_chunk().is_none_or(|head: &[u8; 8]| {
            let size = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
            left.len() < head.len() + size as usize
        })
    }

    /// Reads on, for an entry of `wanted` bytes. Returns how many bytes there were.
    fn more(&mut self, wanted: usize) -> io::Result<usize> {
        self.bytes.drain(..self.used);
        self.used = 0;
        let have = self.bytes.len();
        self.bytes.resize(have.max(wanted).max(CHUNK), 0);
        let read = loop {
            match self.file.read(&mut self.bytes[have..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.bytes.truncate(have + *read.as_ref().unwrap_or(&0));
        read
    }

    /// Forgets the part of an entry that was read, and goes back to its start.
    fn go_back(&mut self) -> Result<(), ReadError> {
        self.bytes.clear();
        if self.file.metadata()?.len() < self.offset {
            return Err(ReadError::Shrunk(self.offset));
        }
        self.file.seek(SeekFrom::Start(self.offset))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::OwnedFd;

    use proptest::prelude::*;

    use super::super::{Events, Ltt};
    use super::*;
    use crate::Record;
    use crate::sink::{Sink, View};

    /// A stream of some records, and its entries.
    fn stream(count: u64) -> (Vec<u8>, Vec<Event>) {
        let file = tempfile::NamedTempFile::new().expect("room");
        let mut ltt = Ltt::new(file.reopen().expect("it is there"));
        ltt.show(0, &View::default());
        for number in 0..count {
            let data = number.to_le_bytes()[..(number % 9) as usize].to_vec();
            ltt.record(0, &Record { data, ..Record::default() }).expect("room");
        }
        ltt.finish().expect("room");
        let bytes = std::fs::read(file.path()).expect("it is there");
        let events = Events::of(&bytes).collect::<Result<_, _>>().expect("whole");
        (bytes, events)
    }

    /// All entries that are there now, and the bytes of a part.
    fn there(reader: &mut EventReader) -> (Vec<Event>, usize) {
        let mut events = Vec::new();
        loop {
            match reader.next().expect("a stream") {
                Next::Event(event) => events.push(event),
                Next::NothingYet(part) | Next::End(part) => return (events, part),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn a_file_that_grows_is_read_entry_by_entry(cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..9)) {
            let (bytes, events) = stream(100);
            let file = tempfile::NamedTempFile::new().expect("room");
            let mut reader = EventReader::new(file.reopen().expect("it is there")).expect("it is there");
            let mut out = file.reopen().expect("it is there");
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
            places.push(bytes.len());
            places.sort_unstable();
            let (mut from, mut seen) = (0, Vec::new());
            for place in places {
                out.write_all(&bytes[from..place]).expect("room");
                from = place;
                let (new, part) = there(&mut reader);
                prop_assert_eq!(reader.offset + part as u64, place as u64, "all is read");
                seen.extend(new);
            }
            prop_assert_eq!(seen, events);
        }
    }

    #[test]
    fn a_part_of_an_event_that_is_removed_again_is_not_read() {
        let (bytes, events) = stream(3);
        let file = tempfile::NamedTempFile::new().expect("room");
        let mut reader = EventReader::new(file.reopen().expect("it is there")).expect("it is there");
        let mut out = file.reopen().expect("it is there");
        // The beginning of another entry, of which no more comes.
        out.write_all(b"\x09\0\0\0\xff\0\0\0part").expect("room");
        assert_eq!(there(&mut reader), (vec![], 12));
        out.set_len(0).expect("it is a file");
        out.rewind().expect("it is a file");
        out.write_all(&bytes).expect("room");
        assert_eq!(there(&mut reader), (events, 0));
        out.set_len(5).expect("it is a file");
        let error = reader.next().expect_err("what was read is gone");
        assert!(matches!(error, ReadError::Shrunk(at) if at == bytes.len() as u64), "{error}");
    }

    #[test]
    fn a_pipe_is_read_to_its_end() {
        let (bytes, events) = stream(10_000);
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let mut reader = EventReader::new(File::from(OwnedFd::from(reader))).expect("a pipe");
        let writing = std::thread::spawn(move || writer.write_all(&bytes[..bytes.len() - 1]));
        let (seen, part) = there(&mut reader);
        assert_eq!((seen.as_slice(), part), (&events[..events.len() - 1], 11));
        writing.join().expect("it writes").expect("it is read");
    }

    #[test]
    fn what_is_no_stream_is_told_with_its_place() {
        let (mut bytes, events) = stream(2);
        let end = bytes.len() as u64;
        bytes.extend([0, 0, 0, 0, 1, 0, 0, 0, 7]);
        let file = tempfile::NamedTempFile::new().expect("room");
        std::fs::write(file.path(), &bytes).expect("room");
        let mut reader = EventReader::new(file.reopen().expect("it is there")).expect("it is there");
        for event in events {
            assert_eq!(reader.next().expect("a stream"), Next::Event(event));
        }
        let error = reader.next().expect_err("one byte describes no event");
        assert!(matches!(error, ReadError::Malformed(at, _) if at == end + 8), "{error}");
    }
}
