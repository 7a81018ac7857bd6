//! Reads one ring, and tells its process how far.
//!
//! In: the memory of a ring. Out: the head of its next record, checked; or that it is empty, or
//! invalid.
//!
//! The process has written the ring's content, and may change it at any moment: the crate `rings`
//! parses it. A ring with invalid content is emptied.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use layout::{ABANDONED, HEADER};
use rings::{Bounds, Cursor, Head, Invalid, Next, Ring, Source};

use super::clock::counter;
use super::rings::Rings;
use super::shared::Shared;

/// The reader's state for one ring.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reader {
    /// The reader's own position: the copy that the process is told could be overwritten by it.
    cursor: Cursor,
    /// Bytes of records read so far.
    read: u64,
    /// Bytes of the ring, from its beginning, whose pages are allocated.
    provided: u64,
    /// Since when the ring has been full behind a record that waits for its instruction.
    full: Option<Instant>,
    /// The TSC of the last record read.
    last: u64,
    /// Lost records according to marks in the ring; and lost records that [`Reader::gap`] has
    /// reported.
    marked: u64,
    told: u64,
    /// The times (TSC) around what was lost since the last [`Reader::gap`].
    between: Option<(u64, u64)>,
}

/// What follows a mark.
enum Behind {
    Lost(u32),
    Record,
    Nothing,
    Nonsense(Invalid),
}

/// Records lost in a ring for want of room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// The TSC of the last record before; 0 if there is none.
    pub(crate) from: u64,
    /// The TSC of the first record after; or of a moment by which they were lost.
    pub(crate) to: u64,
    pub(crate) count: u64,
}

/// How long a ring may be full behind a record that waits for its instruction. An instruction takes
/// that long only if its thread is stopped, or waits for a page from another thread, which perhaps
/// waits for room here.
const STALL_LIMIT: Duration = Duration::from_secs(10);

/// Bytes of records after which a ring counts as used.
const USED: u64 = 128 << 10;
/// The most bytes for which pages are allocated at once, and how far ahead of the records.
const PROVIDED: u64 = 1 << 20;
const AHEAD: u64 = 4 << 20;

/// More than the largest record has.
const MAX_RECORD_BYTES: u64 = 128 << 10;

impl Reader {
    /// Reads how far the ring is filled.
    pub(crate) fn look(&mut self, rings: &Rings, number: u32) {
        self.cursor.head = rings.head(number);
    }

    /// Bytes read so far: the reader's position.
    pub(crate) fn tail(&self) -> u64 {
        self.cursor.tail
    }

    /// Bytes that are still to be read.
    pub(crate) fn filled(&self) -> u64 {
        self.cursor.filled()
    }

    /// Allocates pages of a used ring ahead of its first records: the more records there were, the
    /// farther. A page fault in a handler costs the thread far more than the records that fit into
    /// the page.
    pub(crate) fn provide(&mut self, rings: &Rings, number: u32) {
        if self.provided >= rings.size() || self.read < USED {
            return;
        }
        let wanted = self.read.saturating_mul(4).min(self.read.saturating_add(AHEAD));
        let wanted = wanted.min(rings.size()).min(self.provided + PROVIDED);
        if let Some(size) = wanted.checked_sub(self.provided).filter(|&size| size >= USED) {
            rings.shared().provide(rings.offset(number) + self.provided as usize, size as usize);
            self.provided = wanted;
        }
    }

