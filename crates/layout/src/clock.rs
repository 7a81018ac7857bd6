//! The time in nanoseconds, from the time stamp counter: how handlers compute it.

use core::sync::atomic::{AtomicU64, Ordering};

/// What the time is computed from: the first words of the memory of maps. The tracer sets it anew
/// from time to time, so that it follows the kernel's clock, and never goes back. A process may
/// overwrite it, and then has wrong times.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct Clock {
    /// Odd while the others change.
    pub version: AtomicU64,
    /// The counter at some moment.
    pub counter: AtomicU64,
    /// `CLOCK_MONOTONIC` at that moment.
    pub monotonic: AtomicU64,
    /// Nanoseconds for each count, times 2^32.
    pub rate: AtomicU64,
    /// `CLOCK_MONOTONIC` when tracing began.
    pub start: AtomicU64,
    /// `CLOCK_BOOTTIME` less `CLOCK_MONOTONIC`.
    pub boot: AtomicU64,
    /// `CLOCK_REALTIME` less `CLOCK_MONOTONIC`.
    pub real: AtomicU64,
    /// Unused: what follows begins at a multiple of 128 bytes.
    pub reserved: [AtomicU64; 9],
}

/// Words of a [`Clock`].
pub const CLOCK_WORDS: usize = size_of::<Clock>() / size_of::<u64>();

/// How often a time is computed again that was computed while the clock was set.
const ATTEMPTS: u32 = 8;

/// A clock in words of shared memory.
#[derive(Clone, Copy, Debug)]
pub struct ClockWords<'a>(pub &'a [AtomicU64]);

impl ClockWords<'_> {
    fn word(self, place: usize) -> u64 {
        self.0.get(place).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// The `CLOCK_MONOTONIC` time at which the counter had a value.
    pub fn monotonic(self, counter: u64) -> u64 {
        let mut time = 0;
        for _ in 0..ATTEMPTS {
            let version = self.0.first().map_or(0, |word| word.load(Ordering::Acquire));
            let (from, base, rate) = (self.word(1), self.word(2), self.word(3));
            // A counter may be a little behind that of another processor.
            let counts = counter.saturating_sub(from);
            time = base.wrapping_add(((u128::from(counts) * u128::from(rate)) >> 32) as u64);
            core::sync::atomic::fence(Ordering::Acquire);
            if version & 1 == 0 && self.word(0) == version {
                break;
            }
        }
        time
    }

    /// The same counted from another moment.
    pub fn time(self, counter: u64, clock: vm::Clock) -> u64 {
        let time = self.monotonic(counter);
        match clock {
            vm::Clock::Monotonic => time,
            vm::Clock::Elapsed => time.saturating_sub(self.word(4)),
            vm::Clock::Boot => time.wrapping_add(self.word(5)),
            vm::Clock::Real => time.wrapping_add(self.word(6)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::array::from_fn;

    #[test]
    fn times_are_computed_from_the_counter() {
        let values = [2, 1000, 5_000_000, 1 << 31, 4_000_000, 7, 1 << 60];
        let words: [AtomicU64; CLOCK_WORDS] =
            from_fn(|place| AtomicU64::new(values.get(place).copied().unwrap_or(0)));
        let clock = ClockWords(&words);
        assert_eq!(clock.monotonic(1000), 5_000_000);
        assert_eq!(clock.monotonic(3000), 5_001_000);
        assert_eq!(clock.monotonic(0), 5_000_000);
        assert_eq!(clock.time(1000, vm::Clock::Elapsed), 1_000_000);
        assert_eq!(clock.time(1000, vm::Clock::Boot), 5_000_007);
        assert_eq!(clock.time(1000, vm::Clock::Real), 5_000_000 + (1 << 60));
        assert_eq!(ClockWords(&[]).monotonic(7), 0);
    }
}
