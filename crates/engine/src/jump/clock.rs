//! What the time was when the time stamp counter was such.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The shortest time from which the counter's rate is told.
const LEAST: Duration = Duration::from_millis(2);

/// Relates the time stamp counter to the time of the day.
#[derive(Debug)]
pub(crate) struct Clock {
    /// When it was made.
    first: (u64, Instant),
    /// The moment from which times are told: nanoseconds since 1970.
    now: (u64, u64),
    /// Nanoseconds of a count, as a number of 2^-32.
    rate: u64,
}

impl Clock {
    /// Begins to measure.
    pub(crate) fn new() -> Clock {
        let first = (counter(), Instant::now());
        Clock { first, now: (first.0, 0), rate: 0 }
    }

    /// Takes the present moment as that from which times are told. Those of hits before it are exact to less than a
    /// microsecond for as long as they are not much older.
    pub(crate) fn set(&mut self) {
        if self.rate == 0 {
            while self.first.1.elapsed() < LEAST {
                std::thread::sleep(LEAST / 4);
            }
        }
        let (counts, elapsed) = (counter().wrapping_sub(self.first.0), self.first.1.elapsed());
        let nanoseconds = elapsed.as_nanos() as u64;
        self.rate = ((u128::from(nanoseconds) << 32) / u128::from(counts.max(1))) as u64;
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.now = (counter(), time.as_nanos() as u64);
    }

    /// The time at which the counter had a value: nanoseconds since 1970.
    pub(crate) fn time(&self, value: u64) -> u64 {
        let (now, time) = self.now;
        // What is later than now was written since; what is nonsense is a process's own.
        let ago = now.wrapping_sub(value).cast_signed();
        let distance = ((u128::from(ago.unsigned_abs()) * u128::from(self.rate)) >> 32) as u64;
        if ago < 0 { time.saturating_add(distance) } else { time.saturating_sub(distance) }
    }
}

/// The time stamp counter.
fn counter() -> u64 {
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
    fn nonsense_gives_some_time() {
        let mut clock = Clock::new();
        clock.set();
        for value in [0, 1, u64::MAX, u64::MAX / 2, u64::MAX / 2 + 1] {
            clock.time(value);
        }
    }
}
