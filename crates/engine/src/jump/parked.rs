//! Threads that wait for room in a ring are kept stopped until there is some.
//!
//! With `lossless` a thread waits where its ring is full. It makes no system call to sleep, which its process may be forbidden: it looks again
//! and again, and says in the ring's [`Control`](layout::Control) that it waits. The tracer, when it has looked into the rings, stops who
//! waits there (it is *parked*), and lets it go on when half of its ring is free, or nobody is to wait for room any more; in any case after a
//! while. So it takes no processor from the reader, and none for ever where nobody takes the records. If the tracer dies, the kernel lets
//! it go on.
//!
//! A thread for which no context is free has no place to say who it is, and says in the identity page that there is one. If those who have the
//! contexts wait for room themselves, all threads of the process are asked, and those parked that are in handlers.
//!
//! A parked thread is as good as one that waits: it is let go on before anything else is asked of it.

use std::collections::BTreeSet;
use std::mem::offset_of;
use std::rc::Rc;
use std::time::{Duration, Instant};

use layout::{ABANDONED, Identity};
use process::{Event, Stop, Stopped};

use super::rings::Rings;
use crate::space::Space;
use crate::tracer::Tracer;
use crate::tracked::{Activity, Tracked};

/// How long a thread is parked, at most. Then it looks by itself whether it is to wait any longer.
const LONGEST: Duration = Duration::from_millis(500);

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// For room in the ring with this number.
    Room(u32),
    /// For a context that is free, perhaps; those who have them wait for room.
    Context,
}

/// A thread that waits, and is stopped.
#[derive(Debug)]
pub(crate) struct Parked {
    thread: Stopped,
    wait: Wait,
    since: Instant,
}

impl Tracer<'_> {
    /// The rings have been looked into: those threads go on that have room now, and those are asked to stop that have none.
    pub(super) fn park_waiting(&mut self) {
        if !self.is_lossless() {
            return;
        }
        // In this order: for a context nobody waits where nobody is left who waits for room.
        self.unpark_done(|wait| matches!(wait, Wait::Room(_)));
        self.unpark_done(|wait| wait == Wait::Context);
        for (tid, ring) in self.reader.drain.waiting() {
            if self.waits_for_room(tid, ring) {
                self.ask_waiting(tid, Wait::Room(ring));
            }
        }
        for number in self.crowded() {
            let threads = self.threads.iter().filter(|(_, tracked)| tracked.space == Some(number));
            for tid in threads.map(|(&tid, _)| tid).collect::<Vec<_>>() {
                self.ask_waiting(tid, Wait::Context);
            }
        }
    }

    /// Lets the parked threads go on of these that do not wait any more.
    fn unpark_done(&mut self, of: impl Fn(Wait) -> bool) {
        let parked = self.threads.iter().filter_map(|(&tid, tracked)| Some((tid, tracked.parked()?)));
        let parked = parked.filter(|(_, parked)| of(parked.wait));
        let waits = |tid, parked: &Parked| parked.since.elapsed() < LONGEST && self.waits(tid, parked.wait);
        let done = parked.filter(|&(tid, parked)| !waits(tid, parked)).map(|(tid, _)| tid);
        done.collect::<Vec<i32>>().into_iter().for_each(|tid| self.unpark(tid));
    }

    /// The address spaces in which threads have looked for a context in vain, where others wait for room.
    fn crowded(&self) -> Vec<u32> {
        let parked = self.threads.values().filter(|tracked| tracked.parked().is_some());
        let numbers: BTreeSet<u32> = parked.filter_map(|tracked| tracked.space).collect();
        numbers.into_iter().filter(|number| self.spaces.get(number).is_some_and(Space::is_crowded)).collect()
    }

    /// Asks a thread to stop that may wait.
    fn ask_waiting(&mut self, tid: i32, wait: Wait) {
        if let Some(tracked) = self.threads.get_mut(&tid).filter(|tracked| !tracked.asked)
            && let Activity::Running(running) = &tracked.activity
        {
            tracked.asked = running.interrupt().is_ok();
            tracked.waits = Some(wait);
        }
    }

    /// Lets a thread go on that was asked to stop; but one that waits is parked.
    pub(crate) fn park_or_go_on(&mut self, thread: Stopped, stop: Stop) -> Result<(), process::Error> {
        let tid = thread.tid();
        let wait = self.threads.get_mut(&tid).and_then(|tracked| tracked.waits.take());
        let wait = wait.filter(|&wait| stop == Stop::Interrupt && self.waits(tid, wait));
        // Who looks for a context is in a handler.
        let wait = match wait {
            Some(Wait::Context) if !self.may_wait(&thread)? => None,
            wait => wait,
        };
        let Some(wait) = wait else { return self.go_on(thread, stop) };
        self.tell_ids(&thread);
        self.set_activity(tid, Activity::Parked(Parked { thread, wait, since: Instant::now() }));
        Ok(())
    }

    /// Whether a thread may wait on.
    fn waits(&self, tid: i32, wait: Wait) -> bool {
        match wait {
            Wait::Room(ring) => self.waits_for_room(tid, ring),
            Wait::Context => {
                let space = self.threads.get(&tid).and_then(|tracked| tracked.space);
                let mut others = self.threads.values().filter(|other| other.space == space);
                space.is_some() && others.any(Tracked::is_parked_for_room)
            }
        }
    }

    /// Whether a thread waits for room in a ring, and is to wait on.
    fn waits_for_room(&self, tid: i32, ring: u32) -> bool {
        let space = self.threads.get(&tid).and_then(|tracked| self.spaces.get(&tracked.space?));
        let rings = space.filter(|space| !space.gives_up).and_then(|space| space.rings.as_ref());
        rings.is_some_and(|rings| {
            !self.departure.is_parting
                && self.reader.drain.waiter(rings, ring) == Some(tid)
                && !has_room(rings, ring)
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
                self.holds.events.push_back(Event::Stopped(thread, Stop::Interrupt));
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

impl Tracked {
    fn is_parked_for_room(&self) -> bool {
        self.parked().is_some_and(|parked| matches!(parked.wait, Wait::Room(_)))
    }
}

impl Space {
    /// Whether a thread has looked for a context in vain since this was asked last.
    fn is_crowded(&self) -> bool {
        let Some(ground) = &self.ground else { return false };
        let place = ground.identity + offset_of!(Identity, crowded) as u64;
        let mut crowded = [0; 4];
        let is_crowded = self.code.memory.peek(place, &mut crowded).is_ok() && crowded != [0; 4];
        // It fails only if the process is gone.
        is_crowded && self.code.memory.poke(place, &[0; 4]).is_ok()
    }
}

/// Whether so much of a ring is free that a thread which waits there may go on for a while; or it waits in vain.
fn has_room(rings: &Rc<Rings>, ring: u32) -> bool {
    let tail = rings.told(ring);
    tail == ABANDONED || rings.head(ring).wrapping_sub(tail) <= rings.size() / 2
}
