//! Decides how the tracer waits for the next event: sleeping, or polling for a short while first.
//!
//! On an idle processor, waking the tracer costs more than everything else in a hit. If other
//! threads want the processor, sleeping is cheaper for all. Which case holds is unknown and
//! changes, so it is measured: from time to time both ways are tried for a few events, and the
//! faster one is used until the next trial. If events are rare, the tracer always sleeps.

use std::time::{Duration, Instant};

/// How long the tracer polls before it sleeps.
const LOOKING: Duration = Duration::from_micros(60);
/// Events further apart than this are rare.
const RARE: Duration = Duration::from_micros(400);
/// Events of one trial.
const TRIAL: u32 = 48;
/// Events between two trials.
const BETWEEN: u32 = 4096;

/// The way being tried, or in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    TrySleeping,
    TryLooking,
    Use,
}

/// The choice between sleeping and polling.
#[derive(Debug)]
pub(crate) struct Pace {
    phase: Phase,
    /// Events left in the phase.
    left: u32,
    /// Time and number of the events of this phase that were not rare.
    spent: Duration,
    counted: u32,
    /// Nanoseconds per event in the trial of sleeping.
    sleeping: u64,
    looks: bool,
    last: Instant,
    dense: bool,
}

impl Pace {
    pub(crate) fn new() -> Pace {
        Pace {
            phase: Phase::TrySleeping,
            left: TRIAL,
            spent: Duration::ZERO,
            counted: 0,
            sleeping: 0,
            looks: false,
            last: Instant::now(),
            dense: false,
        }
    }

    /// Until when to poll for the next event before sleeping, if at all.
    pub(crate) fn look_until(&self) -> Option<Instant> {
        (self.dense && self.looks).then(|| Instant::now() + LOOKING)
    }

    /// Notes an event.
    pub(crate) fn event(&mut self) {
        let now = Instant::now();
        let apart = now - self.last;
        self.last = now;
        self.dense = apart < RARE;
        if !self.dense {
            return;
        }
        self.spent += apart;
        self.counted += 1;
        self.left -= 1;
        if self.left == 0 {
            self.next_phase();
        }
    }

    fn next_phase(&mut self) {
        let each = self.spent.as_nanos() as u64 / u64::from(self.counted.max(1));
        (self.phase, self.left, self.looks) = match self.phase {
            Phase::TrySleeping => {
                self.sleeping = each;
                (Phase::TryLooking, TRIAL, true)
            }
            Phase::TryLooking => (Phase::Use, BETWEEN, each < self.sleeping),
            Phase::Use => (Phase::TrySleeping, TRIAL, false),
        };
        self.spent = Duration::ZERO;
        self.counted = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a trial of each way, with events this many microseconds apart. Returns whether polling
    /// is chosen.
    fn choose(sleeping: u64, looking: u64) -> bool {
        let mut pace = Pace::new();
        for apart in [sleeping, looking] {
            for _ in 0..TRIAL {
                pace.last = Instant::now() - Duration::from_micros(apart);
                pace.event();
            }
        }
        assert_eq!(pace.phase, Phase::Use);
        pace.looks
    }

    #[test]
    fn the_faster_way_is_used() {
        assert!(choose(60, 20));
        assert!(!choose(20, 60));
    }

    #[test]
    fn rare_events_are_slept_for() {
        let mut pace = Pace::new();
        pace.looks = true;
        pace.last = Instant::now() - Duration::from_millis(5);
        pace.event();
        assert_eq!(pace.look_until(), None);
    }
}
