//! What becomes of the records of a hit: committed, dropped, or followed by a fault.
//!
//! In: the records of a hit (`Pending`), and what became of its instruction. Out: records given to
//! the observer and counted, or counted as dropped.

use crate::messages::Messages;
use crate::programs::Programs;
use crate::site_use::Use;
use crate::tracked::Pending;

impl Messages<'_> {
    /// Passes on records whose instruction has completed.
    pub(crate) fn commit(&mut self, programs: &mut Programs, records: Vec<Pending>) {
        for pending in records {
            // A forgotten program has no targets any more.
            if let Use::Probe { program, probe } = pending.wanted {
                let written = self.observer.record(program, &pending.record);
                let Some(program) = programs.get_mut(program) else { continue };
                let counts = &mut program.probes[probe].counts;
                match written {
                    _ if !pending.counted => {}
                    Ok(()) => counts.logged += 1,
                    Err(_) => {
                        counts.dropped += 1;
                        self.told.losses.note(pending.record.time);
                    }
                }
            }
        }
    }

    /// Counts records as dropped whose instruction has not completed.
    pub(crate) fn drop_records(&mut self, programs: &mut Programs, records: Vec<Pending>) {
        for pending in records {
            if let Use::Probe { program, probe } = pending.wanted
                && pending.counted
                && let Some(program) = programs.get_mut(program)
            {
                program.probes[probe].counts.dropped += 1;
                self.told.losses.note(pending.record.time);
            }
        }
    }

    /// Passes on or drops records whose instruction has faulted, as each probe demands.
    pub(crate) fn fault(&mut self, programs: &mut Programs, records: Vec<Pending>) {
        let (kept, dropped) = records.into_iter().partition(|pending| pending.logonfault);
        self.commit(programs, kept);
        self.drop_records(programs, dropped);
    }
}
