//! When handlers of `interval` are due, and who wakes the tracer for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use script::Unit;

use super::places::Own;
use crate::Failure;
use crate::sleeper::Sleeper;

/// Handlers with their periods, and when each is due.
#[derive(Debug, Default)]
pub(super) struct Timers(Vec<Timer>);

#[derive(Debug)]
struct Timer {
    period: Duration,
    due: Instant,
    own: Own,
}

impl Timers {
    /// All periods begin now.
    pub(super) fn new(intervals: &[(Duration, Own)]) -> Timers {
        let now = Instant::now();
        Timers(intervals.iter().map(|&(period, own)| Timer { period, due: now + period, own }).collect())
    }

    /// The handlers that are due, the longest due first; each once, however often it was missed.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Own> {
        let mut due: Vec<(Instant, Own)> = Vec::new();
        for timer in self.0.iter_mut().filter(|timer| timer.due <= now) {
            due.push((timer.due, timer.own));
            let late = now.duration_since(timer.due).as_nanos() / timer.period.as_nanos().max(1);
            let periods = u32::try_from(late).unwrap_or(u32::MAX).saturating_add(1);
            timer.due += timer.period.saturating_mul(periods);
        }
        due.sort_by_key(|(time, _)| *time);
        due.into_iter().map(|(_, own)| own).collect()
    }

    /// Whether there is no handler.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The shortest period.
    pub(super) fn shortest(&self) -> Option<Duration> {
        self.0.iter().map(|timer| timer.period).min()
    }
}

/// The least time between two wake-ups.
const LEAST: Duration = Duration::from_micros(200);

/// A thread that wakes the thread which made it, until dropped.
#[derive(Debug)]
pub(super) struct Waker {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Waker {
    /// Wakes the calling thread in each period.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(period: Duration) -> Result<Waker, Failure> {
        let ended = Arc::new(AtomicBool::new(false));
        let (over, tracer) = (Arc::clone(&ended), Sleeper::this());
        let wake = move || wake(tracer, period.max(LEAST), &over);
        let thread = thread::Builder::new().name("interval".to_owned()).spawn(wake);
        let thread = thread.map_err(|error| Failure::new(format!("a thread cannot be started: {error}")))?;
        Ok(Waker { ended, thread: Some(thread) })
    }
}

/// Interrupts a thread's sleep in each period.
fn wake(tracer: Sleeper, period: Duration, ended: &AtomicBool) {
    let mut next = Instant::now() + period;
    while !ended.load(Ordering::Relaxed) {
        let now = Instant::now();
        if now < next {
            thread::park_timeout(next - now);
            continue;
        }
        // It joins this thread before it ends.
        tracer.interrupt();
        next = (next + period).max(now);
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// The time between two runs.
pub(super) fn period(unit: Unit, count: u64) -> Option<Duration> {
    let nanoseconds = match unit {
        Unit::Nanoseconds => count,
        Unit::Microseconds => count.checked_mul(1000)?,
        Unit::Milliseconds => count.checked_mul(1_000_000)?,
        Unit::Seconds => count.checked_mul(1_000_000_000)?,
        Unit::Hertz => 1_000_000_000_u64.checked_div(count)?,
    };
    (1000..=365 * 86400 * 1_000_000_000).contains(&nanoseconds).then(|| Duration::from_nanos(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_runs_once() {
        let own = |entry| Own { entry, minor: 0 };
        let (short, long) = (Duration::from_millis(10), Duration::from_millis(25));
        let mut timers = Timers::new(&[(short, own(1)), (long, own(2))]);
        let start = timers.0[0].due - short;
        assert_eq!(timers.due(start + Duration::from_millis(9)), []);
        assert_eq!(timers.due(start + Duration::from_millis(12)), [own(1)]);
        assert_eq!(timers.due(start + Duration::from_millis(47)), [own(1), own(2)]);
        assert_eq!(timers.due(start + Duration::from_millis(49)), []);
        assert_eq!(timers.due(start + Duration::from_millis(50)), [own(1), own(2)]);
        assert_eq!(timers.shortest(), Some(short));
    }

    #[test]
    fn periods_are_times() {
        assert_eq!(period(Unit::Hertz, 99), Some(Duration::from_nanos(10_101_010)));
        assert_eq!(period(Unit::Seconds, 2), Some(Duration::from_secs(2)));
        assert_eq!(period(Unit::Hertz, 0), None);
        assert_eq!(period(Unit::Nanoseconds, 5), None);
        assert_eq!(period(Unit::Seconds, u64::MAX), None);
    }
}
