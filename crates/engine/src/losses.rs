//! Records that were dropped, told while it happens.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::observer::Lost;
use crate::tracer::Tracer;

/// The time between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// What was told.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// By program and probe, how many; those that have dropped none are not there.
    told: HashMap<(usize, usize), u64>,
    last: Option<Instant>,
    /// Those that the tracer has dropped itself since: the time of the first and of the last, and how many.
    own: Option<(u64, u64, u64)>,
}

impl Losses {
    /// A record of this time, in nanoseconds since 1970, is dropped by the tracer.
    pub(crate) fn note(&mut self, time: u64) {
        let (from, to, count) = self.own.unwrap_or((time, time, 0));
        self.own = Some((from.min(time), to.max(time), count + 1));
    }

    /// A program is forgotten.
    pub(crate) fn forget(&mut self, program: usize) {
        self.told.retain(|(of, _), _| *of != program);
    }
}

impl Tracer<'_> {
    /// Tells what was dropped since the last time, if that is long enough ago.
    pub(crate) fn look_for_losses(&mut self) {
        if self.told.losses.last.is_none_or(|last| last.elapsed() >= PAUSE) {
            self.tell_losses();
        }
    }

    /// Tells what was dropped since the last time.
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
