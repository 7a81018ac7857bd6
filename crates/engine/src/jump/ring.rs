//! One ring as its reader sees it.
//!
//! What is in it, a process has written, and may write again at any moment: everything is copied before it is looked at, and looked at
//! before it is used. A ring that makes no sense is emptied.

use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use agent::layout::{ABANDONED, Context, HEADER, Header, NO_LOG, state};

use super::contexts::Contexts;

/// The reader's place in a ring.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reader {
    /// Bytes that were ever taken out. The process can write what it likes where it is told of it.
    tail: u64,
    /// Bytes that were put in when the ring was looked at last.
    head: u64,
    /// Bytes of the ring, from its beginning, for which there is memory.
    provided: u64,
    /// Since when the ring has been full behind a record that waits for its instruction.
    full: Option<Instant>,
}

/// How long a ring may be full behind a record that waits for its instruction. An instruction takes that long only if its thread is
/// stopped, or waits for a page that another thread is to provide: one, perhaps, that waits for room here.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of records after which a ring counts as one that is used.
const USED: u64 = 128 << 10;
/// Bytes of a ring for which memory is provided at once, and how far ahead of the records.
const PROVIDED: u64 = 1 << 20;
const AHEAD: u64 = 4 << 20;

/// Bytes of the largest record, and more.
const LARGEST: u64 = 128 << 10;

/// What is next in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing, or what waits for its instruction.
    Nothing,
    /// A record.
    Record(Head),
    /// Nonsense.
    Nonsense,
}

/// The header of a record, as it was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// Whether its instruction has faulted.
    pub(crate) dropped: bool,
    pub(crate) time: u64,
    pub(crate) probe: u32,
    pub(crate) processor: u32,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) rsp: u64,
    pub(crate) site: u64,
    /// Bytes of its log; none if there is none.
    pub(crate) log: Option<usize>,
    /// Bytes of its stack traces.
    pub(crate) traces: usize,
    /// Bytes of the whole.
    size: u64,
    /// Where it is in the memory.
    place: usize,
}

impl Head {
    /// Where its log is in the memory; the stack traces follow.
    pub(crate) fn data(&self) -> usize {
        self.place + HEADER
    }
}

impl Reader {
    /// Looks how far the ring is filled.
    pub(crate) fn look(&mut self, contexts: &Contexts, number: u32) {
        if let Some(head) = contexts.word(number, offset_of!(Context, head)) {
            self.head = head.load(Ordering::Acquire);
        }
    }

    /// Bytes that were ever taken out.
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    /// Bytes that were in it when it was looked at.
    pub(crate) fn filled(&self) -> u64 {
        self.head.wrapping_sub(self.tail)
    }

    /// Provides memory for a ring that is used, ahead of its first records, and the more the more there have been. A page that a thread
    /// has to get for itself in a handler costs it far more than the records that fit there.
    pub(crate) fn provide(&mut self, contexts: &Contexts, number: u32) {
        if self.provided >= contexts.ring_size() || self.head < USED {
            return;
        }
        let wanted = self.head.saturating_mul(4).min(self.head.saturating_add(AHEAD));
        let wanted = wanted.min(contexts.ring_size()).min(self.provided + PROVIDED);
        if let Some(size) = wanted.checked_sub(self.provided).filter(|&size| size >= USED) {
            contexts.shared().provide(contexts.ring(number) + self.provided as usize, size as usize);
            self.provided = wanted;
        }
    }

    /// What is next. With `all`, what still waits for its instruction waits no longer, and counts as dropped.
    pub(crate) fn next(&mut self, contexts: &Contexts, number: u32, all: bool) -> Next {
        let ring_size = contexts.ring_size();
        loop {
            let filled = self.filled();
            if filled == 0 {
                return Next::Nothing;
            }
            let offset = self.tail & (ring_size - 1);
            let room = filled.min(ring_size - offset);
            if filled > ring_size || !self.head.is_multiple_of(8) {
                return Next::Nonsense;
            }
            let place = contexts.ring(number) + offset as usize;
            let Some(status) = contexts.shared().half(place) else { return Next::Nonsense };
            let status = status.load(Ordering::Acquire);
            if status == state::SKIP {
                self.tail = self.tail.wrapping_add(ring_size - offset);
                continue;
            }
            let dropped = match status {
                state::COMMITTED => false,
                state::DROPPED => true,
                state::TENTATIVE if all => true,
                state::TENTATIVE => return Next::Nothing,
                _ => return Next::Nonsense,
            };
            let mut bytes = [0; HEADER];
            if room < HEADER as u64 || !contexts.shared().copy(place, &mut bytes) {
                return Next::Nonsense;
            }
            return match head(&bytes, place, dropped) {
                Some(head) if head.size <= room => Next::Record(head),
                _ => Next::Nonsense,
            };
        }
    }

