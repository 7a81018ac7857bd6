//! Reads the records out of a ring that a probed process writes, treating its contents as untrusted
//! input.
//!
//! Design constraints: a process can write anything into its own ring at any moment, also while it
//! is read. So everything is copied before it is checked, and every number is checked against what
//! a handler can write before it is used: a record larger than its probe can log is invalid. No
//! input makes this code panic, loop forever or access memory outside of the ring, and it allocates
//! nothing. Invalid contents are distinguished from unfinished ones, so that they can be counted.
//!
//! ```text
//!     tail                      head
//!     | record | record | SKIP ... end of the ring
//!     start of the ring | record | record ...
//! ```
//!
//! `tail` is the reader's own number, `head` is written by the process. A record is a header
//! ([`layout::Header`]), the log, and, if the header says so, an extra part
//! ([`layout::ExtraHeader`]) and the stack traces; each part begins at a multiple of 8 bytes.

#![forbid(unsafe_code)]

use std::fmt;
use std::mem::offset_of;

use layout::{ExtraHeader, HEADER, Header, LOG_SHIFT, LOST_MARK, MORE, flag, record_size, state};

/// The memory of a ring. The process may write to it at any moment.
pub trait Source {
    /// Reads the status of the record at an offset, with acquire ordering: what was written before
    /// it is visible. `None` outside of the memory.
    fn state(&self, place: usize) -> Option<u32>;
    /// Reads words of 8 bytes at an offset, a multiple of 8. `None` unless all are inside of the
    /// memory.
    fn words<const N: usize>(&self, place: usize) -> Option<[u64; N]>;
    /// Copies bytes out. Returns `false`, and copies nothing, unless all are inside of the memory.
    fn copy(&self, place: usize, into: &mut [u8]) -> bool;
    /// Prefetches an offset that is likely to be read soon; it may be outside of the memory.
    fn soon(&self, _place: usize) {}
}

/// The flags in a record's status: all bits between its state and the length of its log.
const FLAGS: u32 = 0xff00;

/// How far ahead of reading the memory is prefetched: some records. The processor that wrote them
/// still has them in its cache.
const AHEAD: usize = 768;

impl Source for [u8] {
    fn state(&self, place: usize) -> Option<u32> {
        let bytes = self.get(place..place.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    fn words<const N: usize>(&self, place: usize) -> Option<[u64; N]> {
        let (words, _) = self.get(place..)?.as_chunks::<8>();
        words.first_chunk::<N>().map(|words| words.map(u64::from_le_bytes))
    }

    fn copy(&self, place: usize, into: &mut [u8]) -> bool {
        let bytes = place.checked_add(into.len()).and_then(|end| self.get(place..end));
        bytes.map(|bytes| into.copy_from_slice(bytes)).is_some()
    }
}

/// A ring's place in its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// The offset of its first byte.
    pub place: usize,
    /// Its size in bytes: a power of two.
    pub size: u64,
}

/// The most bytes that a probe's handler can put into one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of log.
    pub log: usize,
    /// Bytes of stack traces.
    pub traces: usize,
}

/// What comes next in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// Nothing, or a record whose instruction has not completed.
    Nothing,
    /// A record: the head that the caller passed in, filled.
    Record(&'a Head),
    /// This many records were lost between the previous record and the next. The mark has been
    /// passed already.
    Lost(u32),
    /// Contents that no handler writes.
    Nonsense(Invalid),
}

/// Why the contents are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// The ring is said to hold more than its size, or part of a word.
    Fill,
    /// The state is unknown, or the flags are invalid.
    State,
    /// The record is larger than what was written, or than the rest of the ring.
    Size,
    /// No site has this number.
    Site,
    /// It has more than its probe's handler can log.
    Bounds,
}

impl fmt::Display for Invalid {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Invalid::Fill => "more bytes than the ring can hold",
            Invalid::State => "a record in an unknown state",
            Invalid::Size => "an incomplete record",
            Invalid::Site => "a record of an unknown site",
            Invalid::Bounds => "a record that is larger than its probe can log",
        })
    }
}

/// The header of a record, copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Whether its instruction has faulted.
    pub dropped: bool,
    /// The time stamp counter.
    pub time: u64,
    /// The number of its site, which exists.
    pub number: u32,
    /// The processor, with its node.
    pub processor: u32,
    /// The thread id that the record claims.
    pub tid: u32,
    /// The stack pointer at the site.
    pub rsp: u64,
    /// Its major and minor code, if they may differ from its probe's.
    pub codes: Option<(u32, u32)>,
    /// Bytes of its log; `None` if it has no log.
    pub log: Option<usize>,
    /// Bytes of its stack traces.
    pub traces: usize,
    /// Its offset in the memory.
    place: usize,
    /// Bytes of the whole record.
    size: usize,
}

