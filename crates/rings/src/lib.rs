//! The reader of rings: what a probed process has written there, looked at as input.
//!
//! Design constraints: a process can write anything into its own ring, at any moment, also while it is read. So everything is copied
//! before it is looked at, and every number is held against what a handler can have written before it is used: a record that is
//! larger than its probe can log is none. No input makes this code panic, loop, or name memory outside of the ring; it allocates
//! nothing. What makes no sense is told from what is not there yet, so that it can be counted.
//!
//! ```text
//!     tail                      head
//!     | record | record | SKIP ... end of the ring
//!     start of the ring | record | record ...
//! ```
//!
//! `tail` is the reader's own number, `head` the process's. A record is a header ([`agent::layout::Header`]), the log, the stack
//! traces, and nothing up to a multiple of 8 bytes.

#![forbid(unsafe_code)]

use std::fmt;
use std::mem::offset_of;

use agent::layout::{HEADER, Header, NO_LOG, state};

/// The memory that a ring is in. Others may write to it at any moment.
pub trait Source {
    /// The state of the record at a place, read so that all is seen which was written before it. None outside of the memory.
    fn state(&self, place: usize) -> Option<u32>;
    /// Copies bytes out. `false`, and nothing is copied, where they are not all inside of the memory.
    fn copy(&self, place: usize, into: &mut [u8]) -> bool;
}

impl Source for [u8] {
    fn state(&self, place: usize) -> Option<u32> {
        let bytes = self.get(place..place.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    fn copy(&self, place: usize, into: &mut [u8]) -> bool {
        let bytes = place.checked_add(into.len()).and_then(|end| self.get(place..end));
        bytes.map(|bytes| into.copy_from_slice(bytes)).is_some()
    }
}

/// Where a ring is in its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// The place of its first byte.
    pub place: usize,
    /// Its bytes: a power of two.
    pub size: u64,
}

/// What a handler of a probe can put into one record, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Of its log.
    pub log: usize,
    /// Of its stack traces.
    pub traces: usize,
}

/// What is next in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing, or what waits for its instruction.
    Nothing,
    /// A record.
    Record(Head),
    /// What no handler writes.
    Nonsense(Nonsense),
}

/// Why something is no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nonsense {
    /// The ring holds more than it has room for, or part of a word.
    Fill,
    /// The state is none that there is.
    State,
    /// The record is not as large as its parts, or larger than what was put in.
    Size,
    /// There is no such probe.
    Probe,
    /// It has more than its probe's handler can log.
    Bounds,
}

impl fmt::Display for Nonsense {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Nonsense::Fill => "more than there is room for",
            Nonsense::State => "a record in no state that there is",
            Nonsense::Size => "a record that is not as large as it says",
            Nonsense::Probe => "a record of no probe",
            Nonsense::Bounds => "a record of more than its probe can log",
        })
    }
}

/// The header of a record, as it was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Whether its instruction has faulted.
    pub dropped: bool,
    /// The time stamp counter.
    pub time: u64,
    /// The probe's number, of those that there are.
    pub probe: u32,
    /// The processor, with its node.
    pub processor: u32,
    /// The process, as it says.
    pub pid: u32,
    /// The thread, as it says.
    pub tid: u32,
    /// The major code.
    pub major: u32,
    /// The minor code.
    pub minor: u32,
    /// The stack pointer at the site.
    pub rsp: u64,
    /// The site's address.
    pub site: u64,
    /// Bytes of its log; none if there is none.
    pub log: Option<usize>,
    /// Bytes of its stack traces.
    pub traces: usize,
    /// Bytes of the whole.
    size: u64,
    /// Where it is in the memory.
    place: usize,
}

impl Head {
    /// Where its log is in the memory; the stack traces follow. All of it is inside of the ring.
    pub fn data(&self) -> usize {
        self.place + HEADER
    }

    /// Where its state is in the memory.
    pub fn place(&self) -> usize {
        self.place
    }
}

/// How far a ring is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Bytes that were ever taken out.
    pub tail: u64,
    /// Bytes that were ever put in, as the process has said last.
    pub head: u64,
}

