//! Passes records to the observer and counts what was lost before them.
//!
//! In: the head of a record, in its ring. Out: a `Record`, given to the observer and counted.

use std::io;

use rings::Head;
use trace::{Items, Record};

use super::super::clock::Clock;
use super::super::rings::Rings;
use super::{Last, Names, fill, fill_own};
use crate::jump::Drainer;

impl Drainer<'_, '_> {
    /// Passes on a record that differs from the one before only in time, processor, stack pointer
    /// and log, and notes that it is to be counted. Returns `false`, with nothing done, if it
    /// differs in more.
    #[inline]
    pub(in crate::jump) fn deliver_similar(
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
                self.messages.told.losses.note(clock.time(head.time));
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
        self.messages.observer.record(program, record)
    }

    /// Counts the records passed by [`Drainer::deliver_similar`].
    pub(in crate::jump) fn count_taken(&mut self, last: &mut Last) {
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
    pub(in crate::jump) fn deliver(
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
                self.messages.told.losses.note(clock.time(head.time));
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
                    self.messages.told.losses.note(clock.time(head.time));
                }
            }
        }
        if head.traces > 0 {
            (record.major, record.minor) = (0, 0);
            record.data.resize(head.traces, 0);
            rings.shared().copy(head.trace_data(), &mut record.data);
            // Stack traces are not counted.
            let _ = self.messages.observer.record(common.program, record);
        }
        last
    }
}
