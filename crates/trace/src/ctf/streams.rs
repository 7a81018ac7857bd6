//! The files of packets: for each processor one, and more where records come late.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::packet::Packet;
use super::stream::Stream;

/// Bytes of a packet, about.
const FULL: usize = 256 << 10;
/// Bytes of the packets of all files, about: with many files, packets are smaller.
const MOST_KEPT: usize = 64 << 20;
/// How long a record waits for its packet to fill.
const PATIENCE: Duration = Duration::from_secs(1);
/// Files of one processor, at most.
const MOST_LATE: usize = 16;
/// Files, at most.
const MOST: usize = 1 << 13;

/// All files, and what is to be told with their next packets.
#[derive(Debug)]
pub(super) struct Streams {
    directory: PathBuf,
    uuid: [u8; 16],
    streams: Vec<Stream>,
    /// The files of each processor, by its number.
    processors: Vec<Vec<usize>>,
    /// Discarded records that no packet has told yet.
    pending: u64,
    /// Those that were told.
    pub(super) discarded: u64,
    /// Records of packets that could not be written.
    pub(super) lost: u64,
}

/// The place of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) stream: usize,
    /// Its time there.
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

    /// Takes a number of discarded records.
    pub(super) fn discard(&mut self, count: u64) {
        self.pending = self.pending.saturating_add(count);
    }

    /// Where a record of a processor and a time goes: to the first file that it does not come too late for.
    ///
    /// # Errors
    /// Another file would be needed, and cannot be made.
    #[inline]
    pub(super) fn place(&mut self, cpu: u32, timestamp: u64) -> io::Result<Place> {
        let own = self.processors.get(cpu as usize).map_or(&[][..], Vec::as_slice);
        if let Some(&stream) = own.iter().find(|&&stream| self.streams[stream].floor <= timestamp) {
            return Ok(Place { stream, timestamp });
        }
        if own.len() < MOST_LATE {
            return self.create(cpu, timestamp);
        }
        // It is late by little: that of all files of which the last record is the earliest.
        let stream = own.iter().copied().min_by_key(|&stream| self.streams[stream].floor).unwrap_or_default();
        Ok(Place { stream, timestamp: self.streams[stream].floor })
    }

    fn create(&mut self, cpu: u32, timestamp: u64) -> io::Result<Place> {
        if self.streams.len() >= MOST {
            return Err(io::Error::other(format!("a trace of more than {MOST} files")));
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
        Ok(Place { stream: self.streams.len() - 1, timestamp })
    }

    /// The packet that a file fills.
    #[inline]
    pub(super) fn packet(&mut self, place: Place) -> &mut Packet {
        &mut self.streams[place.stream].packet
    }

    /// Notes that a record was put into a packet, and writes it if it is full.
    ///
    /// # Errors
    /// It could not be written: its records are lost.
    #[inline]
    pub(super) fn filled(&mut self, place: Place) -> io::Result<()> {
        let stream = &mut self.streams[place.stream];
        stream.touch();
        let is_full = stream.packet.len() >= FULL.min(MOST_KEPT / self.streams.len());
        if is_full { self.write(place.stream, 0) } else { Ok(()) }
    }

    /// Whether a packet is not written yet.
    pub(super) fn waits(&self) -> bool {
        self.streams.iter().any(|stream| stream.since().is_some())
    }

    /// Records of packets that are not written yet.
    pub(super) fn kept(&self) -> u64 {
        self.streams.iter().map(|stream| stream.packet.records()).sum()
    }

    /// Writes the packets whose records have waited long enough.
    ///
    /// # Errors
    /// That of the first that could not be written.
    pub(super) fn idle(&mut self) -> io::Result<()> {
        self.write_those(|stream| stream.since().is_some_and(|since| since.elapsed() >= PATIENCE))
    }

    /// Writes all packets and what is not told yet; `now` is the time of a packet that has nothing else to tell.
    ///
    /// # Errors
    /// That of the first that could not be written.
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

    /// Brings all files to their end.
    ///
    /// # Errors
    /// That of the first that could not be.
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
