//! Reads the records of a ring map.
//!
//! ```text
//! offset 0      a page: how far this reader has read          (read and written)
//! 1 page        a page: how far programs have reserved        (read only)
//! 2 pages       the ring's bytes, twice one after the other   (read only)
//!
//! a record:     | length, 30 bits; discarded; busy | page, 4 bytes | bytes ... | to a multiple of 8
//! ```
//!
//! The positions only grow; a position's place in the ring is its remainder by the size. Since the
//! bytes are mapped twice, a record that wraps around is contiguous.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::map::{Map, MapError, MapKind};
use crate::shared::Mapping;

/// The size of a page on x86-64.
const PAGE: usize = 4096;
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
/// The bytes before a record's own.
const HEADER: u64 = 8;

/// The ring's contents contradict themselves, which the kernel never does: nothing more can be
/// read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring has a record of {length} bytes where {available} are")]
pub struct BrokenRing {
    /// What the record's header says.
    pub length: u64,
    /// How much programs have written.
    pub available: u64,
}

/// The reader of a ring map. A ring has only one, since what it has read makes room for programs.
pub struct RingBuffer {
    positions: Mapping,
    data: Mapping,
    size: u64,
    descriptor: OwnedFd,
    /// Held as long as nobody else may read the ring.
    _reader: Reader,
}

/// The mark that a ring has a reader.
struct Reader(Arc<AtomicBool>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl RingBuffer {
    /// Maps a ring into memory.
    ///
    /// # Errors
    /// If the map is no ring, already has a reader, or the kernel refuses.
    pub fn new(map: &Map) -> Result<Self, MapError> {
        if map.kind() != MapKind::RingBuf {
            return Err(MapError::Kind);
        }
        let reader = Reader(map.become_reader()?);
        let descriptor = map.as_fd();
        let size = map.max_entries() as usize;
        let positions = Mapping::new(descriptor, 0, PAGE, true).map_err(MapError::Map)?;
        let data = Mapping::new(descriptor, PAGE, PAGE + 2 * size, false).map_err(MapError::Map)?;
        let descriptor = descriptor.try_clone_to_owned();
        let descriptor = descriptor.map_err(|_| MapError::Map(nix::errno::Errno::EMFILE))?;
        Ok(Self { positions, data, size: size as u64, descriptor, _reader: reader })
    }

    /// Gives the records that are complete to a function, in the order in which their space was
    /// reserved, and frees their space. Those that are written meanwhile wait for the next call.
    /// Returns how many there were.
    ///
    /// # Errors
    /// If the ring's contents contradict themselves.
    pub fn drain(&mut self, mut take: impl FnMut(&[u8])) -> Result<usize, BrokenRing> {
        self.drain_while(|record| {
            take(record);
            true
        })
    }

    /// As [`drain`](Self::drain), until the function returns `false`: that record stays in the
    /// ring.
    ///
    /// # Errors
    /// If the ring's contents contradict themselves.
    pub fn drain_while(&mut self, mut take: impl FnMut(&[u8]) -> bool) -> Result<usize, BrokenRing> {
        // What the producers have reserved; acquire, so that the headers up to there are visible.
        let end = self.producer().load(Ordering::Acquire);
        // Only this reader writes it.
        let mut position = self.consumer().load(Ordering::Relaxed);
        let mut taken = 0;
        while position < end {
            // Acquire: a header that is not busy makes the record's bytes visible.
            let header = self.header(position).load(Ordering::Acquire);
            if header & BUSY != 0 {
                break;
            }
            let length = u64::from(header & !DISCARDED);
            let space = (HEADER + length).next_multiple_of(8);
            if space > end - position || space > self.size {
                return Err(BrokenRing { length, available: end - position });
            }
            if header & DISCARDED == 0 {
                if !take(self.record(position, length)) {
                    break;
                }
                taken += 1;
            }
            position += space;
            // Release: the record was read before its space is free.
            self.consumer().store(position, Ordering::Release);
        }
        Ok(taken)
    }

    /// How many bytes are reserved and not read yet, headers included.
    pub fn unread(&self) -> u64 {
        let end = self.producer().load(Ordering::Acquire);
        end.saturating_sub(self.consumer().load(Ordering::Relaxed))
    }

    fn consumer(&self) -> &AtomicU64 {
        // SAFETY: the mapping is a page, writable, and lives as long as `self`; the position is its
        // first word, and the kernel accesses it atomically.
        unsafe { AtomicU64::from_ptr(self.positions.start().cast()) }
    }

    fn producer(&self) -> &AtomicU64 {
        // SAFETY: the mapping begins with the page whose first word is the position. It is readable
        // and lives as long as `self`; it is only loaded from.
        unsafe { &*self.data.start().cast_const().cast::<AtomicU64>() }
    }

    /// The first byte of the record at a position.
    fn record_start(&self, position: u64) -> *const u8 {
        let offset = (position & (self.size - 1)) as usize;
        // SAFETY: the mapping has a page, then the data twice, and the offset is within the first.
        unsafe { self.data.start().cast_const().add(PAGE + offset) }
    }

    fn header(&self, position: u64) -> &AtomicU32 {
        // SAFETY: records begin at multiples of 8 bytes inside of the data, which lives as long as
        // `self`; it is only loaded from.
        unsafe { &*self.record_start(position).cast::<AtomicU32>() }
    }

    /// A record's bytes. The caller has checked that it is complete and not longer than the ring.
    fn record(&self, position: u64, length: u64) -> &[u8] {
        // SAFETY: the record is complete, so no program writes to it until the consumer's position
        // passes it. Only this reader, the ring's only one, moves that, after the slice is used.
        // The bytes are inside of the mapping: the record begins in the first copy of the data and
        // is at most as long as the second.
        unsafe {
            std::slice::from_raw_parts(self.record_start(position).add(HEADER as usize), length as usize)
        }
    }
}

impl AsFd for RingBuffer {
    /// The map's descriptor. It can be polled: it is readable if a program has sent a wakeup.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl fmt::Debug for RingBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingBuffer").field("size", &self.size).finish_non_exhaustive()
    }
}
