//! The raw event stream of the paper, section 5, as a file: what the original handed to the Linux
//! Trace Toolkit. [`Ltt`] writes it, [`Events`] reads it whole, and [`EventReader`] while it grows.
//!
//! The paper has three calls (create an event for a module, log one, destroy it), and
//! `struct trace_raw` for what is logged. A stream is these calls in their order. All numbers have
//! 4 bytes and are little-endian:
//!
//! ```text
//! id         4    which event: a number that was created; 0: what follows is about events
//! DataSize   4    the bytes of Data
//! Data            the record: its header (`raw`), and the logged bytes
//! ```
//!
//! and, where the id is 0, Data is one of
//!
//! ```text
//! id 4, word 4, module, format, description    created: three texts, each with a NUL; word: the bytes of a word in headers, 4 or 8
//! id 4                                         destroyed
//! id 4, lost 8                                 so many records of this event were lost before
//! ```
//!
//! The paper does not say how a daemon stores created events; this format is ours. When an id is
//! created again, it is a different event from there on, so streams can be concatenated.

mod events;
mod reader;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::mem;

use super::whole_records::{Retractable, write_records};
use super::{Sink, View};
use crate::raw;
use crate::store::{Fact, Loss};
use crate::{Items, Record};
pub use events::{Event, Events};
pub use reader::{EventReader, Next, ReadError};

use events::ABOUT;

/// How many bytes are kept before they are written.
const KEPT: usize = 1 << 16;

/// A stream that is being written. It consists of whole events: a partly written event is removed
/// again. Where that is not possible (a pipe), its rest is written before anything else.
#[derive(Debug)]
pub struct Ltt<W: Retractable = File> {
    out: W,
    /// The header items of each program's records.
    shows: Vec<(u32, Items)>,
    /// Events that are not written yet.
    kept: Vec<u8>,
    /// For each of these events: its end in `kept`, and whether it is a record.
    ends: Vec<(usize, bool)>,
    /// By program: how many records were lost that the stream does not mention yet.
    missing: BTreeMap<u32, u64>,
    data: Vec<u8>,
    lost: u64,
}

impl<W: Retractable> Ltt<W> {
    /// A stream that continues at the end of `out`.
    pub fn new(out: W) -> Ltt<W> {
        Ltt {
            out,
            shows: Vec::new(),
            kept: Vec::with_capacity(KEPT),
            ends: Vec::new(),
            missing: BTreeMap::new(),
            data: Vec::new(),
            lost: 0,
        }
    }

    /// Keeps an event whose data is in `self.data`.
    fn keep(&mut self, id: u32) {
        self.kept.extend_from_slice(&id.to_le_bytes());
        self.kept.extend_from_slice(&(self.data.len() as u32).to_le_bytes());
        self.kept.extend_from_slice(&self.data);
        self.ends.push((self.kept.len(), id != ABOUT));
    }

    /// Adds events for the records that were lost so far.
    fn tell_missing(&mut self) {
        for (program, lost) in mem::take(&mut self.missing) {
            self.data.clear();
            self.data.extend_from_slice(&id(program).to_le_bytes());
            self.data.extend_from_slice(&lost.to_le_bytes());
            self.keep(ABOUT);
        }
    }

    fn records_kept(&self) -> u64 {
        self.ends.iter().filter(|(_, is_record)| *is_record).count() as u64
    }

    fn misses(&mut self, program: u32, lost: u64) {
        let missing = self.missing.entry(program).or_default();
        *missing = missing.saturating_add(lost);
    }

    /// Writes what is kept. Events that could not be written stay kept.
    fn write(&mut self) -> io::Result<()> {
        let (count, gone, result) = write_records(&mut self.out, &self.kept, &self.ends, |&(end, _)| end);
        self.kept.drain(..gone);
        self.ends.drain(..count);
        self.ends.iter_mut().for_each(|(end, _)| *end -= gone);
        result
    }
}

/// The event id of a program.
fn id(program: u32) -> u32 {
    program.wrapping_add(1).max(1)
}

