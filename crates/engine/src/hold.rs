//! Stops all threads of an address space at once, so that more than one byte of its code can be
//! changed.
//!
//! The tracer asks each thread to stop. The events of threads are kept ([`Holds::events`]) and
//! handled afterwards in their order, which resumes the threads. So a thread that stopped for a
//! reason of its own is not stopped twice. A thread in an uninterruptible wait (such as the parent
//! of a vfork child) counts as stopped: it was asked to stop, and executes nothing of the program
//! before it has. So does a new thread: it starts stopped.
//!
//! The time of a hold is measured from the first request to stop until the last thread is resumed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use process::{Event, Status};

mod followed;

/// How long a thread may take to stop: it has to get a processor.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// Polls without an event before the tracer sleeps between polls.
const BRISK: u32 = 50;
/// The sleep between two polls then.
const PAUSE: Duration = Duration::from_micros(30);
/// Polls without an event before looking for threads that cannot stop.
const LOOK_AFTER: u32 = 100;

/// The proof that no thread executes code of an address space.
#[derive(Debug)]
pub(crate) struct Held(());

impl Held {
    /// For an address space whose only thread is stopped.
    pub(crate) fn of_one() -> Held {
        Held(())
    }
}

/// Events of held threads, and statistics of holds.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// Events of threads that were held, not handled yet. They are handled before any new event;
    /// until then their threads stay stopped.
    pub(crate) events: VecDeque<Event>,
    /// The time of the first request to stop, while threads are held.
    since: Option<Instant>,
    /// The times of all holds, except the median.
    times: HoldTimes,
    /// The times of the last holds, at most [`KEPT_HOLD_TIMES`].
    last: VecDeque<Duration>,
}

/// The number of times kept for the median. Over months a session may hold processes millions of
/// times.
const KEPT_HOLD_TIMES: usize = 4096;

/// The times for which address spaces were held: least, median (of the last few thousand),
/// greatest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldTimes {
    /// The number of holds.
    pub count: usize,
    /// The shortest.
    pub least: Duration,
    /// The median.
    pub median: Duration,
    /// The longest.
    pub greatest: Duration,
}

impl Holds {
    /// A hold begins, if none is under way.
    pub(crate) fn begin(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    /// All held threads are resumed.
    pub(crate) fn released(&mut self) {
        if let Some(since) = self.since.take() {
            self.note(since.elapsed());
        }
    }

    fn note(&mut self, time: Duration) {
        let HoldTimes { count, least, greatest, .. } = &mut self.times;
        *least = if *count == 0 { time } else { time.min(*least) };
        *greatest = time.max(*greatest);
        *count += 1;
        if self.last.len() == KEPT_HOLD_TIMES {
            self.last.pop_front();
        }
        self.last.push_back(time);
    }

    /// The times so far.
    pub(crate) fn times(&self) -> HoldTimes {
        let mut last: Vec<Duration> = self.last.iter().copied().collect();
        last.sort_unstable();
        HoldTimes { median: last.get(last.len() / 2).copied().unwrap_or_default(), ..self.times }
    }

    /// Ends the hold if no other thread was held and the handled one is resumed.
    pub(crate) fn released_if_alone(&mut self) {
        if self.events.is_empty() {
            self.released();
        }
    }
}

/// The thread of an event.
pub(crate) fn tid_of(event: &Event) -> i32 {
    match event {
        Event::Stopped(thread, _) => thread.tid(),
        Event::Ended { tid, .. } => *tid,
    }
}

/// Whether a thread that was asked to stop executes nothing of its program before it has: it is in
/// an uninterruptible wait, or has ended.
fn is_as_good_as_stopped(tid: i32) -> bool {
    Status::read(tid).map_or(true, |status| status.state == 'D' || status.has_ended())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_summed_up() {
        let mut holds = Holds::default();
        assert_eq!(holds.times(), HoldTimes::default());
        [5, 1, 3].into_iter().for_each(|time| holds.note(Duration::from_millis(time)));
        let times = holds.times();
        assert_eq!((times.count, times.least.as_millis(), times.median.as_millis()), (3, 1, 3));
        assert_eq!(times.greatest.as_millis(), 5);
        (0..3 * KEPT_HOLD_TIMES).for_each(|_| holds.note(Duration::from_millis(2)));
        let times = holds.times();
        assert_eq!(
            (times.count, times.least.as_millis(), times.median.as_millis()),
            (3 * KEPT_HOLD_TIMES + 3, 1, 2)
        );
        assert_eq!((times.greatest.as_millis(), holds.last.len()), (5, KEPT_HOLD_TIMES));
    }
}
