//! Attaching to events that a processor or the kernel counts: samples in time, page faults, cycles.

use crate::link::{AttachError, Link, Scope, attach_event};
use crate::program::Program;
use crate::sys::{PerfEventAttr, event_flag};

/// Who counts an event. The numbers are those of `perf_event_attr.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum EventKind {
    /// The processor.
    Hardware = 0,
    /// The kernel.
    Software = 1,
}

/// How often a program is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Every {
    /// Once in so many events; for a clock, nanoseconds.
    Count(u64),
    /// So many times in a second. The kernel adapts the period.
    Hertz(u64),
}

/// A counted event, whatever thread runs on a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Event {
    /// Who counts it.
    pub kind: EventKind,
    /// Its number: `perf_event_attr.config`.
    pub number: u64,
    /// How often the program is executed.
    pub every: Every,
}

impl Event {
    /// The time that passes on a processor: `PERF_COUNT_SW_CPU_CLOCK`.
    pub fn clock(every: Every) -> Event {
        Event { kind: EventKind::Software, number: 0, every }
    }

    /// Attaches a program of the kind [`PerfEvent`](crate::ProgramKind::PerfEvent) on a processor.
    ///
    /// # Errors
    /// If the kernel refuses: [`AttachError::Event`] with `ENOENT` or `EOPNOTSUPP` if nothing
    /// counts this event, `ENODEV` if the processor is offline, `EINVAL` if that is too often.
    pub fn attach(&self, program: &Program, processor: u32, cookie: u64) -> Result<Link, AttachError> {
        let (sample_period, flags) = match self.every {
            Every::Count(count) => (count, 0),
            Every::Hertz(rate) => (rate, event_flag::FREQUENCY),
        };
        let attr = PerfEventAttr {
            kind: self.kind as u32,
            config: self.number,
            sample_period,
            flags,
            ..Default::default()
        };
        let scope = Scope { thread: -1, processor: processor as i32 };
        // SAFETY: the attributes of a counted event have no addresses.
        unsafe { attach_event(program, attr, scope, cookie) }
    }
}
