//! The kernel's rate limit for messages that a process writes to its log.
//!
//! Unless `kernel.printk_devkmsg` is `on`, the kernel takes ten messages in five seconds from each
//! open file of /dev/kmsg and discards all others without an error (its DEFAULT_RATELIMIT_BURST and
//! DEFAULT_RATELIMIT_INTERVAL). An interval begins with the first message after the previous
//! interval, and the writer cannot see when. So [`RateLimit`] ensures for every interval that of
//! any eleven messages, the last comes more than an interval after the first.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The most messages in an interval.
const BURST: usize = 10;
/// The interval, and a little more because the kernel's clock differs from ours.
const INTERVAL: Duration = Duration::from_millis(5100);

/// Limits the rate of messages.
#[derive(Clone, Debug, Default)]
pub(super) struct RateLimit {
    /// When the last messages were written, oldest first.
    written: VecDeque<Instant>,
}

impl RateLimit {
    /// When the next message may be written. None: now.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let first = self.written.get(self.written.len().checked_sub(BURST)?)?;
        Some(*first + INTERVAL).filter(|&next| next > now)
    }

    /// Notes that a message was, or may have been, written: a message counts even if its write
    /// fails.
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

    /// Simulates the kernel: how many messages at these times it discards.
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
        let (mut pace, begin) = (RateLimit::default(), Instant::now());
        for _ in 0..BURST {
            assert_eq!(pace.next(begin), None);
            pace.wrote(begin);
        }
        assert_eq!(pace.next(begin + Duration::from_secs(4)), Some(begin + INTERVAL));
        assert_eq!(pace.next(begin + INTERVAL), None);
    }

    #[test]
    fn the_kernel_throws_nothing_away_however_its_intervals_lie() {
        // The pauses between messages, in milliseconds. One of them ends just after the kernel's
        // interval and before ours.
        for pauses in [&[0][..], &[5050, 0, 0, 0, 0, 0, 0, 0, 0, 150, 0], &[700], &[0, 0, 0, 0, 5099], &[511]]
        {
            let (mut pace, mut now) = (RateLimit::default(), Instant::now());
            let mut times = Vec::new();
            for pause in pauses.iter().cycle().take(200) {
                now += Duration::from_millis(*pause);
                while let Some(next) = pace.next(now) {
                    now = next;
                }
                times.push(now);
                // The time that writing takes.
                now += Duration::from_millis(3);
                pace.wrote(now);
            }
            assert_eq!(thrown_away(&times), 0, "{pauses:?}");
        }
    }
}
