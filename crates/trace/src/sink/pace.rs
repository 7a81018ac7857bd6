//! The kernel's limit of what a process may write to its log.
//!
//! Unless `kernel.printk_devkmsg` is `on`, the kernel takes ten messages in five seconds from each open file of /dev/kmsg, and throws away
//! all others without an error: its DEFAULT_RATELIMIT_BURST and DEFAULT_RATELIMIT_INTERVAL. Its interval begins with whatever message
//! comes first after the last one, and nobody is told when. So what is kept here holds for every interval: of any eleven messages, the last comes
//! more than an interval after the first.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Messages in an interval.
const BURST: usize = 10;
/// The interval, and a little more: the kernel's clock is not ours.
const INTERVAL: Duration = Duration::from_millis(5100);

/// What may be written now.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    /// When the last messages had been written, the oldest first.
    written: VecDeque<Instant>,
}

impl Pace {
    /// When the next message may be written; none: now.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let first = self.written.get(self.written.len().checked_sub(BURST)?)?;
        Some(*first + INTERVAL).filter(|&next| next > now)
    }

    /// Notes that one has been written, or may have been: the kernel counts before it fails.
    pub(super) fn wrote(&mut self, now: Instant) {
        if self.written.len() >= BURST {
            self.written.pop_front();
        }
        self.written.push_back(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel does with messages at these times: how many it throws away.
    fn thrown_away(times: &[Instant]) -> usize {
        let kernels = Duration::from_secs(5);
        let (mut begin, mut used, mut thrown) = (None, 0, 0);
        for &time in times {
            let from = *begin.get_or_insert(time);
            if time > from + kernels {
                (begin, used) = (Some(time), 0);
            }
            match used < BURST {
                true => used += 1,
                false => thrown += 1,
            }
        }
        thrown
    }

    #[test]
    fn ten_messages_in_five_seconds() {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        for _ in 0..BURST {
            assert_eq!(pace.next(begin), None);
            pace.wrote(begin);
        }
        assert_eq!(pace.next(begin + Duration::from_secs(4)), Some(begin + INTERVAL));
        assert_eq!(pace.next(begin + INTERVAL), None);
    }

    #[test]
    fn the_kernel_throws_nothing_away_however_its_intervals_lie() {
        // The pauses between what is to be logged, in milliseconds; among them one that ends just after the kernel's interval and before ours.
        for pauses in [&[0][..], &[5050, 0, 0, 0, 0, 0, 0, 0, 0, 150, 0], &[700], &[0, 0, 0, 0, 5099], &[511]]
        {
            let (mut pace, mut now) = (Pace::default(), Instant::now());
            let mut times = Vec::new();
            for pause in pauses.iter().cycle().take(200) {
                now += Duration::from_millis(*pause);
                while let Some(next) = pace.next(now) {
                    now = next;
                }
                times.push(now);
                // Writing takes a while.
                now += Duration::from_millis(3);
                pace.wrote(now);
            }
            assert_eq!(thrown_away(&times), 0, "{pauses:?}");
        }
    }
}
