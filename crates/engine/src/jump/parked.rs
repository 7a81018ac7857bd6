//! Threads that wait for room in a ring are kept stopped until there is some.
//!
//! With `lossless` a thread waits where its ring is full. It makes no system call to sleep, which its process may be forbidden: it looks again
//! and again, and says in the ring's [`Control`](agent::layout::Control) that it waits. The tracer, when it has looked into the rings, stops who
//! waits there (it is *parked*), and lets it go on when half of its ring is free, or nobody is to wait for room any more; in any case after a
//! while. So it takes no processor from the reader, and none for ever where nobody takes the records. If the tracer dies, the kernel lets
//! it go on.
//!
//! A parked thread is as good as one that waits: it is let go on before anything else is asked of it.

use std::rc::Rc;
use std::time::{Duration, Instant};

use agent::layout::ABANDONED;
use process::{Event, Stop, Stopped};

use super::rings::Rings;
use crate::tracer::Tracer;
use crate::tracked::Activity;

/// How long a thread is parked, at most. Then it looks by itself whether it is to wait any longer.
const LONGEST: Duration = Duration::from_millis(500);

/// A thread that waits for room, and is stopped.
#[derive(Debug)]
pub(crate) struct Parked {
    thread: Stopped,
    /// The number of its ring.
    ring: u32,
    since: Instant,
}

impl Tracer<'_> {
    /// The rings have been looked into: those threads go on that have room now, and those are asked to stop that have none.
    pub(super) fn park_waiting(&mut self) {
        if !self.is_lossless() {
            return;
        }
        let is_done = |(&tid, parked): (&i32, &Parked)| {
            let waits = parked.since.elapsed() < LONGEST && self.waits_for_room(tid, parked.ring);
            (!waits).then_some(tid)
        };
        let parked = self.threads.iter().filter_map(|(tid, tracked)| Some((tid, tracked.parked()?)));
        let done: Vec<i32> = parked.filter_map(is_done).collect();
        done.into_iter().for_each(|tid| self.unpark(tid));
        for (tid, ring) in self.drain.waiting() {
            if self.waits_for_room(tid, ring)
                && let Some(tracked) = self.threads.get_mut(&tid).filter(|tracked| !tracked.asked)
                && let Activity::Running(running) = &tracked.activity
            {
                tracked.asked = running.interrupt().is_ok();
                tracked.waits_in = Some(ring);
            }
        }
    }

    /// Lets a thread go on that was asked to stop; but one that waits for room is parked.
    pub(crate) fn park_or_go_on(&mut self, thread: Stopped, stop: Stop) -> Result<(), process::Error> {
        let tid = thread.tid();
        let ring = self.threads.get_mut(&tid).and_then(|tracked| tracked.waits_in.take());
        match ring.filter(|&ring| stop == Stop::Interrupt && self.waits_for_room(tid, ring)) {
            Some(ring) => {
                self.tell_ids(&thread);
                self.set_activity(tid, Activity::Parked(Parked { thread, ring, since: Instant::now() }));
                Ok(())
            }
            None => self.go_on(thread, stop),
        }
    }

    /// Whether a thread waits for room in a ring, and is to wait on.
    fn waits_for_room(&self, tid: i32, ring: u32) -> bool {
        let space = self.threads.get(&tid).and_then(|tracked| self.spaces.get(&tracked.space?));
        let rings = space.filter(|space| !space.gives_up).and_then(|space| space.rings.as_ref());
        rings.is_some_and(|rings| {
            !self.parts && self.drain.waiter(rings, ring) == Some(tid) && !has_room(rings, ring)
        })
    }

    /// Lets a thread go on, if it is parked.
    pub(crate) fn unpark(&mut self, tid: i32) {
        if let Some(Parked { thread, .. }) = self.take_parked(tid) {
            let gone_on = self.go_on(thread, Stop::Interrupt);
            self.tell_failure(gone_on);
        }
    }

    /// Lets all threads go on that are parked, of one address space or of all.
    pub(crate) fn unpark_all(&mut self, of: Option<u32>) {
        self.parked_of(of).into_iter().for_each(|tid| self.unpark(tid));
    }

    /// The parked threads of an address space are held: they are answered as if they had been asked to stop just now.
    pub(crate) fn hold_parked(&mut self, number: u32) {
        for tid in self.parked_of(Some(number)) {
            if let Some(Parked { thread, .. }) = self.take_parked(tid) {
                self.held.push_back(Event::Stopped(thread, Stop::Interrupt));
            }
        }
    }

    fn parked_of(&self, space: Option<u32>) -> Vec<i32> {
        let parked = self.threads.iter().filter(|(_, tracked)| tracked.parked().is_some());
        let parked = parked.filter(|(_, tracked)| space.is_none() || tracked.space == space);
        parked.map(|(&tid, _)| tid).collect()
    }

    fn take_parked(&mut self, tid: i32) -> Option<Parked> {
        let tracked = self.threads.get_mut(&tid)?;
        tracked.parked()?;
        match std::mem::replace(&mut tracked.activity, Activity::Handled) {
            Activity::Parked(parked) => Some(parked),
            _ => None,
        }
    }
}

/// Whether so much of a ring is free that a thread which waits there may go on for a while; or it waits in vain.
fn has_room(rings: &Rc<Rings>, ring: u32) -> bool {
    let tail = rings.told(ring);
    tail == ABANDONED || rings.head(ring).wrapping_sub(tail) <= rings.size() / 2
}
