//! The cost of traps, and a limit to it.
//!
//! A trapped hit stops its thread for some ten microseconds, a thousand times what a jump takes. A
//! probe on a hot place can so bring a process to a standstill. With a limit, the tracer looks ten
//! times a second at how much of the time hits have taken; when that is more than the limit allows,
//! the probe with the most hits is taken out.
//!
//! ```text
//! credit += limit * time passed        at most MAX_CREDIT seconds of the limit: a burst is allowed
//! credit -= hits * cost of a hit       below 0: too much
//! ```
//!
//! What a hit costs is measured: the processor time of the tracer's thread for each hit, and about
//! as much for the stopped thread, whose signal and switches the kernel handles. The tracer also
//! does other work in that time, so the cost is bounded.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};

/// The time between two looks.
const EVERY: Duration = Duration::from_millis(100);
/// The most credit that is saved up, as a time during which the whole limit is unused.
const MAX_CREDIT: f64 = 2.0;
/// What a hit is taken to cost before it was measured, in seconds.
const USUAL: f64 = 14e-6;
/// The bounds of what a hit may cost, in seconds.
const BOUNDS: (f64, f64) = (5e-6, 100e-6);
/// From so many hits between two looks on, their cost is measured.
const ENOUGH: u64 = 100;

/// A probe: the numbers of its program and its own.
type ProbeNumber = (usize, usize);

/// What traps cost, and may cost.
#[derive(Debug)]
pub(crate) struct Budget {
    /// The part of the time that hits may take; `None`: any.
    limit: Option<f64>,
    /// Seconds that may still be spent.
    credit: f64,
    /// What a hit costs, in seconds.
    each: f64,
    /// Seconds spent in all.
    spent: f64,
    /// The hits of each program's probes at the last look.
    before: HashMap<usize, Vec<u64>>,
    looked: Instant,
    /// The processor time of this thread at the last look.
    worked: Duration,
}

/// A probe that costs too much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TooMuch {
    pub(crate) probe: ProbeNumber,
    /// Its hits since the last look.
    pub(crate) hits: u64,
    /// The time since then.
    pub(crate) time: Duration,
    /// The part of that time which they took.
    pub(crate) share: f64,
    pub(crate) limit: f64,
}

impl Budget {
    pub(crate) fn new() -> Budget {
        Budget {
            limit: None,
            credit: 0.0,
            each: USUAL,
            spent: 0.0,
            before: HashMap::new(),
            looked: Instant::now(),
            worked: processor_time(),
        }
    }

    /// Sets the limit, as a part of the time.
    pub(crate) fn set_limit(&mut self, limit: Option<f64>) {
        self.limit = limit;
        self.credit = limit.unwrap_or(0.0) * MAX_CREDIT;
    }

    /// Whether it is time to look.
    pub(crate) fn is_due(&self) -> bool {
        self.looked.elapsed() >= EVERY
    }

    /// Looks at the hits by traps of all probes so far, program by program, each with its number.
    /// Returns the probe to be taken out, if hits cost too much.
    pub(crate) fn look<H: Iterator<Item = u64>>(
        &mut self,
        hits: impl Iterator<Item = (usize, H)>,
    ) -> Option<TooMuch> {
        let (time, worked) = (self.looked.elapsed(), processor_time());
        self.looked = Instant::now();
        let work = worked.saturating_sub(std::mem::replace(&mut self.worked, worked));
        self.spend(time, work, hits)
    }

    /// Accounts for the hits in a time, in which the tracer has worked so long.
    fn spend<H: Iterator<Item = u64>>(
        &mut self,
        time: Duration,
        work: Duration,
        hits: impl Iterator<Item = (usize, H)>,
    ) -> Option<TooMuch> {
        let (mut sum, mut most) = (0, None::<(ProbeNumber, u64)>);
        let mut programs = HashSet::new();
        for (program, hits) in hits {
            programs.insert(program);
            let before = self.before.entry(program).or_default();
            for (probe, now) in hits.enumerate() {
                if probe == before.len() {
                    before.push(0);
                }
                let new = now.saturating_sub(std::mem::replace(&mut before[probe], now));
                sum += new;
                if new > 0 && most.is_none_or(|(_, most)| new > most) {
                    most = Some(((program, probe), new));
                }
            }
        }
        // Those that are gone do not come back.
        self.before.retain(|program, _| programs.contains(program));
        if sum >= ENOUGH {
            let measured = (2.0 * work.as_secs_f64() / sum as f64).clamp(BOUNDS.0, BOUNDS.1);
            self.each += (measured - self.each) / 2.0;
        }
        let cost = sum as f64 * self.each;
        self.spent += cost;
        let limit = self.limit?;
        self.credit = (self.credit + limit * time.as_secs_f64()).min(limit * MAX_CREDIT) - cost;
        let (probe, hits) = most.filter(|_| self.credit < 0.0)?;
        // The others get a chance without it.
        self.credit = 0.0;
        let share = hits as f64 * self.each / time.as_secs_f64().max(f64::MIN_POSITIVE);
        Some(TooMuch { probe, hits, time, share: share.min(1.0), limit })
    }

