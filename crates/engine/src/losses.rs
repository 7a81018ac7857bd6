//! Reports dropped records while a session runs.

use std::collections::HashMap;
use std::time::{Duration, Instant};

mod messages;

/// The minimum time between two reports.
const PAUSE: Duration = Duration::from_secs(1);

/// What was reported.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// The number reported for each program and probe; absent if zero.
    told: HashMap<(usize, usize), u64>,
    last: Option<Instant>,
    /// Records dropped by the tracer itself since the last report: first time, last time, number.
    own: Option<(u64, u64, u64)>,
}

impl Losses {
    /// Notes that the tracer drops a record of this time, in nanoseconds since 1970.
    pub(crate) fn note(&mut self, time: u64) {
        let (from, to, count) = self.own.unwrap_or((time, time, 0));
        self.own = Some((from.min(time), to.max(time), count + 1));
    }

    /// Forgets a program.
    pub(crate) fn forget(&mut self, program: usize) {
        self.told.retain(|(of, _), _| *of != program);
    }
}
