//! Sorts records by time.
//!
//! A store has its records in the order in which they were handed out, and says how much earlier
//! one may be than another before it. The records within this window are kept in memory.
//!
//! ```text
//! 5 7 9 | 6 8 | 1 2      runs: each ascends, and ends later than the next one
//! heads: 1 5 6           the least of them is given next
//! ```
//!
//! Records come as a few ascending sequences, one from each buffer that was emptied. So a record is
//! appended to the first run that ends no later than it; there are at most as many runs as
//! sequences. Kept records are written and read sequentially, in few large pieces: a heap of
//! records would access memory at random.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};

use trace::Record;
use trace::store::Entry;

/// Most bytes of records kept, approximately.
const MAX_KEPT_BYTES: usize = 48 << 20;
/// Most records of a piece of a run.
const PIECE: usize = 256;
/// A piece with so many bytes of names and data is full.
const PIECE_BYTES: usize = 1 << 15;
/// Most pieces kept for reuse.
const MAX_SPARE: usize = 64;

/// A record that is returned.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) number: u64,
    pub(crate) program: u32,
    pub(crate) record: Record,
}

/// A record without its name and data, which are in the piece's bytes.
#[derive(Debug)]
struct Slot {
    number: u64,
    program: u32,
    name: u32,
    data: usize,
    record: Record,
}

/// A piece of a run.
#[derive(Debug, Default)]
struct Piece {
    slots: VecDeque<Slot>,
    /// The name and the data of each record, in order.
    bytes: Vec<u8>,
    /// Where those of the first slot begin.
    at: usize,
}

impl Piece {
    fn is_full(&self) -> bool {
        self.slots.len() >= PIECE || self.bytes.len() >= PIECE_BYTES
    }

    /// Bytes of memory used.
    fn memory(&self) -> usize {
        size_of::<Piece>() + self.slots.capacity() * size_of::<Slot>() + self.bytes.capacity()
    }

    fn push(&mut self, entry: &Entry<'_>) {
        let record = entry.record;
        self.bytes.extend_from_slice(record.name.as_bytes());
        self.bytes.extend_from_slice(&record.data);
        self.slots.push_back(Slot {
            number: entry.number,
            program: entry.program,
            name: record.name.len() as u32,
            data: record.data.len(),
            record: Record { name: String::new(), data: Vec::new(), ..*record },
        });
    }

    fn pop(&mut self, kept: &mut Kept) {
        let Some(slot) = self.slots.pop_front() else { return };
        let (mut name, mut data) =
            (std::mem::take(&mut kept.record.name), std::mem::take(&mut kept.record.data));
        let (start, middle) = (self.at, self.at + slot.name as usize);
        self.at = middle + slot.data;
        if name.as_bytes() != &self.bytes[start..middle] {
            name.clear();
            // It was valid UTF-8 when it was added.
            name.push_str(&String::from_utf8_lossy(&self.bytes[start..middle]));
        }
        data.clear();
        data.extend_from_slice(&self.bytes[middle..self.at]);
        *kept =
            Kept { number: slot.number, program: slot.program, record: Record { name, data, ..slot.record } };
    }

    /// Empties it; keeps its memory unless that is unusually much.
    fn clear(&mut self) {
        self.slots.clear();
        self.bytes.clear();
        self.bytes.shrink_to(2 * PIECE_BYTES);
        self.at = 0;
    }
}

/// Sorts records by time; records with the same time stay in the order of the store.
#[derive(Debug)]
pub(crate) struct Order {
    window: u64,
    greatest: u64,
    /// The runs. No run is empty, and no piece of one.
    runs: Vec<VecDeque<Piece>>,
    /// The time of each run's last record; descending.
    ends: Vec<u64>,
    /// Time and number of each run's first record, and the run's index.
    heads: BinaryHeap<Reverse<(u64, u64, usize)>>,
    spare: Vec<Piece>,
    /// Memory of the runs, in bytes.
    bytes: usize,
    /// The record that was returned last.
    kept: Kept,
    /// The greatest time returned so far.
    given: u64,
    /// Records that came after later ones had been returned.
    pub(crate) late: u64,
}

impl Order {
    /// For records at most `window` nanoseconds earlier than others before them.
    pub(crate) fn new(window: u64) -> Order {
        Order {
            window,
            greatest: 0,
            runs: Vec::new(),
            ends: Vec::new(),
            heads: BinaryHeap::new(),
            spare: Vec::new(),
            bytes: 0,
            kept: Kept::default(),
            given: 0,
            late: 0,
        }
    }

    /// Whether records come in order, so that none need be kept.
    pub(crate) fn is_idle(&self) -> bool {
        self.window == 0
    }

    /// Adds a record.
    pub(crate) fn push(&mut self, entry: &Entry<'_>) {
        let time = entry.record.time;
        self.greatest = self.greatest.max(time);
        // All runs before it end later, so the ends still descend.
        let place = self.ends.partition_point(|end| *end > time);
        if let Some(end) = self.ends.get_mut(place) {
            *end = time;
        } else {
            self.ends.push(time);
            self.runs.push(VecDeque::new());
            self.heads.push(Reverse((time, entry.number, place)));
            self.bytes += size_of::<VecDeque<Piece>>();
        }
        let run = &mut self.runs[place];
        if run.back().is_none_or(Piece::is_full) {
            let piece = self.spare.pop().unwrap_or_default();
            self.bytes += piece.memory();
            run.push_back(piece);
        }
        if let Some(piece) = run.back_mut() {
            let before = piece.memory();
            piece.push(entry);
            self.bytes += piece.memory() - before;
        }
    }