    /// What all hits by traps have cost.
    pub(crate) fn spent(&self) -> Duration {
        Duration::from_secs_f64(self.spent)
    }
}

/// The processor time of this thread; zero if the kernel does not tell.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(Duration::ZERO, |time| Duration::from_nanos(time.num_nanoseconds().unsigned_abs()))
}

impl std::fmt::Display for TooMuch {
    /// How much it costs, and how much it may.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let percent = |part: f64| (part * 1000.0).round() / 10.0;
        write!(
            f,
            "{} traps in {} ms took about {}% of the time, more than {}% in the long run",
            self.hits,
            self.time.as_millis(),
            percent(self.share),
            percent(self.limit)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENTH: Duration = Duration::from_millis(100);

    /// The hits of one program's probes.
    fn program(number: usize, hits: &[u64]) -> impl Iterator<Item = (usize, impl Iterator<Item = u64>)> {
        std::iter::once((number, hits.iter().copied()))
    }

    /// Looks ten times a second at probes that are hit so often between two looks; the tracer works
    /// 5 us for each. Returns after how many looks one is too much, and which.
    fn first(limit: f64, hits: &[u64], looks: u32) -> Option<(u32, usize)> {
        let mut budget = Budget::new();
        budget.set_limit(Some(limit));
        (1..=looks).find_map(|look| {
            let so_far: Vec<u64> = hits.iter().map(|hits| hits * u64::from(look)).collect();
            let work = Duration::from_micros(5 * hits.iter().sum::<u64>());
            budget.spend(TENTH, work, program(0, &so_far)).map(|over| (look, over.probe.1))
        })
    }

    #[test]
    fn what_takes_all_of_the_time_is_taken_out_soon() {
        let (look, probe) = first(0.05, &[3, 8000, 40], 100).expect("it is too much");
        assert!(look <= 3 && probe == 1, "{look} {probe}");
    }

    #[test]
    fn what_stays_below_the_limit_stays_for_ever() {
        // 400 hits of 10 us in a tenth of a second are 4%.
        assert_eq!(first(0.05, &[400], 10_000), None);
        assert!(first(0.03, &[400], 10_000).is_some());
        assert_eq!(first(0.05, &[0, 0], 100), None);
    }

    #[test]
    fn a_burst_is_allowed() {
        let mut budget = Budget::new();
        budget.set_limit(Some(0.05));
        // A second of silence, and 5000 hits at once.
        for look in 0..10 {
            assert_eq!(budget.spend(TENTH, Duration::ZERO, program(0, &[0])), None, "{look}");
        }
        assert_eq!(budget.spend(TENTH, Duration::from_millis(25), program(0, &[5000])), None);
        let over = budget.spend(TENTH, Duration::from_millis(100), program(0, &[25_000]));
        let over = over.expect("that many are too much");
        assert_eq!((over.probe, over.hits), ((0, 0), 20_000));
        assert!(over.to_string().contains("20000 traps in 100 ms took about 100% of the time"), "{over}");
    }

    #[test]
    fn a_program_that_is_gone_is_forgotten() {
        let mut budget = Budget::new();
        budget.spend(TENTH, Duration::ZERO, program(0, &[5, 7]));
        budget.spend(TENTH, Duration::ZERO, program(1, &[9]));
        assert_eq!(budget.before, HashMap::from([(1, vec![9])]));
    }

    #[test]
    fn without_a_limit_the_cost_is_known_all_the_same() {
        let mut budget = Budget::new();
        assert_eq!(budget.spend(TENTH, Duration::from_millis(50), program(1, &[0, 0, 10_000])), None);
        let spent = budget.spent();
        assert!(spent > Duration::from_millis(90) && spent < Duration::from_millis(150), "{spent:?}");
    }
}
