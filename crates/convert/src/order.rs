//! Records in the order of time.
//!
//! A store has its records as they were handed out, and says how far one may be behind another that stands before it. Those that come in
//! that time are kept, in a heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use trace::Record;
use trace::store::Entry;

/// Bytes of records that are kept, about and at most.
const MOST: usize = 48 << 20;

/// A record that is kept.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) number: u64,
    pub(crate) program: u32,
    pub(crate) record: Record,
}

/// Puts records in the order of time; among those of the same time, that of the store.
#[derive(Debug)]
pub(crate) struct Order {
    window: u64,
    greatest: u64,
    /// Time, number, and place in `kept`.
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    kept: Vec<Kept>,
    free: Vec<usize>,
    bytes: usize,
    /// The time of the last one that was given.
    given: u64,
    /// Records that came after later ones were given.
    pub(crate) late: u64,
}

impl Order {
    /// For records that are no more than so many nanoseconds behind others that come before them.
    pub(crate) fn new(window: u64) -> Order {
        Order {
            window,
            greatest: 0,
            heap: BinaryHeap::new(),
            kept: Vec::new(),
            free: Vec::new(),
            bytes: 0,
            given: 0,
            late: 0,
        }
    }

    /// Whether records come in order, so that none need be kept.
    pub(crate) fn is_idle(&self) -> bool {
        self.window == 0
    }

    /// Takes a record.
    pub(crate) fn push(&mut self, entry: &Entry<'_>) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.kept.push(Kept::default());
            self.kept.len() - 1
        });
        let kept = &mut self.kept[slot];
        (kept.number, kept.program) = (entry.number, entry.program);
        copy(entry.record, &mut kept.record);
        self.bytes += size(&kept.record);
        self.greatest = self.greatest.max(entry.record.time);
        self.heap.push(Reverse((entry.record.time, entry.number, slot)));
    }

    /// The next record, if none that comes can be before it; with `all`, in any case. It stays until the next one is taken.
    pub(crate) fn pop(&mut self, all: bool) -> Option<&Kept> {
        let &Reverse((time, _, _)) = self.heap.peek()?;
        let is_certain = self.greatest - time >= self.window;
        if !is_certain && !all && self.bytes < MOST {
            return None;
        }
        let Reverse((time, _, slot)) = self.heap.pop()?;
        self.late += u64::from(time < self.given);
        self.given = self.given.max(time);
        self.free.push(slot);
        let kept = &mut self.kept[slot];
        self.bytes -= size(&kept.record);
        Some(kept)
    }
}

/// About how much memory a record takes.
fn size(record: &Record) -> usize {
    size_of::<Kept>() + 64 + record.data.len() + record.name.len()
}

/// Copies a record into the memory of another.
fn copy(from: &Record, to: &mut Record) {
    let (mut name, mut data) = (std::mem::take(&mut to.name), std::mem::take(&mut to.data));
    name.clone_from(&from.name);
    data.clear();
    // Memory that one long record has had is not kept for many short ones.
    if data.capacity() > 4096 {
        data.shrink_to(from.data.len());
    }
    data.extend_from_slice(&from.data);
    *to = Record { name, data, ..*from };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times as they come out, and how many were late.
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
    fn what_is_further_behind_than_was_said_is_given_and_counted() {
        assert_eq!(sorted(&[5, 100, 1, 101], 10), (vec![5, 1, 100, 101], 1));
    }
}
