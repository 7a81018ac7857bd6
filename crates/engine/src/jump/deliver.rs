//! Passes a record from a ring to the observer, with the data that its number stands for, and
//! counts it.

use std::io;
use std::time::Instant;

use layout::PROCESSOR_MASK;
use rings::Head;
use trace::{Items, Record};

use super::clock::Clock;
use super::numbers::Common;
use super::rings::Rings;
use super::thread_names::ThreadNames;
use crate::tracer::Tracer;

/// The segment selectors of 64-bit programs on Linux.
const CODE_SEGMENT: u32 = 0x33;
const STACK_SEGMENT: u32 = 0x2b;

impl Tracer<'_> {
    /// Passes on a record that differs from the one before only in time, processor, stack pointer
    /// and log, and notes that it is to be counted. Returns `false`, with nothing done, if it
    /// differs in more.
    #[inline]
    pub(super) fn deliver_similar(
        &mut self,
        last: &mut Last,
        rings: &Rings,
        head: &Head,
        clock: &mut Clock,
        record: &mut Record,
    ) -> bool {
        let is_like = last.is_plain && (last.number, last.tid) == (head.number, head.tid) && !head.dropped;
        let (true, None, 0, Some(log)) = (is_like, head.codes, head.traces, head.log) else { return false };
        fill_own(record, head, last.has_time, clock);
        match self.put_out(last.program, rings, head, log, record) {
            Ok(()) => last.taken += 1,
            Err(_) => {
                last.refused += 1;
                self.told.losses.note(clock.time(head.time));
            }
        }
        true
    }

    /// Passes the log of a record to the observer.
    #[inline]
    fn put_out(
        &mut self,
        program: usize,
        rings: &Rings,
        head: &Head,
        log: usize,
        record: &mut Record,
    ) -> io::Result<()> {
        record.data.resize(log, 0);
        rings.shared().copy(head.data(), &mut record.data);
        self.observer.record(program, record)
    }

    /// Counts the records passed by [`Tracer::deliver_similar`].
    pub(super) fn count_taken(&mut self, last: &mut Last) {
        let (taken, refused) = (std::mem::take(&mut last.taken), std::mem::take(&mut last.refused));
        if (taken, refused) == (0, 0) {
            return;
        }
        let program = self.programs.get_mut(last.program);
        if let Some(probe) = program.and_then(|program| program.probes.get_mut(last.probe)) {
            probe.counts.logged += taken;
            probe.counts.dropped += refused;
        }
    }

    /// Passes a record on, and counts it.
    pub(super) fn deliver(
        &mut self,
        rings: &Rings,
        head: &Head,
        clock: &mut Clock,
        record: &mut Record,
        names: &mut Names<'_>,
    ) -> Last {
        let nothing = Last::default();
        let Some(common) = self.sharing.numbers.get(head.number) else { return nothing };
        let common = *common;
        // A removed program has no probes any more.
        let Some(program) = self.programs.get_mut(common.program) else { return nothing };
        let items = program.options.items;
        let Some(probe) = program.probes.get_mut(common.probe) else { return nothing };
        let counts = &mut probe.counts;
        if head.dropped {
            if head.log.is_some() {
                counts.dropped += 1;
                self.told.losses.note(clock.time(head.time));
            }
            return nothing;
        }
        let has_time = items.contains(Items::TSC);
        fill(record, head, &common, items, names);
        record.eip = rings.site(common.address, common.arming);
        fill_own(record, head, has_time, clock);
        let mut last = Last {
            is_plain: head.codes.is_none() && head.traces == 0,
            number: head.number,
            tid: head.tid,
            program: common.program,
            probe: common.probe,
            has_time,
            ..nothing
        };
        if let Some(log) = head.log {
            match self.put_out(common.program, rings, head, log, record) {
                Ok(()) => last.taken = 1,
                Err(_) => {
                    last.refused = 1;
                    self.told.losses.note(clock.time(head.time));
                }
            }
        }
        if head.traces > 0 {
            (record.major, record.minor) = (0, 0);
            record.data.resize(head.traces, 0);
            rings.shared().copy(head.trace_data(), &mut record.data);
            // Stack traces are not counted.
            let _ = self.observer.record(common.program, record);
        }
        last
    }
}

/// The source of names for the threads of a ring.
pub(super) struct Names<'a> {
    pub(super) who: &'a mut ThreadNames,
    /// The thread whose user and name are in the record.
    pub(super) named: &'a mut Option<u32>,
    pub(super) gone: bool,
    pub(super) now: Instant,
}

/// What the last record has in common with those that follow it: most are of the same thread at the
/// same site.
#[derive(Debug, Default)]
pub(super) struct Last {
    /// Whether the record has neither codes nor stack traces of its own.
    is_plain: bool,
    /// The number that stands for its handler at its site.
    number: u32,
    /// Its thread, as the record says.
    tid: u32,
    program: usize,
    probe: usize,
    /// Whether the program shows times.
    has_time: bool,
    /// Of it and those like it: how many the observer took and are still to be counted, and how
    /// many it refused.
    taken: u64,
    refused: u64,
}

/// Fills in the fields that differ in each record.
#[inline]
fn fill_own(record: &mut Record, head: &Head, has_time: bool, clock: &mut Clock) {
    record.cpu = head.processor & PROCESSOR_MASK;
    record.esp = head.rsp;
    if has_time {
        record.time = clock.time(head.time);
    }
}

/// Fills in the fields that the records of a thread at a site have in common, with the items that
/// the program shows.
fn fill(record: &mut Record, head: &Head, common: &Common, items: Items, names: &mut Names<'_>) {
    (record.major, record.minor) = head.codes.unwrap_or(common.codes);
    record.probe = common.probe as u32;
    (record.pid, record.tid) = names.who.ids(head.tid);
    record.cs = CODE_SEGMENT;
    record.ss = STACK_SEGMENT;
    record.word = size_of::<u64>();
    if (items.contains(Items::UID) || items.contains(Items::PROCNAME)) && *names.named != Some(record.tid) {
        let (uid, name) = names.who.look(record.tid, names.now, names.gone);
        record.uid = uid;
        name.clone_into(&mut record.name);
        *names.named = Some(record.tid);
    }
}
