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

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use process::{Event, Status, Stop};

use crate::signal::{PUT_BACK, SI_KERNEL, set_fault_address};
use crate::tracer::Tracer;
use crate::tracked::Activity;

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
}

impl Tracer<'_> {
    /// Stops all threads of an address space except the one being handled, which is stopped
    /// already.
    ///
    /// # Errors
    /// A thread does not stop, or the process ends or executes a new program meanwhile.
    pub(crate) fn hold(&mut self, number: u32) -> Result<Held, String> {
        self.holds.begin();
        self.hold_parked(number);
        let start = Instant::now();
        let stopped: HashSet<i32> = self.holds.events.iter().map(tid_of).collect();
        let mut moving = HashSet::new();
        for (&tid, tracked) in &mut self.threads {
            if tracked.space != Some(number) || stopped.contains(&tid) {
                continue;
            }
            if let Activity::Running(running) = &tracked.activity {
                // A thread that is gone reports its end when it is waited for.
                tracked.asked = tracked.asked || running.interrupt().is_ok();
                moving.insert(tid);
            }
        }
        if self.holds.events.iter().any(|event| self.ends(event, number)) {
            return Err(REPLACED.to_owned());
        }
        let mut idle = 0;
        while !moving.is_empty() {
            match process::wait(false) {
                Ok(Some(event)) => {
                    idle = 0;
                    moving.remove(&tid_of(&event));
                    let ends = self.ends(&event, number);
                    let event = self.put_before_its_trap(event, number);
                    self.holds.events.push_back(event);
                    if ends {
                        return Err(REPLACED.to_owned());
                    }
                }
                Ok(None) => {
                    idle += 1;
                    if idle % LOOK_AFTER == 0 {
                        moving.retain(|&tid| !is_as_good_as_stopped(tid));
                    }
                    if start.elapsed() > STOP_TIMEOUT {
                        return Err("its threads could not be stopped all at once".to_owned());
                    }
                    if idle < BRISK { std::thread::yield_now() } else { std::thread::sleep(PAUSE) }
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(Held(()))
    }

    /// Moves a thread that has just hit an `int3` of ours back to it until the hit is handled.
    /// Otherwise the hit is lost if the tracer dies while many threads are held. The kernel keeps
    /// the signal until the tracer takes the next event; if it is still kept when the tracer dies,
    /// it says where the thread is to continue.
    fn put_before_its_trap(&mut self, event: Event, number: u32) -> Event {
        let Event::Stopped(mut thread, Stop::Signal(libc::SIGTRAP)) = event else { return event };
        let tid = thread.tid();
        if let Ok(info) = thread.signal_info()
            && info.si_code == SI_KERNEL
            && let Ok(mut registers) = thread.registers()
            && let Some(tracked) = self.threads.get_mut(&tid).filter(|tracked| tracked.space == Some(number))
            && let Some(space) = self.spaces.get(&number)
        {
            let site = registers.rip().wrapping_sub(1);
            if space.has_trapped(site) {
                registers.set_rip(site);
                let mut said = info;
                said.si_code = PUT_BACK;
                set_fault_address(&mut said, site);
                // The order matters. Fails only if the thread was killed.
                tracked.before_trap =
                    thread.set_signal_info(&said).is_ok() && thread.set_registers(&registers).is_ok();
                // From here on it stays at that address, even if the tracer dies.
                if let Ok(Some(killed)) = process::take_last_stop() {
                    return killed;
                }
            }
        }
        Event::Stopped(thread, Stop::Signal(libc::SIGTRAP))
    }

    /// Ends the hold if no other thread was held and the handled one is resumed.
    pub(crate) fn released_if_alone(&mut self) {
        if self.holds.events.is_empty() {
            self.holds.released();
        }
    }

    /// Frees trampolines that no site leads to and in which no thread of the address space is.
    pub(crate) fn free_trampolines(&mut self, number: u32, _held: &Held) {
        if !self.spaces.get(&number).is_some_and(|space| space.jumps.has_retired()) {
            return;
        }
        let mut places = Vec::new();
        for tid in self.threads.values().filter(|tracked| tracked.space == Some(number)) {
            let tid = tid.identity.tid;
            match process::blocked_at(tid).ok().flatten() {
                Some(rip) => places.push(rip),
                // The thread may be anywhere.
                None => return,
            }
        }
        if let Some(space) = self.spaces.get_mut(&number) {
            // The agent may be running on behalf of one.
            let ground = space.ground.as_ref().filter(|_| space.rings.is_some());
            let claimed = ground.map_or_else(Vec::new, |ground| ground.contexts.claimed(&space.code.memory));
            space.jumps.free(|trampoline| {
                places.iter().any(|&rip| trampoline.contains(rip)) || claimed.contains(&trampoline.site())
            });
        }
    }

    /// Asks a thread to stop. Its stop is handled like any event.
    pub(crate) fn ask(&mut self, tid: i32) {
        self.unpark(tid);
        if let Some(tracked) = self.threads.get_mut(&tid)
            && !tracked.asked
            && let Activity::Running(running) = &tracked.activity
        {
            tracked.asked = running.interrupt().is_ok();
        }
    }

    /// Whether an event ends an address space: a process in it has executed a new program.
    fn ends(&self, event: &Event, number: u32) -> bool {
        let Event::Stopped(thread, Stop::Exec { .. }) = event else { return false };
        // All threads of the process are gone; the one that called exec has the process id now.
        self.threads
            .values()
            .any(|tracked| tracked.space == Some(number) && tracked.identity.pid == thread.tid())
    }
}

/// Why nothing can be changed any more.
const REPLACED: &str = "the process has replaced its program";

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