    /// What comes next. `bounds` gives the limits of a record by its number. With `all`, a record
    /// that still waits for its instruction counts as dropped. A record is returned in `head`.
    #[inline]
    pub(crate) fn next<'a>(
        &mut self,
        rings: &Rings,
        number: u32,
        bounds: impl Fn(u32) -> Option<Bounds>,
        all: bool,
        head: &'a mut Head,
    ) -> Next<'a> {
        let ring = rings.ring(number);
        let lost = match self.cursor.next(rings.shared(), ring, &bounds, all, head) {
            Next::Lost(count) => count,
            Next::Record(_) => return Next::Record(head),
            Next::Nothing => return Next::Nothing,
            Next::Nonsense(why) => return Next::Nonsense(why),
        };
        self.next_behind(lost, head, |cursor, head| {
            match cursor.next(rings.shared(), ring, &bounds, all, head) {
                Next::Lost(count) => Behind::Lost(count),
                Next::Record(_) => Behind::Record,
                Next::Nothing => Behind::Nothing,
                Next::Nonsense(why) => Behind::Nonsense(why),
            }
        })
    }

    /// Fast path of [`Reader::next`] for most records. Returns `false`, with nothing done, if it
    /// does not apply.
    #[inline(always)]
    pub(crate) fn next_plain(
        &self,
        (memory, ring): (&Shared, Ring),
        bounds: impl Fn(u32) -> Option<Bounds>,
        head: &mut Head,
    ) -> bool {
        self.cursor.next_plain(memory, ring, bounds, head)
    }

    /// What comes behind a mark for lost records.
    #[cold]
    fn next_behind<'a>(
        &mut self,
        lost: u32,
        head: &'a mut Head,
        next: impl Fn(&mut Cursor, &mut Head) -> Behind,
    ) -> Next<'a> {
        self.marked = self.marked.wrapping_add(lost.into());
        let found = loop {
            match next(&mut self.cursor, head) {
                Behind::Lost(more) => self.marked = self.marked.wrapping_add(more.into()),
                found => break found,
            }
        };
        let from = self.between.map_or(self.last, |(from, _)| from);
        let (to, found) = match found {
            Behind::Record => (head.time, Next::Record(head)),
            // They were lost before now.
            Behind::Nonsense(why) => (counter(), Next::Nonsense(why)),
            Behind::Nothing | Behind::Lost(_) => (counter(), Next::Nothing),
        };
        self.between = Some((from, to));
        found
    }

    /// What was lost since the last call, if anything: according to marks, and, if the ring is
    /// empty, also records that no mark has told yet.
    pub(crate) fn gap(&mut self, rings: &Rings, number: u32) -> Option<Gap> {
        let mut lost = self.marked;
        if self.filled() == 0 {
            lost = lost.max(rings.lost(number));
        }
        let count = lost.wrapping_sub(self.told);
        if count == 0 || count > u64::MAX / 2 {
            self.between = None;
            return None;
        }
        let behind = lost != self.marked;
        let (from, to) = self.between.take().unwrap_or((self.last, 0));
        self.told = lost;
        Some(Gap { from, to: if behind { counter() } else { to }, count })
    }

    /// Called when nothing can be read now. If that is because a record waits for its instruction,
    /// and the ring has been full for too long, no thread waits for room until that record is done.
    pub(crate) fn check_stalled(&mut self, rings: &Rings, number: u32, now: Instant) {
        if self.filled().saturating_add(MAX_RECORD_BYTES) <= rings.size() {
            self.full = None;
            return;
        }
        let since = *self.full.get_or_insert(now);
        if now.duration_since(since) > STALL_LIMIT {
            rings.tell(number, ABANDONED);
        }
    }

    /// Moves on behind the record that was next.
    #[inline]
    pub(crate) fn pass(&mut self, record: &Head) {
        self.full = None;
        self.last = record.time;
        let before = self.cursor.tail;
        self.cursor.pass(record);
        self.read = self.read.saturating_add(self.cursor.tail.wrapping_sub(before));
    }

    /// Tells the process how much was read.
    pub(crate) fn tell(&self, rings: &Rings, number: u32) {
        rings.tell(number, self.cursor.tail);
    }

    /// Empties a ring with invalid content.
    pub(crate) fn empty(&mut self) {
        self.cursor.empty();
    }

    /// Drops the records, anywhere in the ring, that wait for an instruction of a thread that is
    /// gone.
    pub(crate) fn drop_of(
        &self,
        rings: &Rings,
        number: u32,
        bounds: impl Fn(u32) -> Option<Bounds>,
        tid: u32,
    ) {
        let mut at = Reader { full: None, ..*self };
        at.look(rings, number);
        let mut head = Head::default();
        // No more records fit into a ring.
        for _ in 0..rings.size() as usize / HEADER + 1 {
            let Next::Record(record) = at.next(rings, number, &bounds, true, &mut head) else { return };
            if record.tid == tid {
                rings.drop_at(record.state_offset());
            }
            at.pass(record);
        }
    }
}

impl Source for Shared {
    fn state(&self, place: usize) -> Option<u32> {
        Some(self.half(place)?.load(Ordering::Acquire))
    }

