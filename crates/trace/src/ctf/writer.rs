//! Writing a trace.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::classes::Classes;
use super::metadata::{self, Clock};
use super::streams::Streams;
use crate::store::About;
use crate::template::Template;
use crate::{Items, Record};

/// Processors that a machine has at most: what Linux can be built for.
const MOST_PROCESSORS: u32 = 8192;
/// Bytes of data that a record has at most, and of its name.
const MOST_DATA: usize = 1 << 24;

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Records that are in the trace.
    pub records: u64,
    /// Records that were given to the writer and are not: they could not be written.
    pub lost: u64,
    /// Discarded records that the trace tells: those that the writer was told, and those that it lost.
    pub discarded: u64,
    /// Records that have another time in the trace than their own: the clock cannot show it, or they came too late for any
    /// file of their processor.
    pub adjusted: u64,
}

/// A trace that is being written. One that is dropped without [`Writer::finish`] is without the packets that were not full.
#[derive(Debug)]
pub struct Writer {
    clock: Clock,
    classes: Classes,
    streams: Streams,
    /// Records that were put into packets.
    taken: u64,
    /// Records that were not.
    refused: u64,
    adjusted: u64,
}

impl Writer {
    /// Makes a trace in a directory: a new one, or one that is empty.
    ///
    /// # Errors
    /// It cannot be made, or is not empty.
    pub fn create(directory: &Path, about: &About) -> io::Result<Writer> {
        fs::create_dir_all(directory)?;
        if fs::read_dir(directory)?.next().is_some() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "the directory is not empty; a trace is made in a new one",
            ));
        }
        let mut uuid = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut uuid)?;
        // What RFC 4122 asks of a random one.
        uuid[6] = uuid[6] & 0x0f | 0x40;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        let clock = Clock::of(about);
        let mut metadata = File::create_new(directory.join("metadata"))?;
        metadata.write_all(metadata::preamble(about, clock, &uuid).as_bytes())?;
        Ok(Writer {
            clock,
            classes: Classes::new(metadata),
            streams: Streams::new(directory.to_owned(), uuid),
            taken: 0,
            refused: 0,
            adjusted: 0,
        })
    }

    /// Takes a template: what it names are the fields of records with its codes, from now on; but not of programs that have one of their own
    /// for these.
    pub fn template(&mut self, template: Template) {
        self.classes.template(template);
    }

    /// Takes all templates of one program, in place of those that it had: what they name are the fields of its records from now on.
    pub fn templates_of(&mut self, program: u32, templates: impl Iterator<Item = Template>) {
        self.classes.templates_of(program, templates);
    }

    /// Describes a probe, by its program's number and its own: its name, as `libc.so.6:malloc:entry`, and the items that the headers
    /// of its records have. To be called before the first of them.
    pub fn probe(&mut self, program: u32, probe: u32, name: &str, items: Items) {
        self.classes.probe(program, probe, name, items);
    }

    /// Takes a record of a program, by the program's number.
    ///
    /// # Errors
    /// It has more than 16 MiB of data, or is of a processor that cannot be (above 8191), or its class could not be described: then
    /// it is lost. Or the packet that it has filled could not be written: then all records in it are. Lost records are told as
    /// discarded ones.
    #[inline]
    pub fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        let Writer { clock, classes, streams, .. } = self;
        if record.data.len().max(record.name.len()) > MOST_DATA || record.cpu >= MOST_PROCESSORS {
            self.refuse();
            let text = format!("a record of processor {} with {} bytes", record.cpu, record.data.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let timestamp = clock.at(record.time);
        let put = streams.place(record.cpu, timestamp).and_then(|place| {
            classes.push(program, place.timestamp, record, streams.packet(place))?;
            Ok(place)
        });
        let place = put.inspect_err(|_| self.refuse())?;
        self.taken += 1;
        self.adjusted += u64::from(self.clock.time(place.timestamp) != record.time);
        self.streams.filled(place)
    }

    fn refuse(&mut self) {
        self.refused += 1;
        self.streams.discard(1);
    }

    /// Takes a number of records that were discarded before they came here: readers show it with the next packet that is written.
    pub fn discarded(&mut self, count: u64) {
        self.streams.discard(count);
    }

    /// Whether something is kept that is not written yet.
    pub fn waits(&self) -> bool {
        self.streams.waits()
    }

    /// Records in packets that are not written yet.
    pub fn kept(&self) -> u64 {
        self.streams.kept()
    }

    /// Writes the packets whose first record came a second ago or longer. To be called now and then.
    ///
    /// # Errors
    /// Those of writing; what could not be written is lost.
    pub fn idle(&mut self) -> io::Result<()> {
        self.streams.idle()
    }

    /// Records that were given to the writer and could not be written.
    pub fn lost(&self) -> u64 {
        self.refused + self.streams.lost
    }

    /// Writes what is kept.
    ///
    /// # Errors
    /// Those of writing; what could not be written is lost.
    pub fn finish(mut self) -> io::Result<Summary> {
        self.end()
    }

    /// The same, for an owner that keeps it: what comes after it begins new packets.
    ///
    /// # Errors
    /// Those of writing; what could not be written is lost.
    pub fn end(&mut self) -> io::Result<Summary> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let now = self.clock.at(u64::try_from(now).unwrap_or(u64::MAX));
        let flushed = self.streams.flush(now);
        self.streams.finish()?;
        flushed?;
        Ok(Summary {
            records: self.taken - self.streams.lost,
            lost: self.lost(),
            discarded: self.streams.discarded,
            adjusted: self.adjusted,
        })
    }
}
