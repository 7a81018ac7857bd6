//! One file of packets.
//!
//! A writer may be killed at any moment, in the midst of a write too, and readers refuse a file that ends within a packet. So the file
//! always ends with a packet that has room and no record:
//!
//! ```text
//! | packet | packet | filler: its header, and nothing up to the end of the file |
//! | packet | packet | packet                 | filler                           |
//! ```
//!
//! A new packet takes a part of that room. What follows its header is written first, the next filler's header too: nobody reads what
//! is there. Then its header is written over that of the old filler, in one piece. At the end the file is cut behind the last packet.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use super::packet::{ALIGNMENT, About, HEADER, Packet};

/// Bytes by which a file grows. They take no room on the disk before they are written.
const GROWTH: u64 = 4 << 20;

/// A file, and the packet that is being filled.
#[derive(Debug)]
pub(super) struct Stream {
    file: File,
    cpu: u32,
    /// Bytes of packets: where the filler begins.
    offset: u64,
    /// Where the file ends.
    end: u64,
    pub(super) packet: Packet,
    /// When the first record of this packet came.
    since: Option<Instant>,
    /// The time of the last record that was written: none before it can follow.
    pub(super) floor: u64,
    /// Packets so far.
    number: u64,
    /// Discarded records that this file tells.
    discarded: u64,
}

impl Stream {
    /// Makes the file, which must be a new one.
    pub(super) fn create(path: &Path, cpu: u32) -> io::Result<Stream> {
        let file = File::create_new(path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", printable::path(path))))?;
        Ok(Stream {
            file,
            cpu,
            offset: 0,
            end: 0,
            packet: Packet::new(),
            since: None,
            floor: 0,
            number: 0,
            discarded: 0,
        })
    }

    /// Notes that a record has come.
    pub(super) fn touch(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    /// When the first record of the packet came, if there is one.
    pub(super) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// Writes the packet, and tells with it that so many more records were discarded. One without records is of the time `at`.
    ///
    /// # Errors
    /// It could not be written; the file is as before.
    pub(super) fn write(&mut self, uuid: &[u8; 16], discarded: u64, at: u64) -> io::Result<()> {
        self.since = None;
        let cpu = self.cpu;
        // Readers know how many were discarded from the difference to the packet before, and the first one has none.
        if self.number == 0 && discarded > 0 {
            let about = About { uuid, number: 0, discarded: 0, cpu };
            let time = self.packet.begin().unwrap_or(at);
            let mut empty = Packet::new();
            let appended = append(&self.file, &mut self.end, self.offset, empty.close(about, time), about);
            self.offset += appended.inspect_err(|_| self.packet.clear())?;
            self.number += 1;
        }
        let told = self.discarded.saturating_add(discarded);
        let about = About { uuid, number: self.number, discarded: told, cpu };
        let closed = self.packet.close(about, at.max(self.floor));
        let last = closed.1;
        let appended = append(&self.file, &mut self.end, self.offset, closed, about);
        self.packet.clear();
        self.offset += appended?;
        self.number += 1;
        self.discarded = told;
        self.floor = last;
        Ok(())
    }

    /// Cuts the filler off. Another packet may follow all the same.
    ///
    /// # Errors
    /// It cannot be cut off; the file can be read with it.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.file.set_len(self.offset)?;
        self.end = self.offset;
        Ok(())
    }
}

/// Puts a packet, whose last record is of the time `last`, where the filler begins: how many bytes that are. If it fails, all is as
/// before to readers.
fn append(
    file: &File,
    end: &mut u64,
    offset: u64,
    (packet, last): (&[u8], u64),
    about: About<'_>,
) -> io::Result<u64> {
    let length = packet.len() as u64;
    let filler = |about: About<'_>, room: u64| about.header((last, last), HEADER as u64, room);
    if offset + length + ALIGNMENT as u64 > *end {
        let room = (length + GROWTH).next_multiple_of(ALIGNMENT as u64);
        file.set_len(offset + room)?;
        if let Err(error) = file.write_all_at(&filler(about, room), offset) {
            file.set_len(*end)?;
            return Err(error);
        }
        *end = offset + room;
    }
    let next = About { number: about.number + 1, ..about };
    file.write_all_at(&filler(next, *end - offset - length), offset + length)?;
    file.write_all_at(&packet[HEADER..], offset + HEADER as u64)?;
    file.write_all_at(&packet[..HEADER], offset)?;
    Ok(length)
}
