//! The kernel's limit of what a process may write to its log.
//!
//! Unless `kernel.printk_devkmsg` is `on`, the kernel takes ten messages in five seconds from each open file of /dev/kmsg, and throws away
//! all others without an error: its DEFAULT_RATELIMIT_BURST and DEFAULT_RATELIMIT_INTERVAL. Whoever counts the same way knows what would be
//! thrown away, and waits.

use std::time::{Duration, Instant};

/// Messages in an interval.
const BURST: u32 = 10;
/// The interval, and a little more: the kernel's clock is not ours.
const INTERVAL: Duration = Duration::from_millis(5100);

/// What may be written now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// When this interval began.
    begin: Option<Instant>,
    used: u32,
}

impl Pace {
    /// When the next message may be written; none: now. Then it is counted.
    pub(super) fn next(&mut self, now: Instant) -> Option<Instant> {
        let begin = *self.begin.get_or_insert(now);
        if now.saturating_duration_since(begin) >= INTERVAL {
            *self = Pace { begin: Some(now), used: 0 };
        }
        if self.used < BURST {
            self.used += 1;
            return None;
        }
        self.begin.map(|begin| begin + INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_messages_in_five_seconds() {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        for _ in 0..BURST {
            assert_eq!(pace.next(begin + Duration::from_secs(1)), None);
        }
        let end = begin + Duration::from_secs(1) + INTERVAL;
        assert_eq!(pace.next(begin + Duration::from_secs(4)), Some(end));
        for _ in 0..BURST {
            assert_eq!(pace.next(end), None);
        }
        assert_eq!(pace.next(end), Some(end + INTERVAL));
    }
}
