//! Passes records to the observer and counts what was lost before them.
//!
//! In: the head of a record, in its ring. Out: a `Record`, alone or in a group, given to the
//! observer and counted.

use std::io;

use trace::{Items, Record};

use super::super::clock::Clock;
use super::super::rings::Rings;
use super::group::{Group, Place};
use super::{Names, fill, fill_own};
use crate::jump::Drainer;

impl Drainer<'_, '_> {
    /// Adds to the group a record that differs from one before only in time, processor, stack
    /// pointer and log. Returns `false`, with nothing done, if it differs in more.
    #[inline]
    pub(in crate::jump) fn deliver_similar(
        &mut self,
        Place { source, rings, head }: Place<'_>,
        clock: &mut Clock,
        group: &mut Group,
    ) -> bool {
        let (false, None, 0, Some(log)) = (head.dropped, head.codes, head.traces, head.log) else {
            return false;
        };
        let Some(known) = group.known(source, head) else { return false };
        if known.program != group.program {
            self.hand_out(group);
            group.program = known.program;
        }
        group.push(known, rings, (head, log), clock);
        true
    }

    /// Passes the records of a group to the observer, and counts them.
    pub(in crate::jump) fn hand_out(&mut self, group: &mut Group) {
        if group.is_empty() {
            return;
        }
        self.messages.observer.records(group.program, &mut group.records);
        group.count(|time| self.messages.told.losses.note(time));
        for counted in group.counted.iter_mut().filter(|counted| counted.given > 0) {
            let (given, refused) = (std::mem::take(&mut counted.given), std::mem::take(&mut counted.refused));
            let program = self.programs.get_mut(counted.program);
            if let Some(probe) = program.and_then(|program| program.probes.get_mut(counted.probe)) {
                probe.counts.logged += given.saturating_sub(refused);
                probe.counts.dropped += refused;
            }
        }
    }

    /// Passes a record on, and counts it.
    pub(in crate::jump) fn deliver(
        &mut self,
        place: Place<'_>,
        clock: &mut Clock,
        group: &mut Group,
        record: &mut Record,
        names: &mut Names<'_>,
    ) {
        let Place { source, rings, head } = place;
        let Some(common) = self.sharing.numbers.get(head.number) else { return };
        let common = *common;
        // A removed program has no probes any more.
        let Some(program) = self.programs.get_mut(common.program) else { return };
        let items = program.options.items;
        let Some(probe) = program.probes.get_mut(common.probe) else { return };
        if head.dropped {
            if head.log.is_some() {
                probe.counts.dropped += 1;
                self.messages.told.losses.note(clock.time(head.time));
            }
            return;
        }
        let has_time = items.contains(Items::TSC);
        fill(record, head, &common, items, names);
        record.eip = rings.site(common.address, common.arming);
        if let (None, 0, Some(log)) = (head.codes, head.traces, head.log) {
            if group.program != common.program || !group.has_room_for_head() {
                self.hand_out(group);
                group.program = common.program;
            }
            if !group.has_room_for_head() {
                group.begin();
            }
            let known = group.add_head((source, head), (common.program, common.probe), (record, has_time));
            group.push(known, rings, (head, log), clock);
            return;
        }
        self.hand_out(group);
        fill_own(record, head, has_time, clock);
        if let Some(log) = head.log {
            let put = self.put_out(common.program, (rings, head.data(), log), record);
            if put.is_err() {
                self.messages.told.losses.note(clock.time(head.time));
            }
            let program = self.programs.get_mut(common.program);
            if let Some(probe) = program.and_then(|program| program.probes.get_mut(common.probe)) {
                match put {
                    Ok(()) => probe.counts.logged += 1,
                    Err(_) => probe.counts.dropped += 1,
                }
            }
        }
        if head.traces > 0 {
            (record.major, record.minor) = (0, 0);
            // Stack traces are not counted.
            let _ = self.put_out(common.program, (rings, head.trace_data(), head.traces), record);
        }
    }

    /// Passes a record to the observer with data from a ring.
    fn put_out(
        &mut self,
        program: usize,
        (rings, offset, length): (&Rings, usize, usize),
        record: &mut Record,
    ) -> io::Result<()> {
        record.data.resize(length, 0);
        rings.shared().copy(offset, &mut record.data);
        self.messages.observer.record(program, record)
    }
}
