//! Converts values of the time stamp counter (TSC) to wall-clock time.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The shortest time over which the TSC's rate is measured.
const LEAST: Duration = Duration::from_millis(2);

/// How often TSC and wall clock are read together; the closest pair counts, since this thread may
/// be preempted between the two.
const PAIRS: usize = 4;

/// Moments that are kept: records may wait in rings while later moments are taken, one every three
/// milliseconds at most.
const MOMENTS: usize = 4096;

/// How many nanoseconds the wall clock may be behind what the TSC says. If it is more, it was set
/// back, and times go on as if it was not.
const BEHIND: u64 = 10_000_000;

/// A moment, and the rate from there to the next one.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    /// The TSC.
    count: u64,
    /// Nanoseconds since 1970.
    time: u64,
    /// Nanoseconds per count from here on, times 2^32.
    rate: u64,
}

/// Relates the TSC to wall-clock time.
///
/// Between two moments the time is interpolated linearly, so a later hit never gets an earlier
/// time, whatever happened between reading the TSC and the wall clock.
#[derive(Debug)]
pub(crate) struct Clock {
    /// The TSC and the time when the clock was made.
    first: (u64, Instant),
    /// Nanoseconds per count before the first moment, times 2^32. It never changes, so the same
    /// value always gives the same time.
    early: u64,
    /// The moments, ascending.
    moments: VecDeque<Moment>,
    /// The moment of the last lookup, and the counts from there to the next one: 0 if nothing was
    /// looked up since a moment was added.
    recent: (Moment, u64),
}

impl Clock {
    /// Begins to measure the rate.
    pub(crate) fn new() -> Clock {
        Clock {
            first: (counter(), Instant::now()),
            early: 0,
            moments: VecDeque::new(),
            recent: Default::default(),
        }
    }

    /// Whether no moment was taken yet: no time is known then.
    pub(crate) fn is_unset(&self) -> bool {
        self.moments.is_empty()
    }

    /// Takes the present moment. Times of hits shortly before it are exact to less than a
    /// microsecond.
    pub(crate) fn set(&mut self) {
        if self.moments.is_empty() {
            while self.first.1.elapsed() < LEAST {
                std::thread::sleep(LEAST / 4);
            }
        }
        let (counts, elapsed) = (counter().wrapping_sub(self.first.0), self.first.1.elapsed());
        let mut next = moment(rate(elapsed.as_nanos() as u64, counts));
        if let Some(last) = self.moments.back_mut() {
            if next.count <= last.count {
                return;
            }
            let expected = last.time.saturating_add(length(next.count - last.count, next.rate));
            if next.time.saturating_add(BEHIND) < expected {
                next.time = expected;
            }
            next.time = next.time.max(last.time);
            last.rate = rate(next.time - last.time, next.count - last.count);
        }
        if self.moments.len() == MOMENTS {
            self.moments.pop_front();
        }
        if self.moments.is_empty() {
            self.early = next.rate;
        }
        self.moments.push_back(next);
        // The moment before it has another rate now, and an end.
        self.recent.1 = 0;
    }

    /// The time at which the TSC had a value: nanoseconds since 1970. Records are read in the order
    /// of time, so the last lookup's moment is mostly the right one.
    #[inline]
    pub(crate) fn time(&mut self, value: u64) -> u64 {
        let (before, width) = &self.recent;
        let counts = value.wrapping_sub(before.count);
        if counts < *width {
            before.time.saturating_add(length(counts, before.rate))
        } else {
            self.look_up(value)
        }
    }

    fn look_up(&mut self, value: u64) -> u64 {
        let place = self.moments.partition_point(|moment| moment.count <= value);
        // Later than the last moment: the record is that new. Far out of range: the process wrote
        // nonsense.
        let before = place.checked_sub(1).and_then(|before| self.moments.get(before));
        match (before, self.moments.front()) {
            (Some(before), _) => {
                let end = self.moments.get(place).map_or(u64::MAX, |next| next.count);
                self.recent = (*before, end - before.count);
                before.time.saturating_add(length(value - before.count, before.rate))
            }
            (None, Some(first)) => first.time.saturating_sub(length(first.count - value, self.early)),
            (None, None) => 0,
        }
    }
}

