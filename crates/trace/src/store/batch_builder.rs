//! Collects facts and records until they fill a block.

use std::io;
use std::time::{Duration, Instant};

use super::block::{FULL, HEADER, MAX_PAYLOAD};
use super::encode::Encoder;
use super::facts::{Fact, Thread};
use super::threads::Threads;
use crate::{Record, Records};

/// How long records wait for their block to fill.
pub const BLOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// The greatest size of a record's data, in bytes.
pub const MAX_DATA: usize = MAX_PAYLOAD / 2;

/// The greatest size of a name in a record, in bytes. The kernel's names have at most 15.
pub const MAX_NAME: usize = 1 << 10;

/// Facts and records that are written together, as up to one block each.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The encoded facts, after room for the block header; empty if there are none.
    pub(super) facts: Vec<u8>,
    /// The encoded records.
    pub(super) records: Vec<u8>,
    /// The number of records.
    pub(super) count: u32,
    /// The least and the greatest time of a record.
    pub(super) least: u64,
    pub(super) greatest: u64,
    /// The greatest step back in time so far, in nanoseconds.
    pub(super) disorder: u64,
}

impl crate::queue::Block for Batch {
    fn records(&self) -> u64 {
        self.count.into()
    }

    fn bytes(&self) -> usize {
        self.facts.len() + self.records.len()
    }

    fn clear(&mut self) {
        self.facts.clear();
        self.records.clear();
        self.count = 0;
    }
}

/// Keeps facts and records until their block is full or [`BLOCK_TIMEOUT`] is over.
#[derive(Debug)]
pub(crate) struct BatchBuilder {
    encoder: Encoder,
    /// The encoded facts, after room for the block header.
    facts: Vec<u8>,
    /// Scratch memory for encoding a fact.
    body: Vec<u8>,
    /// When the oldest kept fact or record came.
    since: Option<Instant>,
    /// The greatest time of a record so far, and the greatest step back from it.
    greatest: u64,
    disorder: u64,
    threads: Threads,
}

impl BatchBuilder {
    pub(crate) fn new() -> BatchBuilder {
        BatchBuilder {
            encoder: Encoder::new(),
            facts: vec![0; HEADER],
            body: Vec::new(),
            since: None,
            greatest: 0,
            disorder: 0,
            threads: Threads::default(),
        }
    }

    /// Takes a fact. Returns whether a block is full.
    ///
    /// # Errors
    /// It is too large for a block.
    pub(crate) fn fact(&mut self, fact: &Fact) -> io::Result<bool> {
        self.keep(fact)?;
        Ok(self.facts.len() >= FULL)
    }

    fn keep(&mut self, fact: &Fact) -> io::Result<()> {
        let before = self.facts.len();
        fact.encode(&mut self.facts, &mut self.body);
        if self.facts.len() - before > MAX_PAYLOAD - FULL {
            self.facts.truncate(before);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the fact is too large for a store"));
        }
        self.since.get_or_insert_with(Instant::now);
        Ok(())
    }

    /// Takes a record of a program, given by number. Returns whether a block is full or due.
    ///
    /// # Errors
    /// It has more than [`MAX_DATA`] bytes, or a name of more than [`MAX_NAME`].
    #[inline]
    pub(crate) fn record(&mut self, program: u32, record: &Record) -> io::Result<bool> {
        if record.data.len() > MAX_DATA || record.name.len() > MAX_NAME {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the record is too large for a store"));
        }
        if self.encoder.count == 0 {
            self.since.get_or_insert_with(Instant::now);
        }
        if let Some(thread) = self.encoder.push(program, record)
            && self.threads.is_new(thread)
        {
            let (pid, tid, uid, name) = (thread.pid, thread.tid, thread.uid, thread.name.clone());
            self.keep(&Thread { time: record.time, pid, tid, uid, name }.into())?;
        }
        self.disorder = self.disorder.max(self.greatest.saturating_sub(record.time));
        self.greatest = self.greatest.max(record.time);
        let waited = self.encoder.greatest - self.encoder.least;
        Ok(is_full(self.encoder.bytes.len(), waited) || self.facts.len() >= FULL)
    }

    /// Takes records of a program, given by number. `hand_over` is called when a block is full or
    /// due, and takes it. Refused are the records for which [`BatchBuilder::record`] or `hand_over`
    /// fails.
    pub(crate) fn records(
        &mut self,
        program: u32,
        records: &mut Records,
        mut hand_over: impl FnMut(&mut BatchBuilder) -> io::Result<()>,
    ) {
        self.encoder.begin_group(records.head_count());
        let mut number = 0;
        while number < records.count() {
            let (known, is_full) = self.known_records(records, number);
            number += known;
            let given = match known {
                0 => {
                    number += 1;
                    self.whole_record(program, records, number - 1)
                }
                _ => Ok(is_full),
            };
            let given = given.and_then(|is_full| if is_full { hand_over(self) } else { Ok(()) });
            if let Err(error) = given {
                records.refuse(number - 1, error);
            }
        }
    }

    /// Takes one of these records as [`BatchBuilder::record`] does. Its head is known from then on.
    fn whole_record(&mut self, program: u32, records: &mut Records, number: usize) -> io::Result<bool> {
        let head = records.entries().get(number).map_or(0, |entry| entry.head);
        let has_time = records.has_time(head);
        let Some(record) = records.whole(number) else { return Err(io::ErrorKind::InvalidInput.into()) };
        let is_full = self.record(program, record)?;
        if has_time {
            self.encoder.know_head(head, record);
        }
        Ok(is_full)
    }

    /// Takes records whose heads are known in the block, from number `from` on. Returns how many,
    /// and whether the block is full or due after the last of them.
    fn known_records(&mut self, records: &Records, from: usize) -> (usize, bool) {
        let (mut greatest, mut disorder, mut full) = (self.greatest, self.disorder, false);
        let taken = self.encoder.push_known(records, from, |time, size, waited| {
            disorder = disorder.max(greatest.saturating_sub(time));
            greatest = greatest.max(time);
            full = is_full(size, waited);
            !full
        });
        (self.greatest, self.disorder) = (greatest, disorder);
        (taken, full)
    }

    /// Whether anything is kept.
    pub(crate) fn waits(&self) -> bool {
        self.since.is_some()
    }

    /// Whether anything has been kept for [`BLOCK_TIMEOUT`].
    pub(crate) fn is_due(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= BLOCK_TIMEOUT)
    }

    /// Moves all that is kept into an empty batch, and takes over the batch's memory.
    pub(crate) fn take(&mut self, batch: &mut Batch) {
        self.since = None;
        if self.facts.len() > HEADER {
            std::mem::swap(&mut self.facts, &mut batch.facts);
            self.facts.clear();
            self.facts.resize(HEADER, 0);
        }
        let Encoder { bytes, count, least, greatest, .. } = &mut self.encoder;
        std::mem::swap(bytes, &mut batch.records);
        (batch.count, batch.least, batch.greatest, batch.disorder) =
            (*count, *least, *greatest, self.disorder);
        self.encoder.clear();
    }
}

/// Whether a block of records of this size, and with records of so many nanoseconds, is full or
/// due.
#[inline]
fn is_full(size: usize, waited: u64) -> bool {
    size >= FULL || waited >= BLOCK_TIMEOUT.as_nanos() as u64
}