impl Cursor {
    /// Bytes that are to be read. What the process has said may make this more than there is.
    pub fn filled(&self) -> u64 {
        self.head.wrapping_sub(self.tail)
    }

    /// What is next. `bounds` knows the probes by their numbers. With `all`, what still waits for its instruction waits no longer, and
    /// counts as dropped.
    pub fn next(
        &mut self,
        source: &(impl Source + ?Sized),
        ring: Ring,
        bounds: impl Fn(u32) -> Option<Bounds>,
        all: bool,
    ) -> Next {
        loop {
            let filled = self.filled();
            if filled == 0 {
                return Next::Nothing;
            }
            if filled > ring.size || !self.head.is_multiple_of(8) {
                return Next::Nonsense(Nonsense::Fill);
            }
            let offset = self.tail & (ring.size - 1);
            let room = filled.min(ring.size - offset);
            let place = ring.place + offset as usize;
            let Some(status) = source.state(place) else { return Next::Nonsense(Nonsense::Fill) };
            let dropped = match status {
                state::SKIP => {
                    // Behind it is the start of the ring: that comes once at most, since no more is filled than there is.
                    self.tail = self.tail.wrapping_add(ring.size - offset);
                    continue;
                }
                state::COMMITTED => false,
                state::DROPPED => true,
                state::TENTATIVE if all => true,
                state::TENTATIVE => return Next::Nothing,
                _ => return Next::Nonsense(Nonsense::State),
            };
            let mut bytes = [0; HEADER];
            if room < HEADER as u64 || !source.copy(place, &mut bytes) {
                return Next::Nonsense(Nonsense::Size);
            }
            let head = parse(&bytes, place, dropped);
            return match check(&head, room, bounds) {
                Ok(()) => Next::Record(head),
                Err(nonsense) => Next::Nonsense(nonsense),
            };
        }
    }

    /// The record that was next is done with.
    pub fn pass(&mut self, record: &Head) {
        self.tail = self.tail.wrapping_add(record.size);
    }

    /// Passes over all that was put in.
    pub fn empty(&mut self) {
        self.tail = self.head;
    }
}

/// Holds a header against what there is.
fn check(head: &Head, room: u64, bounds: impl Fn(u32) -> Option<Bounds>) -> Result<(), Nonsense> {
    let bounds = bounds(head.probe).ok_or(Nonsense::Probe)?;
    let log = head.log.unwrap_or(0);
    if log > bounds.log || head.traces > bounds.traces {
        return Err(Nonsense::Bounds);
    }
    let whole = (HEADER + log + head.traces).next_multiple_of(8) as u64;
    if head.size != whole || whole > room { Err(Nonsense::Size) } else { Ok(()) }
}

/// Takes a header apart.
fn parse(bytes: &[u8; HEADER], place: usize, dropped: bool) -> Head {
    let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    Head {
        dropped,
        time: word(offset_of!(Header, time)),
        probe: half(offset_of!(Header, probe)),
        processor: half(offset_of!(Header, processor)),
        pid: half(offset_of!(Header, pid)),
        tid: half(offset_of!(Header, tid)),
        major: half(offset_of!(Header, major)),
        minor: half(offset_of!(Header, minor)),
        rsp: word(offset_of!(Header, rsp)),
        site: word(offset_of!(Header, site)),
        log: Some(half(offset_of!(Header, log_length))).filter(|&log| log != NO_LOG).map(|log| log as usize),
        traces: half(offset_of!(Header, trace_length)) as usize,
        size: half(offset_of!(Header, size)).into(),
        place,
    }
}

