//! Records on their way to the observer, which gets many at once.
//!
//! In: the heads of records, as they are in the rings. Out: [`Records`], and what is to be counted
//! for each of their heads.
//!
//! Most records are of a thread and a site of which there was a record just before; these are found
//! in a small table, and only their own values are copied.

use layout::PROCESSOR_MASK;
use rings::Head;
use trace::{Record, Records};

use super::super::clock::Clock;
use super::super::rings::Rings;

/// The most records that are passed on at once.
const MOST: u64 = 512;

/// The most heads: a process can claim any thread ids.
const MAX_HEADS: usize = 256;

/// The size of the table.
const RECENT: usize = 64;

/// The records to be passed on next.
#[derive(Debug)]
pub(in crate::jump) struct Group {
    pub(super) records: Records,
    /// The program of the records.
    pub(super) program: usize,
    /// What is to be counted for each head.
    pub(super) counted: Vec<Counted>,
    recent: Box<[Option<Known>; RECENT]>,
}

/// The probe of a head, and how many of its records the observer got and refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) program: usize,
    pub(super) probe: usize,
    pub(super) given: u64,
    pub(super) refused: u64,
}

/// A head, and the records that it is for: those of a handler at a site with neither codes nor
/// stack traces of their own, by a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::jump) struct Known {
    /// The index of the process's rings.
    source: usize,
    /// The number that stands for the handler at the site; and the thread, as the record says.
    number: u32,
    tid: u32,
    head: u32,
    pub(super) program: usize,
}

/// A record in the rings of one process.
#[derive(Clone, Copy)]
pub(in crate::jump) struct Place<'a> {
    /// The index of the process's rings.
    pub(in crate::jump) source: usize,
    pub(in crate::jump) rings: &'a Rings,
    pub(in crate::jump) head: &'a Head,
}

impl Group {
    pub(in crate::jump) fn new() -> Group {
        Group {
            records: Records::default(),
            program: 0,
            counted: Vec::new(),
            recent: Box::new([None; RECENT]),
        }
    }

    /// Forgets all heads: their threads may have other names by now, their programs may be gone.
    /// There must be no records.
    pub(in crate::jump) fn begin(&mut self) {
        self.records.clear_all();
        self.counted.clear();
        self.recent.fill(None);
    }

    #[inline]
    pub(in crate::jump) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Whether its records are to be passed on before any is added.
    #[inline]
    pub(in crate::jump) fn is_full(&self) -> bool {
        self.room() == 0 || self.records.is_full()
    }

    /// How many more records should be added at most.
    #[inline]
    fn room(&self) -> u64 {
        MOST.saturating_sub(self.records.count() as u64)
    }

    /// The head for a record of the program whose records are in the group.
    #[inline]
    pub(super) fn known(&self, source: usize, head: &Head) -> Option<Known> {
        self.recent[place(head)].filter(|known| known.is_of(source, head))
    }

    /// Whether there is room for a further head.
    pub(super) fn has_room_for_head(&self) -> bool {
        self.counted.len() < MAX_HEADS
    }

    /// Adds a head for a record and those like it: `common` is what they share.
    pub(super) fn add_head(
        &mut self,
        (source, head): (usize, &Head),
        (program, probe): (usize, usize),
        (common, has_time): (&Record, bool),
    ) -> Known {
        let shared = Record { name: common.name.clone(), data: Vec::new(), ..*common };
        let number = self.records.add_head(shared, has_time);
        self.counted.push(Counted { program, probe, given: 0, refused: 0 });
        let known = Known { source, number: head.number, tid: head.tid, head: number, program };
        self.recent[place(head)] = Some(known);
        known
    }

    /// Adds a record, whose log is copied from its ring.
    #[inline(always)]
    pub(super) fn push(
        &mut self,
        known: Known,
        rings: &Rings,
        (head, log): (&Head, usize),
        clock: &mut Clock,
    ) {
        let own = (clock.time(head.time), head.processor & PROCESSOR_MASK, head.rsp);
        // The record's log is followed by padding in the ring, too.
        rings.shared().copy(head.data(), self.records.push(known.head, own, log));
    }

    /// Counts the records that the observer has got, by head, and removes them. `refused` gets the
    /// time of each that it has refused.
    pub(super) fn count(&mut self, mut refused: impl FnMut(u64)) {
        for entry in self.records.entries() {
            if let Some(counted) = self.counted.get_mut(entry.head as usize) {
                counted.given += 1;
            }
        }
        for (entry, _) in self.records.refused() {
            refused(entry.time);
            if let Some(counted) = self.counted.get_mut(entry.head as usize) {
                counted.refused += 1;
            }
        }
        self.records.clear();
    }
}

impl Known {
    #[inline]
    fn is_of(&self, source: usize, head: &Head) -> bool {
        (self.source, self.number, self.tid) == (source, head.number, head.tid)
    }
}

/// The place in the table for records like this one.
#[inline]
fn place(head: &Head) -> usize {
    (head.number ^ head.tid << 2) as usize % RECENT
}