fn length(counts: u64, rate: u64) -> u64 {
    u64::try_from((u128::from(counts) * u128::from(rate)) >> 32).unwrap_or(u64::MAX)
}

/// Nanoseconds per count, times 2^32.
fn rate(nanoseconds: u64, counts: u64) -> u64 {
    u64::try_from((u128::from(nanoseconds) << 32) / u128::from(counts.max(1))).unwrap_or(u64::MAX)
}

fn moment(rate: u64) -> Moment {
    let pair = |_| {
        let (before, time, after) = (counter(), SystemTime::now(), counter());
        let width = after.wrapping_sub(before);
        (width, before.wrapping_add(width / 2), time)
    };
    let closest = (1..PAIRS).map(pair).fold(pair(0), |one, other| if other.0 < one.0 { other } else { one });
    let (_, count, time) = closest;
    let time = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    Moment { count, time, rate }
}

/// Reads the TSC.
pub(crate) fn counter() -> u64 {
    // SAFETY: every x86-64 processor has it, and Linux lets programs read it in user mode.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_day() {
        let mut clock = Clock::new();
        clock.set();
        let (before, value, after) = (SystemTime::now(), counter(), SystemTime::now());
        std::thread::sleep(Duration::from_millis(20));
        let (early, late) = (clock.time(value), {
            clock.set();
            clock.time(value)
        });
        let known = |time: SystemTime| time.duration_since(UNIX_EPOCH).expect("after 1970");
        let slack = Duration::from_millis(1);
        for time in [early, late].map(Duration::from_nanos) {
            assert!(known(before) - slack < time && time < known(after) + slack, "{time:?}");
        }
    }

    #[test]
    fn the_later_of_two_hits_never_has_the_earlier_time() {
        let mut clock = Clock::new();
        clock.set();
        let (mut last, mut waiting) = (0, VecDeque::new());
        for round in 0..200_000 {
            waiting.extend([counter(), counter()]);
            clock.set();
            // Sometimes records stay, as when there are more than are read at a time.
            let stay = if round % 1000 < 500 { round % 1000 } else { 0 };
            while waiting.len() > stay
                && let Some(hit) = waiting.pop_front()
            {
                let time = clock.time(hit);
                assert!(time >= last, "{time} after {last}");
                last = time;
            }
        }
    }

    #[test]
    fn a_time_does_not_depend_on_what_was_asked_before() {
        let mut clock = Clock::new();
        let mut values = vec![counter()];
        for _ in 0..20 {
            clock.set();
            values.extend([counter(), clock.moments.back().expect("it was set").count]);
            std::thread::sleep(Duration::from_micros(200));
        }
        values.push(counter());
        let fresh = |clock: &mut Clock, value| {
            clock.recent.1 = 0;
            clock.time(value)
        };
        for &first in &values {
            for value in values.iter().flat_map(|value| [value - 1, *value, value + 1]) {
                let expected = fresh(&mut clock, value);
                fresh(&mut clock, first);
                assert_eq!(clock.time(value), expected, "{value} after {first}");
            }
        }
        // The rate and the end of the last moment are known only when the next one is taken.
        let late = counter() + 1_000_000_000;
        clock.time(late);
        clock.set();
        assert_eq!(clock.time(late), fresh(&mut clock, late));
    }

    #[test]
    fn a_time_before_the_first_moment_stays_what_it_was() {
        let value = counter();
        let mut clock = Clock::new();
        clock.set();
        let time = clock.time(value);
        for _ in 0..10 {
            std::thread::sleep(Duration::from_micros(300));
            clock.set();
            clock.recent.1 = 0;
            assert_eq!(clock.time(value), time);
        }
    }

    #[test]
    fn nonsense_gives_some_time() {
        let mut clock = Clock::new();
        clock.set();
        for value in [0, 1, u64::MAX, u64::MAX / 2, u64::MAX / 2 + 1] {
            clock.time(value);
        }
    }
}