/// Reads what is in a ring to its end, and holds what comes out against what was promised: for tests and for fuzzing. The ring is all of
/// `bytes`, as far as that is a power of two.
///
/// # Panics
/// A record is outside of the ring, or more than its probe can log, or there is no end.
pub fn read_to_the_end(bytes: &[u8], mut cursor: Cursor, bounds: Bounds, all: bool) {
    if bytes.is_empty() {
        return;
    }
    let ring = Ring { place: 0, size: 1 << bytes.len().ilog2() };
    let end = ring.size as usize;
    let mut records = 0;
    while let Next::Record(record) = cursor.next(bytes, ring, |probe| (probe < 4).then_some(bounds), all) {
        let log = record.log.unwrap_or(0);
        assert!(log <= bounds.log && record.traces <= bounds.traces && record.probe < 4);
        assert!(record.data() + log + record.traces <= end);
        let before = cursor.filled();
        cursor.pass(&record);
        assert!(cursor.filled() < before);
        records += 1;
        assert!(records <= end / HEADER, "more records than there can be");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUNDS: Bounds = Bounds { log: 64, traces: 32 };
    const RING: Ring = Ring { place: 8, size: 1024 };

    /// A record of probe 0.
    fn record(status: u32, size: u32, log: u32, traces: u32) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        let mut put = |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        put(offset_of!(Header, state), status);
        put(offset_of!(Header, size), size);
        put(offset_of!(Header, log_length), log);
        put(offset_of!(Header, trace_length), traces);
        bytes
    }

    fn next(head: u64, tail: u64, at: usize, bytes: &[u8]) -> Next {
        let mut memory = vec![0; 8 + 1024];
        memory[8 + at..][..bytes.len()].copy_from_slice(bytes);
        let bounds = |probe| (probe == 0).then_some(BOUNDS);
        Cursor { head, tail }.next(&memory[..], RING, bounds, false)
    }

    #[test]
    fn what_no_handler_writes_is_nonsense() {
        let header = HEADER as u32;
        let of = |bytes: &[u8]| match next(1024, 0, 0, bytes) {
            Next::Record(record) => Ok((record.log, record.traces)),
            Next::Nonsense(nonsense) => Err(Some(nonsense)),
            Next::Nothing => Err(None),
        };
        let committed = |size, log, traces| of(&record(state::COMMITTED, size, log, traces));
        assert_eq!(committed(header + 16, 10, 3), Ok((Some(10), 3)));
        assert_eq!(committed(header + 32, NO_LOG, 32), Ok((None, 32)));
        assert_eq!(committed(header + 24, 10, 3), Err(Some(Nonsense::Size)));
        assert_eq!(committed(header + 8, 10, 3), Err(Some(Nonsense::Size)));
        assert_eq!(committed(header + 72, 65, 0), Err(Some(Nonsense::Bounds)));
        assert_eq!(committed(header + 40, 0, 33), Err(Some(Nonsense::Bounds)));
        assert_eq!(committed(u32::MAX, u32::MAX - 1, u32::MAX), Err(Some(Nonsense::Bounds)));
        assert_eq!(of(&record(9, header, 0, 0)), Err(Some(Nonsense::State)));
        assert_eq!(of(&record(state::TENTATIVE, header, 0, 0)), Err(None));
        let mut other = record(state::COMMITTED, header, 0, 0);
        other[offset_of!(Header, probe)] = 1;
        assert_eq!(of(&other), Err(Some(Nonsense::Probe)));
        // More than was put in; more than there is; a part of a word; a skip that leads past the end.
        let whole = record(state::COMMITTED, header + 16, 16, 0);
        assert_eq!(next(u64::from(header) + 8, 0, 0, &whole), Next::Nonsense(Nonsense::Size));
        assert_eq!(next(1032, 0, 0, &whole), Next::Nonsense(Nonsense::Fill));
        assert_eq!(next(u64::MAX, 0, 0, &whole), Next::Nonsense(Nonsense::Fill));
        assert_eq!(next(77, 0, 0, &whole), Next::Nonsense(Nonsense::Fill));
        assert_eq!(next(512, 0, 0, &record(state::SKIP, 8, 0, 0)), Next::Nonsense(Nonsense::Fill));
        assert_eq!(next(1024, 1016, 1016, &state::COMMITTED.to_le_bytes()), Next::Nonsense(Nonsense::Size));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_an_end(
            words in prop::collection::vec(
                prop_oneof![0u32..6, (0u32..40).prop_map(|n| n * 8), any::<u32>()],
                1..300
            ),
            head in prop_oneof![(0u64..160).prop_map(|n| n * 8), any::<u64>()],
            tail in prop_oneof![Just(0u64), (0u64..160).prop_map(|n| n * 8), any::<u64>()],
            all in any::<bool>(),
        ) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            read_to_the_end(&bytes, Cursor { head, tail }, BOUNDS, all);
        }
    }
}