    /// Nothing is next at this moment. If that is since a record waits for its instruction, and the ring has been full behind it
    /// for long, nobody waits for room any more until it has gone on.
    pub(crate) fn stands(&mut self, contexts: &Contexts, number: u32, now: Instant) {
        if self.filled() + LARGEST <= contexts.ring_size() {
            self.full = None;
            return;
        }
        let since = *self.full.get_or_insert(now);
        if now.duration_since(since) > PATIENCE
            && let Some(tail) = contexts.word(number, offset_of!(Context, tail))
        {
            tail.store(ABANDONED, Ordering::Release);
        }
    }

    /// The record that was next is done with.
    pub(crate) fn pass(&mut self, record: &Head) {
        self.full = None;
        self.tail = self.tail.wrapping_add(record.size);
    }

    /// Tells the process how much room there is.
    pub(crate) fn tell(&self, contexts: &Contexts, number: u32) {
        if let Some(tail) = contexts.word(number, offset_of!(Context, tail)) {
            tail.store(self.tail, Ordering::Release);
        }
    }

    /// Empties a ring that makes no sense.
    pub(crate) fn empty(&mut self) {
        self.tail = self.head;
    }

    /// Drops the records that wait for an instruction of a thread that is no more. They may be anywhere in the ring.
    pub(crate) fn drop_of(&self, contexts: &Contexts, number: u32, tid: u32) {
        let mut at = Reader { full: None, ..*self };
        at.look(contexts, number);
        // As many as there can be.
        for _ in 0..contexts.ring_size() as usize / HEADER + 1 {
            let Next::Record(record) = at.next(contexts, number, true) else { return };
            if record.tid == tid {
                let word = contexts.shared().half(record.place);
                let _ = word.map(|word| {
                    word.compare_exchange(
                        state::TENTATIVE,
                        state::DROPPED,
                        Ordering::Release,
                        Ordering::Relaxed,
                    )
                });
            }
            at.pass(&record);
        }
    }
}