    /// The next record, if no later one can precede it; with `all`, in any case. It is valid until
    /// the next call.
    pub(crate) fn pop(&mut self, all: bool) -> Option<&Kept> {
        let mut head = self.heads.peek_mut()?;
        let Reverse((time, _, place)) = *head;
        let is_certain = self.greatest - time >= self.window;
        if !is_certain && !all && self.bytes < MAX_KEPT_BYTES {
            return None;
        }
        self.late += u64::from(time < self.given);
        self.given = self.given.max(time);
        let run = &mut self.runs[place];
        let piece = run.front_mut()?;
        piece.pop(&mut self.kept);
        if piece.slots.is_empty()
            && let Some(mut piece) = run.pop_front()
        {
            self.bytes -= piece.memory();
            if self.spare.len() < MAX_SPARE {
                piece.clear();
                self.spare.push(piece);
            }
        }
        match run.front().and_then(|piece| piece.slots.front()) {
            Some(next) => *head = Reverse((next.record.time, next.number, place)),
            None => {
                PeekMut::pop(head);
                // Its end was the least of all kept records, so it was the last run.
                self.runs.pop();
                self.ends.pop();
                self.bytes -= size_of::<VecDeque<Piece>>();
            }
        }
        Some(&self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times in the order returned, and how many were late.
    fn sorted(times: &[u64], window: u64) -> (Vec<u64>, u64) {
        let mut order = Order::new(window);
        let mut out = Vec::new();
        for (number, &time) in times.iter().enumerate() {
            let record = Record { time, data: vec![number as u8; 3], ..Record::default() };
            order.push(&Entry { number: number as u64, program: 0, record: &record });
            while let Some(kept) = order.pop(false) {
                assert_eq!(kept.record.data, [kept.number as u8; 3]);
                out.push(kept.record.time);
            }
        }
        while let Some(kept) = order.pop(true) {
            out.push(kept.record.time);
        }
        assert_eq!(order.bytes, 0);
        (out, order.late)
    }

    #[test]
    fn records_come_in_the_order_of_time() {
        assert_eq!(sorted(&[5, 9, 7, 8, 20, 15, 21], 5), (vec![5, 7, 8, 9, 15, 20, 21], 0));
        assert_eq!(sorted(&[], 5), (vec![], 0));
        assert_eq!(sorted(&[u64::MAX, 0], u64::MAX), (vec![0, u64::MAX], 0));
    }

    #[test]
    fn any_times_come_in_order_and_records_whole() {
        let mut state = 7_u64;
        for (kinds, window) in [(1, 50_000), (40, 50_000), (3000, 50_000), (u64::MAX, u64::MAX)] {
            let mut order = Order::new(window);
            let mut records = Vec::new();
            for number in 0..20_000_u64 {
                // Knuth's linear congruential generator; its upper half is used.
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let time = (number * u64::from(kinds < u64::MAX)).wrapping_add((state >> 32) % kinds);
                let name = ["", "a", "name"][(state >> 40) as usize % 3].to_owned();
                let data = vec![number as u8; (state >> 50) as usize % 20];
                records.push((number, Record { time, name, data, cpu: number as u32, ..Record::default() }));
            }
            let mut given = Vec::new();
            for (number, record) in &records {
                order.push(&Entry { number: *number, program: 3, record });
                while let Some(kept) = order.pop(false) {
                    given.push((kept.number, kept.record.clone()));
                }
            }
            while let Some(kept) = order.pop(true) {
                given.push((kept.number, kept.record.clone()));
            }
            records.sort_by_key(|(number, record)| (record.time, *number));
            assert_eq!((given == records, order.late, order.bytes), (true, 0, 0), "{kinds}");
        }
    }

    #[test]
    fn memory_has_its_limit() {
        let mut order = Order::new(u64::MAX);
        // First each record is a run of its own; then each has much data.
        for (count, data) in [(300_000, 1), (3000, 100_000)] {
            let (mut given, mut record) = (0, Record { data: vec![7; data], ..Record::default() });
            for number in 0..count {
                record.time = u64::MAX - number;
                order.push(&Entry { number, program: 0, record: &record });
                while order.pop(false).is_some() {
                    given += 1;
                }
                assert!(order.bytes < MAX_KEPT_BYTES + (1 << 18));
            }
            while order.pop(true).is_some() {
                given += 1;
            }
            assert_eq!((given, order.bytes, order.runs.len()), (count, 0, 0));
            assert!(order.spare.iter().map(Piece::memory).sum::<usize>() < 8 << 20);
        }
    }

    #[test]
    fn what_is_further_behind_than_was_said_is_given_and_counted() {
        assert_eq!(sorted(&[5, 100, 1, 101], 10), (vec![5, 1, 100, 101], 1));
    }
}