impl Head {
    /// The offset of its log in the memory. All of it is inside of the ring.
    pub fn data(&self) -> usize {
        self.place + HEADER
    }

    /// The offset of its stack traces in the memory, if it has some. All of them are inside of the
    /// ring.
    pub fn trace_data(&self) -> usize {
        self.place + record_size(self.log.unwrap_or(0), Some(0))
    }

    /// The offset of its state in the memory.
    pub fn state_offset(&self) -> usize {
        self.place
    }
}

/// How far a ring has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Total bytes ever taken out.
    pub tail: u64,
    /// Total bytes ever put in, as the process last said.
    pub head: u64,
}

impl Cursor {
    /// Bytes that are to be read. Since the process writes `head`, this may exceed the ring's size.
    pub fn filled(&self) -> u64 {
        self.head.wrapping_sub(self.tail)
    }

    /// Fast path of [`Cursor::next`] for most records: those that are committed and have no flags.
    /// Returns `false`, with nothing done, if anything else comes next.
    // It is inlined so that the reader's loop, which has one call of it, keeps the values in
    // registers.
    #[inline(always)]
    pub fn next_plain(
        &self,
        source: &(impl Source + ?Sized),
        ring: Ring,
        bounds: impl Fn(u32) -> Option<Bounds>,
        head: &mut Head,
    ) -> bool {
        let Some((place, room)) = self.place(ring) else { return false };
        source.soon(place.wrapping_add(AHEAD));
        let Some(status) = source.state(place) else { return false };
        if status & (state::BITS | FLAGS) != state::COMMITTED {
            return false;
        }
        head.dropped = false;
        record(source, (place, room), status, bounds, head).is_ok()
    }

    /// The offset in the memory of what comes next, and how many bytes can be read from there on:
    /// some. `None`: there is nothing, or the ring's head is invalid.
    #[inline(always)]
    fn place(&self, ring: Ring) -> Option<(usize, usize)> {
        let filled = self.filled();
        // `empty` may have made a head that is no multiple of 8 the tail.
        let is_valid = filled <= ring.size && (self.head | self.tail).is_multiple_of(8);
        if filled == 0 || !is_valid {
            return None;
        }
        let offset = self.tail & (ring.size - 1);
        Some((ring.place + offset as usize, filled.min(ring.size - offset) as usize))
    }

    /// Returns what comes next. `bounds` finds a site's bounds by its number. With `all`, a record
    /// whose instruction has not completed counts as dropped. A record is returned in `head`,
    /// filled in place, since a copy would cost more than the rest.
    #[inline]
    pub fn next<'a>(
        &mut self,
        source: &(impl Source + ?Sized),
        ring: Ring,
        bounds: impl Fn(u32) -> Option<Bounds>,
        all: bool,
        head: &'a mut Head,
    ) -> Next<'a> {
        loop {
            if self.filled() == 0 {
                return Next::Nothing;
            }
            let Some((place, room)) = self.place(ring) else { return Next::Nonsense(Invalid::Fill) };
            source.soon(place.wrapping_add(AHEAD));
            let Some(status) = source.state(place) else { return Next::Nonsense(Invalid::Fill) };
            let dropped = match status & state::BITS {
                state::SKIP => {
                    // The start of the ring comes next. This happens at most once, since `filled`
                    // is at most the ring's size.
                    self.tail = self.tail.wrapping_add(ring.size - (self.tail & (ring.size - 1)));
                    continue;
                }
                state::COMMITTED => false,
                state::DROPPED => true,
                state::TENTATIVE if all => true,
                state::TENTATIVE => return Next::Nothing,
                state::LOST => return self.lost(source, place),
                _ => return Next::Nonsense(Invalid::State),
            };
            head.dropped = dropped;
            return match record(source, (place, room), status, bounds, head) {
                Ok(()) => Next::Record(head),
                Err(nonsense) => Next::Nonsense(nonsense),
            };
        }
    }

    /// Passes the mark of a loss. It fits, since all places are multiples of 8.
    #[cold]
    fn lost(&mut self, source: &(impl Source + ?Sized), place: usize) -> Next<'static> {
        let mut count = [0; 4];
        if !source.copy(place + 4, &mut count) {
            return Next::Nonsense(Invalid::Size);
        }
        self.tail = self.tail.wrapping_add(LOST_MARK as u64);
        Next::Lost(u32::from_le_bytes(count))
    }

    /// Passes the record that came next.
    pub fn pass(&mut self, record: &Head) {
        self.tail = self.tail.wrapping_add(record.size as u64);
    }

    /// Passes everything that was put in.
    pub fn empty(&mut self) {
        self.tail = self.head;
    }
}

