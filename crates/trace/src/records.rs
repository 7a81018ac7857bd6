//! Several records at once: what they have in common is held once.
//!
//! The records of one thread at one site differ in time, processor, stack pointer and data. So a
//! group has *heads*, each with all that such records have in common, and a short entry for each
//! record:
//!
//! ```text
//! heads    | 0: probe 5, thread 4711, ... | 1: probe 6, thread 4711, ... |
//! entries  | head 0, time, esp, cpu, data | head 1, ... | head 0, ... | ...
//! ```
//!
//! Data begins at a multiple of 8 bytes, and is followed by undefined bytes up to the next.

use std::io;

use crate::Record;

/// The bytes of data from which on a group is full.
const FULL: usize = 1 << 15;

/// Records in their order.
#[derive(Debug, Default)]
pub struct Records {
    /// Each with whether its records have times.
    heads: Vec<(Record, bool)>,
    entries: Vec<Entry>,
    data: Vec<u8>,
    /// How much of `data` is used: a multiple of 8.
    used: usize,
    refused: Vec<u32>,
    error: Option<io::Error>,
}

/// What a record does not share with others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The index of its head.
    pub head: u32,
    /// The processor on which the probe fired.
    pub cpu: u32,
    /// The time of the hit, in nanoseconds since 1970, also if its head has no times.
    pub time: u64,
    /// The stack pointer.
    pub esp: u64,
    /// Where its data begins, and how many bytes it has.
    start: u32,
    length: u32,
}

impl Entry {
    /// Bytes of its data.
    #[inline]
    pub(crate) fn length(&self) -> usize {
        self.length as usize
    }
}

impl Records {
    /// The number of records.
    #[inline]
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no record.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether its records have so many bytes that they should be passed on.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.used >= FULL
    }

    /// Adds a head: a record whose time, processor, stack pointer and data do not matter. Unless
    /// `has_time`, the time of its records is shown as 0. Returns its index.
    pub fn add_head(&mut self, head: Record, has_time: bool) -> u32 {
        self.heads.push((head, has_time));
        (self.heads.len() - 1) as u32
    }

    /// The number of heads.
    pub fn head_count(&self) -> usize {
        self.heads.len()
    }

    /// Whether the records with this head have times.
    pub fn has_time(&self, head: u32) -> bool {
        self.heads.get(head as usize).is_some_and(|&(_, has_time)| has_time)
    }

    /// The records.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Adds a record with this head, which must be there. Returns the place for its data: `length`
    /// bytes, and more up to a multiple of 8.
    #[inline]
    pub fn push(&mut self, head: u32, (time, cpu, esp): (u64, u32, u64), length: usize) -> &mut [u8] {
        let start = self.used;
        let end = start + length.next_multiple_of(8);
        if end > self.data.len() {
            self.grow(end);
        }
        self.entries.push(Entry { head, cpu, time, esp, start: start as u32, length: length as u32 });
        self.used = end;
        &mut self.data[start..end]
    }

    #[cold]
    fn grow(&mut self, end: usize) {
        self.data.resize(end.max(2 * FULL), 0);
    }

    /// The bytes of all data, with padding.
    pub(crate) fn bytes(&self) -> usize {
        self.used
    }

    /// The data of a record, with its padding.
    #[inline]
    pub(crate) fn words(&self, entry: &Entry) -> &[[u8; 8]] {
        let start = entry.start as usize;
        let bytes = self.data.get(start..start + entry.length().next_multiple_of(8));
        bytes.unwrap_or_default().as_chunks().0
    }

    /// Calls a function with each record. Those for which it fails are refused.
    pub fn each(&mut self, mut with: impl FnMut(&Record) -> io::Result<()>) {
        for number in 0..self.entries.len() {
            let given = self.whole(number).map_or(Ok(()), &mut with);
            given.unwrap_or_else(|error| self.refuse(number, error));
        }
    }

    /// A record as a whole. Its head's memory is used for it.
    pub fn whole(&mut self, number: usize) -> Option<&Record> {
        let entry = self.entries.get(number)?;
        let (head, has_time) = self.heads.get_mut(entry.head as usize)?;
        let start = entry.start as usize;
        head.data.clear();
        head.data.extend_from_slice(self.data.get(start..start + entry.length as usize)?);
        (head.cpu, head.esp) = (entry.cpu, entry.esp);
        head.time = if *has_time { entry.time } else { 0 };
        Some(head)
    }

    /// Notes that a record was refused.
    #[cold]
    pub fn refuse(&mut self, number: usize, error: io::Error) {
        self.refused.push(number as u32);
        self.error.get_or_insert(error);
    }

    /// The records that were refused so far, and their heads.
    pub fn refused(&self) -> impl Iterator<Item = (&Entry, &Record)> {
        let entries = self.refused.iter().filter_map(|&number| self.entries.get(number as usize));
        entries.filter_map(|entry| Some((entry, &self.heads.get(entry.head as usize)?.0)))
    }

    /// Takes the error of the first record that was refused since the last call.
    pub fn take_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }

    /// Removes all records. The heads stay.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.refused.clear();
        (self.used, self.error) = (0, None);
        // One large record is no reason to keep so much.
        if self.data.len() > 4 * FULL {
            self.data = Vec::new();
        }
    }

    /// Removes all records and heads.
    pub fn clear_all(&mut self) {
        self.clear();
        self.heads.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_record_has_its_own_values_and_what_its_head_has() {
        let mut records = Records::default();
        let heads = [5, 6].map(|probe| records.add_head(Record { probe, ..Record::default() }, probe == 5));
        for number in 0..100_u64 {
            let length = number as usize % 13;
            let head = heads[number as usize % 2];
            let room = records.push(head, (number, 1, 2 * number), length);
            assert_eq!(room.len(), length.next_multiple_of(8));
            room.fill(number as u8);
        }
        let mut given = Vec::new();
        records.each(|record| {
            given.push(record.clone());
            if record.esp % 20 == 6 { Err(io::Error::other("no")) } else { Ok(()) }
        });
        assert_eq!(given.len(), 100);
        for (number, record) in given.iter().enumerate() {
            let expected = Record {
                probe: 5 + number as u32 % 2,
                time: if number % 2 == 0 { number as u64 } else { 0 },
                cpu: 1,
                esp: 2 * number as u64,
                data: vec![number as u8; number % 13],
                ..Record::default()
            };
            assert_eq!(*record, expected);
        }
        let refused: Vec<(u64, u32)> =
            records.refused().map(|(entry, head)| (entry.time, head.probe)).collect();
        assert_eq!(refused, (0..10).map(|ten| (10 * ten + 3, 6)).collect::<Vec<_>>());
        assert!(records.take_error().is_some() && records.take_error().is_none());
        records.clear();
        assert!(records.is_empty() && records.refused().next().is_none() && records.head_count() == 2);
        records.push(heads[1], (1, 2, 3), 8).fill(9);
        assert_eq!(records.whole(0).map(|record| (record.probe, record.data.len())), Some((6, 8)));
    }

    #[test]
    fn a_group_is_full_at_some_size() {
        let mut records = Records::default();
        let head = records.add_head(Record::default(), true);
        let mut count = 0;
        while !records.is_full() {
            records.push(head, (0, 0, 0), 1000);
            count += 1;
        }
        assert_eq!(count, FULL.div_ceil(1000));
        records.push(head, (0, 0, 0), 10 * FULL);
        assert_eq!(records.entries().len(), records.count());
        records.clear();
        assert!(!records.is_full() && records.data.is_empty());
    }
}
