//! The state of each followed thread.

use process::{Registers, Running};
use trace::Record;

use crate::jump::{Parked, Wait};
use crate::site_use::Use;

/// A followed thread.
#[derive(Debug)]
pub(crate) struct Tracked {
    pub(crate) identity: Identity,
    /// Its address space, or `None` if that cannot be probed.
    pub(crate) space: Option<u32>,
    pub(crate) activity: Activity,
    /// The displaced instruction that it executes in a slot, as far as is known.
    pub(crate) in_slot: Option<InSlot>,
    /// Whether it has been asked to stop and has not stopped yet.
    pub(crate) asked: bool,
    /// What it waits for (room in a ring, or a context), if it was asked to stop because of that.
    pub(crate) waits: Option<Wait>,
    /// Whether it was moved back to the `int3` that stopped it, which is still to be handled.
    pub(crate) before_trap: bool,
    /// Whether it is ending and will not stop again.
    pub(crate) exiting: bool,
    /// The address of the last trap it has hit.
    pub(crate) last_trap: u64,
    /// Whether it was told its thread and process ids, for its handlers.
    pub(crate) has_ids: bool,
    /// Whether its name is in the maps of scripts.
    pub(crate) named: bool,
    /// At how many more entries and exits of system calls it is stopped.
    pub(crate) calls: u32,
}

/// Whether a followed thread runs.
#[derive(Debug)]
pub(crate) enum Activity {
    /// It runs (or has stopped without the engine knowing yet).
    Running(Running),
    /// It is stopped and being handled.
    Handled,
    /// It is kept stopped until there is room in a ring, or a free context.
    Parked(Parked),
}

/// The ids of a thread.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) tid: i32,
    pub(crate) pid: i32,
    /// The address of its rseq area, once known; `Some(None)` if it has none.
    pub(crate) rseq: Option<Option<u64>>,
}

/// A displaced instruction that a thread executes in a slot, and the records that wait for its
/// completion.
#[derive(Debug)]
pub(crate) struct InSlot {
    /// The site's address.
    pub(crate) site: u64,
    /// The registers with which the thread was sent to the slot, except that the instruction
    /// pointer is the site's.
    pub(crate) registers: Registers,
    /// What its handlers logged.
    pub(crate) records: Vec<Pending>,
}

/// A record that waits for its instruction to complete.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) wanted: Use,
    /// Whether it is the handler's log. If not, it holds the handler's stack traces, which are not
    /// counted.
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
            named: false,
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

    /// Whether records wait for the instruction that it executes in a slot.
    pub(crate) fn has_records(&self) -> bool {
        self.in_slot.as_ref().is_some_and(|slot| !slot.records.is_empty())
    }
}

impl Identity {
    /// The processor the thread ran on last: from its rseq area, which the kernel keeps up to date,
    /// else from /proc.
    pub(crate) fn processor(&mut self) -> u32 {
        /// The offset of `cpu_id` in `struct rseq`.
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
