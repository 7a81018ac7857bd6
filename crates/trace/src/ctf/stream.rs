//! A file of packets.
//!
//! A writer may be killed at any moment, even during a write, and readers reject a file that ends
//! within a packet. So the file always ends with an empty packet, the filler, which covers the
//! space that was allocated in advance:
//!
//! ```text
//! | packet | packet | filler: its header, and nothing up to the end of the file |
//! | packet | packet | packet                 | filler                           |
//! ```
//!
//! A new packet takes a part of the filler's space. The next filler's header and the new packet's
//! records are written first, where readers ignore them. Then the new packet's header replaces the
//! filler's in one write. At the end the file is truncated after the last packet.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use super::packet::{ALIGNMENT, About, HEADER, Packet};

/// The bytes by which a file grows. They take no space on the disk before they are written.
const GROWTH: u64 = 4 << 20;

/// A file, and the packet that is being filled.
#[derive(Debug)]
pub(super) struct Stream {
    file: File,
    cpu: u32,
    /// The offset of the filler: the size of all packets.
    offset: u64,
    /// The size of the file.
    end: u64,
    pub(super) packet: Packet,
    /// When the first record of this packet came.
    since: Option<Instant>,
    /// The time of the last record in the file. Earlier records cannot follow.
    pub(super) floor: u64,
    /// The number of packets so far.
    number: u64,
    /// The count of discarded records in the last packet.
    discarded: u64,
}

impl Stream {
    /// Creates the file, which must not exist.
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

    /// Notes that a record was added to the packet.
    pub(super) fn touch(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    /// When the first record of the packet came, if it has one.
    pub(super) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// Writes the packet and adds `discarded` to the count in it. Without records, its time is
    /// `at`.
    ///
    /// # Errors
    /// It could not be written; the file is unchanged for readers.
    pub(super) fn write(&mut self, uuid: &[u8; 16], discarded: u64, at: u64) -> io::Result<()> {
        self.since = None;
        let cpu = self.cpu;
        // Readers compute the discarded records from the difference to the packet before, so the
        // first packet cannot report any.
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

    /// Removes the filler. More packets may follow.
    ///
    /// # Errors
    /// The filler cannot be removed; the file can be read with it.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.file.set_len(self.offset)?;
        self.end = self.offset;
        Ok(())
    }
}

/// Writes a packet, whose last record has the time `last`, in place of the filler. Returns its
/// size. If it fails, the file is unchanged for readers.
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
