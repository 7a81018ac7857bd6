//! The index of a store: the positions of its blocks. It is written at a clean end, so that a
//! reader need not scan the file.
//!
//! ```text
//! index   whole                     number: 1 if all blocks of facts are listed
//!         facts                     number: how many; for each, the offset as a number, less that of the one before
//!         runs                      number: how many; for each: offset, less that of the one before; records; least time;
//!                                   greatest time, less the least
//! end     offset 8                  of the index's block, little-endian
//! ```
//!
//! A run is a number of successive blocks of records; its offset is that of the first. When there
//! are too many runs, each two are joined, so an index is small however long the trace is.

use super::bytes::{Cursor, DecodeError, push_number};

/// The most blocks of facts that are listed. A reader scans for the others.
const MAX_FACTS: usize = 16_384;
/// The most runs that are listed.
const MAX_RUNS: usize = 8192;

/// Successive blocks of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) offset: u64,
    pub(super) records: u64,
    pub(super) least: u64,
    pub(super) greatest: u64,
}

/// The positions of the blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Index {
    /// Whether all blocks of facts are listed.
    pub(super) whole: bool,
    pub(super) facts: Vec<u64>,
    pub(super) runs: Vec<Run>,
    /// The number of blocks of each run.
    stride: usize,
    /// The number of blocks of the last run.
    last: usize,
}

impl Index {
    pub(super) fn new() -> Index {
        Index { whole: true, facts: Vec::new(), runs: Vec::new(), stride: 1, last: 0 }
    }

    /// Adds a block of facts.
    pub(super) fn facts(&mut self, offset: u64) {
        if self.facts.len() < MAX_FACTS {
            self.facts.push(offset);
        } else {
            self.whole = false;
        }
    }

    /// Adds a block of records.
    pub(super) fn records(&mut self, block: Run) {
        match self.runs.last_mut().filter(|_| self.last < self.stride) {
            Some(run) => {
                join(run, &block);
                self.last += 1;
            }
            None => {
                if self.runs.len() >= MAX_RUNS {
                    self.halve();
                }
                self.runs.push(block);
                self.last = 1;
            }
        }
    }

    /// Joins each two runs.
    fn halve(&mut self) {
        let joined = self.runs.chunks(2).map(|runs| {
            let mut run = runs[0];
            runs[1..].iter().for_each(|other| join(&mut run, other));
            run
        });
        self.runs = joined.collect();
        self.stride *= 2;
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        push_number(&mut out, self.whole.into());
        push_number(&mut out, self.facts.len() as u64);
        let mut before = 0;
        for &offset in &self.facts {
            push_number(&mut out, offset - before);
            before = offset;
        }
        push_number(&mut out, self.runs.len() as u64);
        before = 0;
        for run in &self.runs {
            push_number(&mut out, run.offset - before);
            push_number(&mut out, run.records);
            push_number(&mut out, run.least);
            push_number(&mut out, run.greatest - run.least);
            before = run.offset;
        }
        out
    }

    pub(super) fn decode(payload: &[u8]) -> Result<Index, DecodeError> {
        let mut cursor = Cursor::new(payload, 0);
        let mut index = Index::new();
        index.whole = cursor.number("an index")? == 1;
        let mut offset = 0_u64;
        for _ in 0..cursor.number("the count of blocks of facts")? {
            offset = offset.saturating_add(cursor.number("the offset of a block of facts")?);
            index.facts.push(offset);
        }
        offset = 0;
        for _ in 0..cursor.number("the count of runs")? {
            offset = offset.saturating_add(cursor.number("the offset of a run")?);
            let records = cursor.number("the records of a run")?;
            let least = cursor.number("the least time of a run")?;
            let greatest = least.saturating_add(cursor.number("the times of a run")?);
            index.runs.push(Run { offset, records, least, greatest });
        }
        Ok(index)
    }

    /// Whether all offsets are less than `end`.
    pub(super) fn is_within(&self, end: u64) -> bool {
        let mut offsets = self.facts.iter().chain(self.runs.iter().map(|run| &run.offset));
        offsets.all(|&offset| offset < end)
    }

    /// The offset of the first run that may have a record at or after a time.
    pub(super) fn find(&self, from: u64) -> Option<u64> {
        self.runs.iter().find(|run| run.greatest >= from).map(|run| run.offset)
    }
}

fn join(run: &mut Run, other: &Run) {
    run.records += other.records;
    run.least = run.least.min(other.least);
    run.greatest = run.greatest.max(other.greatest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_stays_small_and_says_where_a_time_may_be() {
        let mut index = Index::new();
        for block in 0..100_000 {
            index.records(Run {
                offset: block * 100,
                records: 10,
                least: block * 7,
                greatest: block * 7 + 9,
            });
            index.facts(block * 100 + 50);
        }
        assert!(index.runs.len() <= MAX_RUNS && !index.whole);
        let payload = index.encode();
        assert!(payload.len() < super::super::block::MAX_PAYLOAD);
        let read = Index::decode(&payload).expect("it was written so");
        assert_eq!((&read.runs, &read.facts, read.whole), (&index.runs, &index.facts, false));
        assert_eq!(read.runs.iter().map(|run| run.records).sum::<u64>(), 1_000_000);
        for time in [0, 5, 350_000, 699_999] {
            let offset = read.find(time).expect("there is one");
            assert!(offset <= time / 7 * 100, "{time}: {offset}");
        }
        assert_eq!(read.find(700_100), None);
    }

    #[test]
    fn an_index_that_is_cut_off_is_refused() {
        let mut index = Index::new();
        index.facts(0);
        index.records(Run { offset: 300, records: 10, least: 1_000_000, greatest: 2_000_000 });
        let payload = index.encode();
        for length in 0..payload.len() {
            assert!(Index::decode(&payload[..length]).is_err(), "{length}");
        }
    }
}
