//! All threads of an address space are stopped at once, so that more than one byte of its code can be changed.
//!
//! Each is asked to stop. What it says is kept ([`Holds::events`]) and answered afterwards, in its turn, which lets it go on:
//! so threads that stop for a reason of their own are not stopped a second time. A thread that cannot stop, because the
//! kernel keeps it in an uninterruptible wait (the parent of a vfork child, say), is as good as stopped: it was asked to, and it
//! executes nothing of the program before it has answered. So is one that is being born: it begins stopped.
//!
//! How long threads are held is measured, from the first that is asked to the last that goes on.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use process::{Event, Status, Stop};

use crate::signal::{PUT_BACK, SI_KERNEL, set_fault_address};
use crate::tracer::Tracer;
use crate::tracked::Activity;

/// How long a thread may take to stop: it has to get a processor.
const PATIENCE: Duration = Duration::from_secs(3);
/// Looks without news before the tracer lets others have the processor for longer.
const BRISK: u32 = 50;
/// The pause between two looks then.
const PAUSE: Duration = Duration::from_micros(30);
/// Looks without news after which threads are looked for that cannot stop.
const LOOK_AFTER: u32 = 100;

/// The proof that no thread executes an address space's code.
#[derive(Debug)]
pub(crate) struct Held(());

impl Held {
    /// For an address space whose only thread is stopped.
    pub(crate) fn of_one() -> Held {
        Held(())
    }
}

/// Threads that are held: what they were stopped by; how often that was, and how long.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// What threads were stopped by that had to be stopped all at once. It is answered before anything that is
    /// still to be waited for; until then they stay as they are.
    pub(crate) events: VecDeque<Event>,
    /// When the first thread was asked, while threads are held.
    since: Option<Instant>,
    /// Of all; but the median is that of the last ones.
    times: HoldTimes,
    /// How long the last ones were, of which no more than [`LAST`] are kept.
    last: VecDeque<Duration>,
}

/// A session that is changed for months holds processes millions of times.
const LAST: usize = 4096;

/// The times for which address spaces were held: least, median (of the last few thousand), greatest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldTimes {
    /// How often.
    pub count: usize,
    /// The shortest.
    pub least: Duration,
    /// The median.
    pub median: Duration,
    /// The longest.
    pub greatest: Duration,
}

impl Holds {
    /// The first is held.
    pub(crate) fn begin(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    /// All that were held go on.
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
        if self.last.len() == LAST {
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
    /// Stops all threads of an address space, but for one that is being answered: it is stopped already.
    ///
    /// # Errors
    /// A thread does not stop, or the process ends or replaces its program just now.
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
                // One that is gone says so when it is waited for.
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
                    if start.elapsed() > PATIENCE {
                        return Err("its threads could not be stopped all at once".to_owned());
                    }
                    if idle < BRISK { std::thread::yield_now() } else { std::thread::sleep(PAUSE) }
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(Held(()))
    }

    /// A thread that has just come from an `int3` of ours is put back to it until that is answered: the signal that says so is lost if the
    /// tracer dies with many threads held. It is not lost as long as no other event was taken: then it says where the thread is to go on,
    /// wherever it is.
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
                // In this order. It fails only if the thread was killed.
                tracked.before_trap =
                    thread.set_signal_info(&said).is_ok() && thread.set_registers(&registers).is_ok();
                // Wherever it is sent from now on, it is there, whatever becomes of the tracer.
                if let Ok(Some(killed)) = process::take_last_stop() {
                    return killed;
                }
            }
        }
        Event::Stopped(thread, Stop::Signal(libc::SIGTRAP))
    }

    /// Where no other thread was held, the one that is being answered goes on now.
    pub(crate) fn released_if_alone(&mut self) {
        if self.holds.events.is_empty() {
            self.holds.released();
        }
    }

    /// Gives the memory of trampolines back that no site leads to, and in which no thread of an address space is.
    pub(crate) fn free_trampolines(&mut self, number: u32, _held: &Held) {
        if !self.spaces.get(&number).is_some_and(|space| space.jumps.has_retired()) {
            return;
        }
        let mut places = Vec::new();
        for tid in self.threads.values().filter(|tracked| tracked.space == Some(number)) {
            let tid = tid.identity.tid;
            match process::blocked_at(tid).ok().flatten() {
                Some(rip) => places.push(rip),
                // It may be anywhere.
                None => return,
            }
        }
        if let Some(space) = self.spaces.get_mut(&number) {
            // The agent may be at work for one.
            let ground = space.ground.as_ref().filter(|_| space.rings.is_some());
            let claimed = ground.map_or_else(Vec::new, |ground| ground.contexts.claimed(&space.code.memory));
            space.jumps.free(|trampoline| {
                places.iter().any(|&rip| trampoline.contains(rip)) || claimed.contains(&trampoline.site())
            });
        }
    }

    /// Asks a thread to stop, which is answered when it has.
    pub(crate) fn ask(&mut self, tid: i32) {
        self.unpark(tid);
        if let Some(tracked) = self.threads.get_mut(&tid)
            && !tracked.asked
            && let Activity::Running(running) = &tracked.activity
        {
            tracked.asked = running.interrupt().is_ok();
        }
    }

    /// Whether an event says that an address space is no more: a process that has it has replaced its program.
    fn ends(&self, event: &Event, number: u32) -> bool {
        let Event::Stopped(thread, Stop::Exec { .. }) = event else { return false };
        // All threads of the process are gone; the one that did it has the process's number now.
        self.threads
            .values()
            .any(|tracked| tracked.space == Some(number) && tracked.identity.pid == thread.tid())
    }
}

/// Why nothing can be changed any more.
const REPLACED: &str = "the process has replaced its program";

/// The thread that an event is of.
pub(crate) fn tid_of(event: &Event) -> i32 {
    match event {
        Event::Stopped(thread, _) => thread.tid(),
        Event::Ended { tid, .. } => *tid,
    }
}

/// Whether a thread that was asked to stop executes nothing of its program before it has: it waits in the kernel and
/// cannot be woken, or has ended.
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
        (0..3 * LAST).for_each(|_| holds.note(Duration::from_millis(2)));
        let times = holds.times();
        assert_eq!((times.count, times.least.as_millis(), times.median.as_millis()), (3 * LAST + 3, 1, 2));
        assert_eq!((times.greatest.as_millis(), holds.last.len()), (5, LAST));
    }
}