/// Reads and checks the record at `place`, with `room` bytes up to the end of what was written.
/// `status` was read once and alone determines the sizes.
#[inline(always)]
fn record(
    source: &(impl Source + ?Sized),
    (place, room): (usize, usize),
    status: u32,
    bounds: impl Fn(u32) -> Option<Bounds>,
    head: &mut Head,
) -> Result<(), Invalid> {
    let flags = status & FLAGS;
    let (has_more, has_log) = (flags & flag::MORE != 0, flags & flag::NO_LOG == 0);
    let log = (status >> LOG_SHIFT) as usize;
    if flags & !(flag::MORE | flag::NO_LOG) != 0 || (!has_log && log > 0) {
        return Err(Invalid::State);
    }
    let size = record_size(log, has_more.then_some(0));
    if room < size {
        return Err(Invalid::Size);
    }
    let words: [u64; HEADER / 8] = source.words(place).ok_or(Invalid::Size)?;
    let word = |at: usize| words[at / 8];
    let half = |at: usize| (word(at) >> (at % 8 * 8)) as u32;
    let number = half(offset_of!(Header, number));
    let bounds = bounds(number).ok_or(Invalid::Site)?;
    if log > bounds.log {
        return Err(Invalid::Bounds);
    }
    head.time = word(offset_of!(Header, time));
    head.number = number;
    head.processor = half(offset_of!(Header, processor));
    head.tid = half(offset_of!(Header, tid));
    head.rsp = word(offset_of!(Header, rsp));
    head.codes = None;
    head.log = has_log.then_some(log);
    head.traces = 0;
    head.place = place;
    head.size = size;
    if has_more { more(source, room, bounds, head) } else { Ok(()) }
}

/// Reads and checks the part that only some records have, which is known to fit, and the stack
/// traces' size.
#[cold]
fn more(
    source: &(impl Source + ?Sized),
    room: usize,
    bounds: Bounds,
    head: &mut Head,
) -> Result<(), Invalid> {
    let log = head.log.unwrap_or(0);
    let mut bytes = [0; MORE];
    if !source.copy(head.place + record_size(log, None), &mut bytes) {
        return Err(Invalid::Size);
    }
    let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    head.codes = Some((half(offset_of!(ExtraHeader, major)), half(offset_of!(ExtraHeader, minor))));
    let at = offset_of!(ExtraHeader, traces);
    let traces = u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    head.traces =
        usize::try_from(traces).ok().filter(|&traces| traces <= bounds.traces).ok_or(Invalid::Bounds)?;
    head.size = record_size(log, Some(head.traces));
    if head.size > room { Err(Invalid::Size) } else { Ok(()) }
}

/// Reads a ring to its end and asserts that every record is within bounds: for tests and fuzzing.
/// The ring is the largest power of two of `bytes`.
///
/// # Panics
/// A record is outside of the ring, or larger than its probe can log, or reading does not end.
pub fn read_to_the_end(bytes: &[u8], mut cursor: Cursor, bounds: Bounds, all: bool) {
    if bytes.is_empty() {
        return;
    }
    let ring = Ring { place: 0, size: 1 << bytes.len().ilog2() };
    let end = ring.size as usize;
    let mut records = 0;
    let mut head = Head::default();
    let bounds_of = |number| (number < 4).then_some(bounds);
    loop {
        let before = cursor.filled();
        let mut plain = Head::default();
        let is_plain = cursor.next_plain(bytes, ring, bounds_of, &mut plain);
        let found = cursor.next(bytes, ring, bounds_of, all, &mut head);
        assert!(!is_plain || found == Next::Record(&plain), "the fast path finds something else");
        let record = match found {
            Next::Record(record) => record,
            Next::Lost(_) => {
                assert!(cursor.filled() < before);
                continue;
            }
            Next::Nothing | Next::Nonsense(_) => return,
        };
        let log = record.log.unwrap_or(0);
        assert!(log <= bounds.log && record.traces <= bounds.traces && record.number < 4);
        assert!(record.data() + log <= end);
        assert!(record.traces == 0 || record.trace_data() + record.traces <= end);
        let before = cursor.filled();
        cursor.pass(record);
        assert!(cursor.filled() < before);
        records += 1;
        assert!(records <= end / HEADER, "more records than there can be");
    }
}

#[cfg(test)]
mod tests;