impl<W: Retractable> Sink for Ltt<W> {
    fn show(&mut self, program: u32, view: &View) {
        self.shows.retain(|(other, _)| *other != program);
        self.shows.push((program, view.items));
    }

    fn fact(&mut self, fact: &Fact) -> io::Result<()> {
        let Fact::Program(program) = fact else { return Ok(()) };
        // Kept even if there is no room: without it, the program's records cannot be read.
        self.data.clear();
        self.data.extend_from_slice(&id(program.number).to_le_bytes());
        self.data.extend_from_slice(&program.word.to_le_bytes());
        // Always HEX: the original left the format of its data to others.
        for text in [&program.module, "HEX", &program.name] {
            self.data.extend(text.bytes().filter(|&byte| byte != 0));
            self.data.push(0);
        }
        self.keep(ABOUT);
        Ok(())
    }

    fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        if self.kept.len() >= KEPT
            && let Err(error) = self.write()
        {
            self.lost += 1;
            self.misses(program, 1);
            return Err(error);
        }
        self.tell_missing();
        let items = self.shows.iter().find(|(other, _)| *other == program);
        let items = items.map_or(Items::DEFAULT, |(_, items)| *items);
        self.data.clear();
        raw::write(record, items, &mut self.data);
        self.keep(id(program));
        Ok(())
    }

    fn loss(&mut self, loss: &Loss, refused: u64) -> io::Result<()> {
        // This stream already counts the records that it refused itself.
        let lost = loss.dropped.saturating_sub(refused);
        if lost > 0 {
            self.misses(loss.program, lost);
        }
        Ok(())
    }

    fn forget(&mut self, program: u32) -> io::Result<()> {
        self.shows.retain(|(other, _)| *other != program);
        self.tell_missing();
        self.data.clear();
        self.data.extend_from_slice(&id(program).to_le_bytes());
        self.keep(ABOUT);
        Ok(())
    }

    fn waits(&self) -> bool {
        !self.kept.is_empty() || !self.missing.is_empty()
    }

    fn kept(&self) -> Option<u64> {
        Some(self.records_kept())
    }

    /// Writing has failed: the disk is full, or nobody reads the pipe.
    fn is_full(&self) -> bool {
        self.kept.len() >= KEPT
    }

    fn idle(&mut self) -> io::Result<()> {
        self.write()?;
        self.tell_missing();
        self.write()
    }

    fn finish(&mut self) -> io::Result<()> {
        for (program, _) in mem::take(&mut self.shows) {
            self.forget(program)?;
        }
        let written = self.idle();
        self.lost += self.records_kept();
        self.kept.clear();
        self.ends.clear();
        written
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::raw::Malformed;
    use crate::store::Program;

    fn stream(fill: impl FnOnce(&mut Ltt<Vec<u8>>)) -> Vec<u8> {
        let mut ltt = Ltt::new(Vec::new());
        fill(&mut ltt);
        ltt.finish().expect("a vector takes everything");
        ltt.out
    }

    fn program(number: u32, word: u32) -> Fact {
        let module = "libc.so.6".to_owned();
        Program { number, module, name: "a.rpn".to_owned(), word, ..Program::default() }.into()
    }

    #[test]
    fn the_calls_of_the_seed_stand_in_their_order() {
        let record = Record { major: 1, minor: 2, eip: 5, word: 4, data: vec![0xaa], ..Record::default() };
        let items = Items::MAJOR.with(Items::MINOR).with(Items::EIP);
        let bytes = stream(|ltt| {
            ltt.fact(&program(0, 4)).expect("it is written");
            ltt.show(0, &View { items, ..View::default() });
            ltt.record(0, &record).expect("it is written");
            ltt.loss(&Loss { dropped: 9, ..Loss::default() }, 0).expect("it is written");
        });
        let expected = [
            &b"\x00\0\0\0\x1c\0\0\0\x01\0\0\0\x04\0\0\0libc.so.6\0HEX\0a.rpn\0"[..],
            b"\x01\0\0\0\x11\0\0\0\x43\0\0\0\x01\0\0\0\x02\0\0\0\x05\0\0\0\xaa",
            b"\x00\0\0\0\x0c\0\0\0\x01\0\0\0\x09\0\0\0\0\0\0\0",
            b"\x00\0\0\0\x04\0\0\0\x01\0\0\0",
        ]
        .concat();
        assert_eq!(bytes, expected);
        let events: Result<Vec<Event>, Malformed> = Events::of(&bytes).collect();
        let (module, format, description) = ("libc.so.6".into(), "HEX".into(), "a.rpn".into());
        let created = Event::Created { id: 1, word: 4, module, format, description };
        let expected = vec![created, Event::Record(1, record, items), Event::Lost(1, 9), Event::Destroyed(1)];
        assert_eq!(events, Ok(expected));
        for length in 1..bytes.len() {
            let last = Events::of(&bytes[..length]).last();
            let whole = [36, 61, 81].contains(&length);
            assert_eq!(last.is_some_and(|event| event.is_ok()), whole, "cut off at {length}");
        }
    }

    /// An output with little room, which may be a pipe.
    struct Narrow {
        bytes: Vec<u8>,
        room: usize,
        is_file: bool,
    }

    impl io::Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room);
            self.room -= taken;
            self.bytes.extend_from_slice(&bytes[..taken]);
            if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Retractable for Narrow {
        fn retract(&mut self, bytes: u64) -> bool {
            self.room += if self.is_file { bytes as usize } else { 0 };
            self.is_file && self.bytes.retract(bytes)
        }
    }

    /// The records in a stream, and those that it reports as lost. The stream must be whole.
    fn tally(bytes: &[u8]) -> (u64, u64) {
        let (mut records, mut lost) = (0, 0);
        for event in Events::of(bytes) {
            match event.expect("a whole event") {
                Event::Record(..) => records += 1,
                Event::Lost(_, count) => lost += count,
                Event::Created { .. } | Event::Destroyed(_) => {}
            }
        }
        (records, lost)
    }

    #[test]
    fn a_stream_is_of_whole_events_whenever_there_is_no_room() {
        for is_file in [true, false] {
            let mut ltt = Ltt::new(Narrow { bytes: Vec::new(), room: 0, is_file });
            ltt.fact(&program(0, 8)).expect("it is kept");
            ltt.show(0, &View::default());
            let (mut refused, mut failed) = (0, 0);
            for number in 0..10_000u64 {
                // The room that is added is no multiple of an event's size.
                ltt.out.room += if number % 1000 < 500 { 23 } else { 3 };
                let record = Record { data: number.to_le_bytes().to_vec(), ..Record::default() };
                refused += u64::from(ltt.record(0, &record).is_err());
                if number % 301 == 0 {
                    failed += u64::from(ltt.idle().is_err());
                    if is_file {
                        tally(&ltt.out.bytes);
                    }
                }
            }
            assert!(refused > 0 && failed > 0);
            assert!(ltt.kept.len() < 2 * KEPT, "memory is bounded");
            let end = (ltt.lost(), ltt.kept.len());
            ltt.out.room = usize::MAX;
            ltt.finish().expect("there is room again");
            assert_eq!((end.0, ltt.lost()), (refused, refused));
            assert_eq!(tally(&ltt.out.bytes), (10_000 - refused, refused));
        }
    }

    #[test]
    fn what_is_kept_at_the_end_and_has_no_room_is_lost() {
        let mut ltt = Ltt::new(Narrow { bytes: Vec::new(), room: 1000, is_file: true });
        ltt.fact(&program(0, 8)).expect("it is kept");
        (0..100).for_each(|_| ltt.record(0, &Record::default()).expect("it is kept"));
        assert!(ltt.finish().is_err());
        let (records, _) = tally(&ltt.out.bytes);
        assert!(records > 0 && ltt.lost() > 0);
        assert_eq!(records + ltt.lost(), 100);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let count = Events::of(&bytes).count();
            prop_assert!(count <= bytes.len() / 8 + 1);
        }
    }
}
