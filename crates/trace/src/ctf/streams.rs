//! The files of packets: one for each processor, and more if records come late.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::packet::Packet;
use super::stream::Stream;

/// The approximate size of a packet, in bytes.
const FULL: usize = 256 << 10;
/// The approximate size of the packets of all files, in bytes. With many files, packets are
/// smaller.
const MAX_KEPT: usize = 64 << 20;
/// How long a record waits for its packet to fill.
const PACKET_TIMEOUT: Duration = Duration::from_secs(1);
/// The most files of a processor.
const MAX_LATE: usize = 16;
/// The most files of a trace.
const MAX_FILES: usize = 1 << 13;

/// All files, and the discarded records that the next packet reports.
#[derive(Debug)]
pub(super) struct Streams {
    directory: PathBuf,
    uuid: [u8; 16],
    streams: Vec<Stream>,
    /// The files of each processor, by its number.
    processors: Vec<Vec<usize>>,
    /// Discarded records that no packet has reported yet.
    pending: u64,
    /// Discarded records that were reported.
    pub(super) discarded: u64,
    /// Records of packets that could not be written.
    pub(super) lost: u64,
}

/// Where a record goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Destination {
    pub(super) stream: usize,
    /// The record's time in that file.
    pub(super) timestamp: u64,
}

impl Streams {
    pub(super) fn new(directory: PathBuf, uuid: [u8; 16]) -> Streams {
        Streams {
            directory,
            uuid,
            streams: Vec::new(),
            processors: Vec::new(),
            pending: 0,
            discarded: 0,
            lost: 0,
        }
    }

    /// Adds to the discarded records.
    pub(super) fn discard(&mut self, count: u64) {
        self.pending = self.pending.saturating_add(count);
    }

    /// Where a record goes: to the first file of its processor that has no later record.
    ///
    /// # Errors
    /// Another file is needed and cannot be created.
    #[inline]
    pub(super) fn destination(&mut self, cpu: u32, timestamp: u64) -> io::Result<Destination> {
        let own = self.processors.get(cpu as usize).map_or(&[][..], Vec::as_slice);
        if let Some(&stream) = own.iter().find(|&&stream| self.streams[stream].floor <= timestamp) {
            return Ok(Destination { stream, timestamp });
        }
        if own.len() < MAX_LATE {
            return self.create(cpu, timestamp);
        }
        // Too late for all files: it goes to the one whose last record is the earliest, with that
        // time.
        let stream = own.iter().copied().min_by_key(|&stream| self.streams[stream].floor).unwrap_or_default();
        Ok(Destination { stream, timestamp: self.streams[stream].floor })
    }

    fn create(&mut self, cpu: u32, timestamp: u64) -> io::Result<Destination> {
        if self.streams.len() >= MAX_FILES {
            return Err(io::Error::other(format!("the trace would need more than {MAX_FILES} files")));
        }
        if self.processors.len() <= cpu as usize {
            self.processors.resize(cpu as usize + 1, Vec::new());
        }
        let own = &mut self.processors[cpu as usize];
        let name = match own.len() {
            0 => format!("cpu_{cpu}"),
            late => format!("cpu_{cpu}_{late}"),
        };
        self.streams.push(Stream::create(&self.directory.join(name), cpu)?);
        own.push(self.streams.len() - 1);
        Ok(Destination { stream: self.streams.len() - 1, timestamp })
    }

    /// The packet that a file is filling.
    #[inline]
    pub(super) fn packet(&mut self, place: Destination) -> &mut Packet {
        &mut self.streams[place.stream].packet
    }

    /// Notes that a record was added to a packet. Writes the packet if it is full.
    ///
    /// # Errors
    /// The packet could not be written; its records are lost.
    #[inline]
    pub(super) fn filled(&mut self, place: Destination) -> io::Result<()> {
        let stream = &mut self.streams[place.stream];
        stream.touch();
        let is_full = stream.packet.len() >= FULL.min(MAX_KEPT / self.streams.len());
        if is_full { self.write(place.stream, 0) } else { Ok(()) }
    }

    pub(super) fn waits(&self) -> bool {
        self.streams.iter().any(|stream| stream.since().is_some())
    }

    pub(super) fn kept(&self) -> u64 {
        self.streams.iter().map(|stream| stream.packet.records()).sum()
    }

    /// Writes the packets whose records have waited long enough.
    ///
    /// # Errors
    /// The first error of a write.
    pub(super) fn idle(&mut self) -> io::Result<()> {
        self.write_those(|stream| stream.since().is_some_and(|since| since.elapsed() >= PACKET_TIMEOUT))
    }

    /// Writes all packets, and the discarded records that are not reported yet. `now` is the time
    /// of a packet without records.
    ///
    /// # Errors
    /// The first error of a write.
    pub(super) fn flush(&mut self, now: u64) -> io::Result<()> {
        let written = self.write_those(|stream| stream.since().is_some());
        if self.pending == 0 {
            return written;
        }
        let last = match self.streams.len().checked_sub(1) {
            Some(last) => last,
            None => self.create(0, now)?.stream,
        };
        let told = self.write(last, now);
        written.and(told)
    }

    /// Ends all files.
    ///
    /// # Errors
    /// The first error of a file.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let mut finished = Ok(());
        for stream in &mut self.streams {
            finished = finished.and(stream.finish());
        }
        finished
    }

    fn write_those(&mut self, which: impl Fn(&Stream) -> bool) -> io::Result<()> {
        let due: Vec<usize> =
            (0..self.streams.len()).filter(|&stream| which(&self.streams[stream])).collect();
        let mut written = Ok(());
        for stream in due {
            written = written.and(self.write(stream, 0));
        }
        written
    }

    /// Writes the packet of a file.
    fn write(&mut self, stream: usize, now: u64) -> io::Result<()> {
        let stream = &mut self.streams[stream];
        let records = stream.packet.records();
        let written = stream.write(&self.uuid, self.pending, now);
        match &written {
            Ok(()) => self.discarded = self.discarded.saturating_add(std::mem::take(&mut self.pending)),
            Err(_) => {
                self.lost += records;
                self.discard(records);
            }
        }
        written
    }
}
