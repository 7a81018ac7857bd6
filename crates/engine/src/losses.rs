//! Reports dropped records while a session runs.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::observer::Lost;
use crate::tracer::Tracer;

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

impl Tracer<'_> {
    /// Reports records dropped since the last report, if that was long enough ago.
    pub(crate) fn look_for_losses(&mut self) {
        if self.told.losses.last.is_none_or(|last| last.elapsed() >= PAUSE) {
            self.tell_losses();
        }
    }

    /// Reports records dropped since the last report.
    pub(crate) fn tell_losses(&mut self) {
        self.told.losses.last = Some(Instant::now());
        if let Some((from, to, count)) = self.told.losses.own.take() {
            self.observer.lost(&Lost { pid: None, from, to, count });
        }
        for (number, program) in self.programs.iter() {
            for (probe, state) in program.probes.iter().enumerate() {
                let dropped = state.dropped();
                if dropped == 0 {
                    continue;
                }
                let told = self.told.losses.told.entry((number, probe)).or_default();
                let more = dropped.saturating_sub(std::mem::replace(told, dropped));
                if more > 0 {
                    self.observer.dropped(number, probe, more);
                }
            }
        }
    }
}
