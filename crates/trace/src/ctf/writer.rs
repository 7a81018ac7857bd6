//! Writes a trace in the Common Trace Format.

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

/// The most processors of a machine: the greatest number that Linux can be built for.
const MAX_PROCESSORS: u32 = 8192;
/// The greatest size of a record's data, and of its name, in bytes.
const MAX_DATA: usize = 1 << 24;

/// Counts of what was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Records in the trace.
    pub records: u64,
    /// Records that the writer was given and could not write.
    pub lost: u64,
    /// Discarded records that the trace reports: those that the writer was told of, and those that
    /// it lost.
    pub discarded: u64,
    /// Records whose time was changed: the clock cannot show it, or they came too late for all
    /// files of their processor.
    pub adjusted: u64,
}

/// A trace that is being written. Dropped without [`Writer::finish`], it lacks the packets that
/// were not full.
#[derive(Debug)]
pub struct Writer {
    clock: Clock,
    classes: Classes,
    streams: Streams,
    /// Records that were added to packets.
    taken: u64,
    /// Records that were refused.
    refused: u64,
    adjusted: u64,
}

impl Writer {
    /// Creates a trace in a directory that is new or empty.
    ///
    /// # Errors
    /// The directory cannot be created or is not empty.
    pub fn create(directory: &Path, about: &About) -> io::Result<Writer> {
        fs::create_dir_all(directory)?;
        if fs::read_dir(directory)?.next().is_some() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "the directory is not empty; name a new or an empty one",
            ));
        }
        let mut uuid = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut uuid)?;
        // The version and variant bits of a random UUID (RFC 4122).
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

    /// Adds a template: from now on, records with its codes have its fields, except those of
    /// programs that have a template of their own for these codes.
    pub fn template(&mut self, template: Template) {
        self.classes.template(template);
    }

    /// Sets all templates of a program: from now on, its records have their fields. They replace
    /// the program's earlier ones.
    pub fn templates_of(&mut self, program: u32, templates: impl Iterator<Item = Template>) {
        self.classes.templates_of(program, templates);
    }

    /// Describes a probe, given by the numbers of its program and its own: its name, as
    /// `libc.so.6:malloc:entry`, and the header items of its records. Call it before the first of
    /// them.
    pub fn probe(&mut self, program: u32, probe: u32, name: &str, items: Items) {
        self.classes.probe(program, probe, name, items);
    }

    /// Takes a record of a program, given by number.
    ///
    /// # Errors
    /// The record is lost: it has more than 16 MiB of data, an impossible processor (above 8191),
    /// or a class that could not be described. Or a packet that it filled could not be written:
    /// then all records of the packet are lost. Lost records are reported as discarded.
    #[inline]
    pub fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        let Writer { clock, classes, streams, .. } = self;
        if record.data.len().max(record.name.len()) > MAX_DATA || record.cpu >= MAX_PROCESSORS {
            self.refuse();
            let (cpu, size) = (record.cpu, record.data.len());
            let text = format!("a CTF trace cannot hold a record of processor {cpu} with {size} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let timestamp = clock.at(record.time);
        let put = streams.destination(record.cpu, timestamp).and_then(|place| {
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

    /// Adds to the discarded records. The next packet that is written reports them.
    pub fn discarded(&mut self, count: u64) {
        self.streams.discard(count);
    }

    /// Whether anything is kept that is not written yet.
    pub fn waits(&self) -> bool {
        self.streams.waits()
    }

    /// The number of records in packets that are not written yet.
    pub fn kept(&self) -> u64 {
        self.streams.kept()
    }

    /// Writes the packets whose first record came a second ago or longer. Call it now and then.
    ///
    /// # Errors
    /// A write failed; what could not be written is lost.
    pub fn idle(&mut self) -> io::Result<()> {
        self.streams.idle()
    }

    /// The number of records that the writer was given and could not write.
    pub fn lost(&self) -> u64 {
        self.refused + self.streams.lost
    }

    /// Writes all that is kept and ends the trace.
    ///
    /// # Errors
    /// A write failed; what could not be written is lost.
    pub fn finish(mut self) -> io::Result<Summary> {
        self.end()
    }

    /// Like [`Writer::finish`], but keeps the writer: later records begin new packets.
    ///
    /// # Errors
    /// A write failed; what could not be written is lost.
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