/// Understands a header; none if it makes no sense.
fn head(bytes: &[u8; HEADER], place: usize, dropped: bool) -> Option<Head> {
    let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    let log = match half(offset_of!(Header, log_length)) {
        NO_LOG => None,
        length => Some(length as usize),
    };
    let record = Head {
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
        log,
        traces: half(offset_of!(Header, trace_length)) as usize,
        size: half(offset_of!(Header, size)).into(),
        place,
    };
    let needed = HEADER as u64 + log.unwrap_or(0) as u64 + record.traces as u64;
    (record.size.is_multiple_of(8) && needed <= record.size).then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::layout::RING_SIZE;
    use proptest::prelude::*;

    /// Contexts, and what was put into the ring of the first.
    struct Ring(Contexts, u64);

    impl Ring {
        fn new() -> Ring {
            Ring(Contexts::new(0x1000_0000, 2, RING_SIZE).expect("memory"), 0)
        }

        /// Puts a record in that begins with these words of 4 bytes, its state and size first.
        fn put(&mut self, status: u32, size: u32, log: u32, tid: u32) {
            let offset = (self.1 % RING_SIZE) as usize;
            let mut bytes = [0u8; HEADER];
            bytes[..4].copy_from_slice(&status.to_le_bytes());
            bytes[4..8].copy_from_slice(&size.to_le_bytes());
            bytes[offset_of!(Header, tid)..][..4].copy_from_slice(&tid.to_le_bytes());
            bytes[offset_of!(Header, log_length)..][..4].copy_from_slice(&log.to_le_bytes());
            self.0.shared().write(self.0.ring(0) + offset, &bytes);
            self.head(self.1 + u64::from(size));
        }

        fn head(&mut self, head: u64) {
            self.1 = head;
            self.0.word(0, offset_of!(Context, head)).expect("it is there").store(head, Ordering::Release);
        }
    }

    #[test]
    fn records_are_read_in_their_order_until_one_waits() {
        let mut ring = Ring::new();
        ring.put(state::COMMITTED, 72, 8, 1);
        ring.put(state::DROPPED, 64, 0, 2);
        ring.put(state::TENTATIVE, 64, 0, 3);
        ring.put(state::COMMITTED, 64, NO_LOG, 4);
        let mut reader = Reader::default();
        reader.look(&ring.0, 0);
        let read = |reader: &mut Reader, all| match reader.next(&ring.0, 0, all) {
            Next::Record(record) => {
                reader.pass(&record);
                Some((record.tid, record.dropped, record.log))
            }
            Next::Nothing => None,
            Next::Nonsense => panic!("it makes sense"),
        };
        assert_eq!(read(&mut reader, false), Some((1, false, Some(8))));
        assert_eq!(read(&mut reader, false), Some((2, true, Some(0))));
        assert_eq!(read(&mut reader, false), None);
        reader.drop_of(&ring.0, 0, 99);
        assert_eq!(read(&mut reader, false), None);
        reader.drop_of(&ring.0, 0, 3);
        assert_eq!(read(&mut reader, false), Some((3, true, Some(0))));
        assert_eq!(read(&mut reader, false), Some((4, false, None)));
        assert_eq!(read(&mut reader, false), None);
    }

    #[test]
    fn what_still_waits_at_the_end_is_dropped() {
        let mut ring = Ring::new();
        ring.put(state::TENTATIVE, 64, 0, 3);
        let mut reader = Reader::default();
        reader.look(&ring.0, 0);
        assert!(matches!(reader.next(&ring.0, 0, true), Next::Record(record) if record.dropped));
    }

    #[test]
    fn nobody_waits_for_ever_behind_a_record_that_waits() {
        let mut ring = Ring::new();
        ring.put(state::TENTATIVE, 64, 0, 3);
        let mut reader = Reader::default();
        let tail = |ring: &Ring| {
            ring.0.word(0, offset_of!(Context, tail)).expect("it is there").load(Ordering::Relaxed)
        };
        let begin = Instant::now();
        let late = begin + PATIENCE + Duration::from_secs(1);
        reader.look(&ring.0, 0);
        reader.stands(&ring.0, 0, begin);
        reader.stands(&ring.0, 0, late);
        assert_eq!(tail(&ring), 0, "there is room behind it");
        ring.head(RING_SIZE - 64);
        reader.look(&ring.0, 0);
        reader.stands(&ring.0, 0, begin);
        reader.stands(&ring.0, 0, begin + PATIENCE);
        assert_eq!(tail(&ring), 0);
        reader.stands(&ring.0, 0, late);
        assert_eq!(tail(&ring), ABANDONED);
        // Its instruction is done.
        let Next::Record(record) = reader.next(&ring.0, 0, true) else { panic!("a record") };
        reader.pass(&record);
        reader.tell(&ring.0, 0);
        assert_eq!(tail(&ring), 64);
    }

    #[test]
    fn a_record_that_does_not_fit_begins_at_the_start() {
        let mut ring = Ring::new();
        let before = RING_SIZE - 72;
        ring.head(before);
        let mut reader = Reader { tail: before, head: before, ..Reader::default() };
        ring.put(state::COMMITTED, 64, 0, 1);
        // Eight bytes are left.
        let place = ring.0.ring(0) + RING_SIZE as usize - 8;
        ring.0.shared().write(place, &[4, 0, 0, 0, 8, 0, 0, 0]);
        ring.head(RING_SIZE);
        ring.put(state::COMMITTED, 64, 0, 2);
        reader.look(&ring.0, 0);
        for tid in [1, 2] {
            let Next::Record(record) = reader.next(&ring.0, 0, false) else { panic!("a record") };
            assert_eq!(record.tid, tid);
            reader.pass(&record);
        }
        assert_eq!(reader.next(&ring.0, 0, false), Next::Nothing);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_an_end(
            words in prop::collection::vec(prop_oneof![0u32..6, (0u32..40).prop_map(|n| n * 8), any::<u32>()], 64),
            head in prop_oneof![(0u64..32).prop_map(|n| n * 8), any::<u64>()],
            tail in prop_oneof![Just(0u64), any::<u64>()],
        ) {
            let contexts = Contexts::new(0x1000_0000, 2, RING_SIZE).expect("memory");
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            contexts.shared().write(contexts.ring(0), &bytes);
            contexts.word(0, offset_of!(Context, head)).expect("there").store(head, Ordering::Relaxed);
            let mut reader = Reader { tail, head: tail, ..Reader::default() };
            reader.look(&contexts, 0);
            let mut steps = 0;
            while let Next::Record(record) = reader.next(&contexts, 0, true) {
                reader.pass(&record);
                steps += 1;
                prop_assert!(steps <= RING_SIZE as usize / HEADER);
            }
        }
    }
}
