//! What the engine knows of each thread it follows.

use process::{Registers, Running};
use trace::Record;

use crate::jump::{Parked, Wait};
use crate::site::Use;

/// A followed thread.
#[derive(Debug)]
pub(crate) struct Tracked {
    pub(crate) identity: Identity,
    /// The address space it runs in, or `None` where that cannot be probed.
    pub(crate) space: Option<u32>,
    pub(crate) activity: Activity,
    /// The instruction it executes in a slot, as far as is known.
    pub(crate) in_slot: Option<InSlot>,
    /// Whether it has been asked to stop, and has not yet.
    pub(crate) asked: bool,
    /// What it waits for, if it has been asked for that.
    pub(crate) waits: Option<Wait>,
    /// Whether it was put back to the `int3` that it has come from, which is still to be answered.
    pub(crate) before_trap: bool,
    /// Whether it is on its way to its end, and will stop no more.
    pub(crate) exiting: bool,
    /// The last trap that it has met.
    pub(crate) last_trap: u64,
    /// Whether it was told its numbers, for its handlers.
    pub(crate) has_ids: bool,
    /// In how many more of its system calls, entered or left, it is looked at.
    pub(crate) calls: u32,
}

/// Whether a followed thread runs.
#[derive(Debug)]
pub(crate) enum Activity {
    /// It runs (or has stopped without the engine knowing yet).
    Running(Running),
    /// It is being handled just now.
    Handled,
    /// It waits for room in a ring, or for a context, and is kept stopped.
    Parked(Parked),
}

/// Who a thread is.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) tid: i32,
    pub(crate) pid: i32,
    /// Where its rseq area is, once known; `Some(None)`: it has none.
    pub(crate) rseq: Option<Option<u64>>,
}

/// A displaced instruction that was sent to its slot, and what waits for its completion.
#[derive(Debug)]
pub(crate) struct InSlot {
    /// The site's address.
    pub(crate) site: u64,
    /// The registers with which it was sent there, the instruction pointer being the site's.
    pub(crate) registers: Registers,
    /// What its handlers logged.
    pub(crate) records: Vec<Pending>,
}

/// A record that waits for its instruction to complete.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) wanted: Use,
    /// Whether it is what the handler logged; else it is the handler's stack traces, which no counter counts.
    pub(crate) counted: bool,
    pub(crate) logonfault: bool,
    pub(crate) record: Record,
}

impl Tracked {
    pub(crate) fn new(tid: i32, pid: i32, space: Option<u32>, activity: Activity) -> Tracked {
        Tracked {
            identity: Identity { tid, pid, rseq: None },
            space,
            activity,
            in_slot: None,
            asked: false,
            waits: None,
            before_trap: false,
            exiting: false,
            last_trap: 0,
            has_ids: false,
            calls: 0,
        }
    }

    /// What it is kept stopped for, if it is parked.
    pub(crate) fn parked(&self) -> Option<&Parked> {
        match &self.activity {
            Activity::Parked(parked) => Some(parked),
            _ => None,
        }
    }

    /// Whether a record waits for the instruction that it executes in a slot.
    pub(crate) fn has_records(&self) -> bool {
        self.in_slot.as_ref().is_some_and(|slot| !slot.records.is_empty())
    }
}

impl Identity {
    /// The processor the thread ran on last: from its rseq area, which the kernel keeps up to date, or else from
    /// /proc.
    pub(crate) fn processor(&mut self) -> u32 {
        /// Where `cpu_id` stands in `struct rseq`.
        const CPU_ID: u64 = 4;
        if let Some(Some(area)) = self.rseq {
            let mut bytes = [0; 4];
            if process::read(self.tid, area + CPU_ID, &mut bytes).is_ok() {
                let processor = u32::from_le_bytes(bytes);
                // Negative: the thread has not registered the area yet.
                if processor < 1 << 16 {
                    return processor;
                }
            }
        }
        process::processor(self.tid).unwrap_or(0)
    }
}
