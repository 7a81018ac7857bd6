//! What the time was when the time stamp counter was such.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The shortest time from which the counter's rate is told.
const LEAST: Duration = Duration::from_millis(2);

/// Pairs of counter and time of the day that are read, of which the closest is taken: in between, this thread may have had to wait.
const PAIRS: usize = 4;

/// Moments that are remembered: records may wait in their rings while later ones are taken, each three milliseconds at most.
const MOMENTS: usize = 4096;

/// By how much the time of the day may be behind what it must be after the last moment. If it is more, it was set back: times go on
/// as if it was not.
const BEHIND: u64 = 10_000_000;

/// A moment, and what follows.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    /// The counter.
    count: u64,
    /// Nanoseconds since 1970.
    time: u64,
    /// Nanoseconds of a count from here on, as a number of 2^-32.
    rate: u64,
}

/// Relates the time stamp counter to the time of the day.
///
/// The time goes from each moment to the next in a straight line, so that of two hits the later one never has the earlier time, whatever was between
/// the reading of the counter and of the clock.
#[derive(Debug)]
pub(crate) struct Clock {
    /// When it was made.
    first: (u64, Instant),
    /// Nanoseconds of a count before the first moment, as a number of 2^-32. It stays, so that a time is told the same way twice.
    early: u64,
    /// Those that were taken, the last at the end.
    moments: VecDeque<Moment>,
    /// The moment that was looked up last, and counts from there to the next one: 0 where nothing was looked up since one was added.
    recent: (Moment, u64),
}

impl Clock {
    /// Begins to measure.
    pub(crate) fn new() -> Clock {
        Clock {
            first: (counter(), Instant::now()),
            early: 0,
            moments: VecDeque::new(),
            recent: Default::default(),
        }
    }

    /// Whether no moment was taken: no time is known then.
    pub(crate) fn is_unset(&self) -> bool {
        self.moments.is_empty()
    }

    /// Takes the present moment as that up to which times are told. Those of hits before it are exact to less than a
    /// microsecond for as long as they are not much older.
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
        // The one before has another rate now, and an end.
        self.recent.1 = 0;
    }

    /// The time at which the counter had a value: nanoseconds since 1970. Records come in the order of their times, so the moments that
    /// one lies between are mostly those of the one before.
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
        // What is later than the last was written since; what is nonsense is a process's own.
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

/// Nanoseconds of so many counts.
fn length(counts: u64, rate: u64) -> u64 {
    u64::try_from((u128::from(counts) * u128::from(rate)) >> 32).unwrap_or(u64::MAX)
}

/// Nanoseconds of a count, as a number of 2^-32.
fn rate(nanoseconds: u64, counts: u64) -> u64 {
    u64::try_from((u128::from(nanoseconds) << 32) / u128::from(counts.max(1))).unwrap_or(u64::MAX)
}

/// The present moment, and at which rate it goes on.
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

/// The time stamp counter.
pub(super) fn counter() -> u64 {
    // SAFETY: every x86-64 processor has it, and Linux lets user programs read it.
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
            // Now and then some stay, as they do where there are more than are read at a time.
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
        // The last moment's rate and end are known only when the next one is.
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