    #[inline]
    fn words<const N: usize>(&self, place: usize) -> Option<[u64; N]> {
        let words = Shared::words(self, place, N).first_chunk::<N>()?;
        Some(words.each_ref().map(|word| u64::from_le(word.load(Ordering::Relaxed))))
    }

    fn copy(&self, place: usize, into: &mut [u8]) -> bool {
        Shared::copy(self, place, into)
    }

    fn soon(&self, place: usize) {
        Shared::prefetch(self, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use layout::{Header, RING_SIZE, flag, record_size, state, status};
    use std::mem::offset_of;

    fn bounds(number: u32) -> Option<Bounds> {
        (number == 0).then_some(Bounds { log: 64, traces: 64 })
    }

    fn next(reader: &mut Reader, rings: &Rings, all: bool) -> Option<Head> {
        match reader.next(rings, 0, bounds, all, &mut Head::default()) {
            Next::Record(record) => Some(*record),
            Next::Nothing => None,
            other => panic!("{other:?}"),
        }
    }

    /// Rings, and the bytes put into the first.
    struct Filled(Rings, u64);

    impl Filled {
        fn new() -> Filled {
            Filled(Rings::unshared(2, RING_SIZE), 0)
        }

        fn put(&mut self, state: u32, log: usize, tid: u32) {
            self.put_with(state, 0, log, tid);
        }

        fn put_with(&mut self, state: u32, flags: u32, log: usize, tid: u32) {
            let offset = (self.1 % RING_SIZE) as usize;
            let more = (flags & flag::MORE != 0).then_some(0);
            let mut bytes = vec![0u8; record_size(log, more)];
            bytes[..4].copy_from_slice(&status(state, flags, log).to_le_bytes());
            bytes[offset_of!(Header, tid)..][..4].copy_from_slice(&tid.to_le_bytes());
            self.0.shared().write(self.0.offset(0) + offset, &bytes);
            self.head(self.1 + bytes.len() as u64);
        }

        fn head(&mut self, head: u64) {
            self.1 = head;
            self.0.set_head(0, head);
        }
    }

    #[test]
    fn records_are_read_in_their_order_until_one_waits() {
        let mut ring = Filled::new();
        ring.put(state::COMMITTED, 8, 1);
        ring.put(state::DROPPED, 0, 2);
        ring.put(state::TENTATIVE, 16, 3);
        ring.put_with(state::COMMITTED, flag::MORE | flag::NO_LOG, 0, 4);
        let mut reader = Reader::default();
        reader.look(&ring.0, 0);
        let read = |reader: &mut Reader, all| {
            let record = next(reader, &ring.0, all)?;
            reader.pass(&record);
            Some((record.tid, record.dropped, record.log))
        };
        assert_eq!(read(&mut reader, false), Some((1, false, Some(8))));
        assert_eq!(read(&mut reader, false), Some((2, true, Some(0))));
        assert_eq!(read(&mut reader, false), None);
        reader.drop_of(&ring.0, 0, bounds, 99);
        assert_eq!(read(&mut reader, false), None);
        reader.drop_of(&ring.0, 0, bounds, 3);
        assert_eq!(read(&mut reader, false), Some((3, true, Some(16))));
        assert_eq!(read(&mut reader, false), Some((4, false, None)));
        assert_eq!(read(&mut reader, false), None);
    }

    #[test]
    fn what_was_lost_is_told_with_the_times_of_its_neighbours() {
        let mut ring = Filled::new();
        let mark = |ring: &mut Filled, count: u32| {
            let bytes = [state::LOST.to_le_bytes(), count.to_le_bytes()].concat();
            ring.0.shared().write(ring.0.offset(0) + ring.1 as usize, &bytes);
            ring.head(ring.1 + 8);
        };
        let at = |ring: &mut Filled, time: u64| {
            let place = ring.0.offset(0) + ring.1 as usize + offset_of!(Header, time);
            ring.put(state::COMMITTED, 0, 1);
            ring.0.shared().write(place, &time.to_le_bytes());
        };
        let mut reader = Reader::default();
        let read = |reader: &mut Reader, ring: &Filled| {
            reader.look(&ring.0, 0);
            let mut count = 0;
            while let Some(record) = next(reader, &ring.0, false) {
                reader.pass(&record);
                count += 1;
            }
            (count, reader.gap(&ring.0, 0))
        };
        at(&mut ring, 10);
        assert_eq!(read(&mut reader, &ring), (1, None));
        at(&mut ring, 20);
        mark(&mut ring, 7);
        at(&mut ring, 30);
        at(&mut ring, 40);
        ring.0.set_lost(0, 7);
        assert_eq!(read(&mut reader, &ring), (3, Some(Gap { from: 20, to: 30, count: 7 })));
        // Two losses in one look are reported as one that spans both.
        at(&mut ring, 50);
        mark(&mut ring, 1);
        mark(&mut ring, 2);
        at(&mut ring, 60);
        mark(&mut ring, 3);
        at(&mut ring, 70);
        ring.0.set_lost(0, 13);
        assert_eq!(read(&mut reader, &ring), (3, Some(Gap { from: 50, to: 70, count: 6 })));
        // No record follows yet: they are reported now, and not again when they are marked.
        ring.0.set_lost(0, 18);
        let (_, gap) = read(&mut reader, &ring);
        let gap = gap.expect("it is told");
        assert_eq!((gap.from, gap.count), (70, 5));
        assert!(gap.to > 70);
        ring.0.set_lost(0, 19);
        mark(&mut ring, 6);
        at(&mut ring, gap.to + 9);
        assert_eq!(read(&mut reader, &ring), (1, Some(Gap { from: 70, to: gap.to + 9, count: 1 })));
        assert_eq!(read(&mut reader, &ring), (0, None));
        // The process may write any number there.
        ring.0.set_lost(0, 3);
        assert_eq!(read(&mut reader, &ring), (0, None));
    }

    #[test]
    fn what_still_waits_at_the_end_is_dropped() {
        let mut ring = Filled::new();
        ring.put(state::TENTATIVE, 0, 3);
        let mut reader = Reader::default();
        reader.look(&ring.0, 0);
        assert!(next(&mut reader, &ring.0, true).is_some_and(|record| record.dropped));
    }

    #[test]
    fn nobody_waits_for_ever_behind_a_record_that_waits() {
        let mut ring = Filled::new();
        ring.put(state::TENTATIVE, 0, 3);
        let mut reader = Reader::default();
        let tail = |ring: &Filled| ring.0.told(0);
        let begin = Instant::now();
        let late = begin + STALL_LIMIT + Duration::from_secs(1);
        reader.look(&ring.0, 0);
        reader.check_stalled(&ring.0, 0, begin);
        reader.check_stalled(&ring.0, 0, late);
        assert_eq!(tail(&ring), 0, "there is room behind it");
        ring.head(RING_SIZE - HEADER as u64);
        reader.look(&ring.0, 0);
        reader.check_stalled(&ring.0, 0, begin);
        reader.check_stalled(&ring.0, 0, begin + STALL_LIMIT);
        assert_eq!(tail(&ring), 0);
        reader.check_stalled(&ring.0, 0, late);
        assert_eq!(tail(&ring), ABANDONED);
        // Its instruction completes.
        let record = next(&mut reader, &ring.0, true).expect("a record");
        reader.pass(&record);
        reader.tell(&ring.0, 0);
        assert_eq!(tail(&ring), HEADER as u64);
    }

    #[test]
    fn a_record_that_does_not_fit_begins_at_the_start() {
        let mut ring = Filled::new();
        let before = RING_SIZE - 8 - HEADER as u64;
        ring.head(before);
        let cursor = Cursor { tail: before, head: before };
        let mut reader = Reader { cursor, ..Reader::default() };
        ring.put(state::COMMITTED, 0, 1);
        // Eight bytes are left before the end.
        let place = ring.0.offset(0) + RING_SIZE as usize - 8;
        ring.0.shared().write(place, &state::SKIP.to_le_bytes());
        ring.head(RING_SIZE);
        ring.put(state::COMMITTED, 0, 2);
        reader.look(&ring.0, 0);
        for tid in [1, 2] {
            let record = next(&mut reader, &ring.0, false).expect("a record");
            assert_eq!(record.tid, tid);
            reader.pass(&record);
        }
        assert!(next(&mut reader, &ring.0, false).is_none());
    }
}
