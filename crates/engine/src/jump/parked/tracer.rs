//! Parks threads that wait for room in a ring, and lets them run once there is room.

use std::collections::BTreeSet;
use std::time::Instant;

use process::{Event, Stop, Stopped};

use super::{LONGEST, Parked, Wait, has_room};
use crate::space::Space;
use crate::tracer::Tracer;
use crate::tracked::{Activity, Tracked};

impl Tracer<'_> {
    /// Called when the rings have been looked into: resumes threads that have room now, and stops
    /// those that have none.
    pub(in crate::jump) fn park_waiting(&mut self) {
        if !self.is_lossless() {
            return;
        }
        // In this order: nobody waits for a context if nobody waits for room.
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

    /// Resumes the parked threads with such a wait that need not wait any longer.
    fn unpark_done(&mut self, of: impl Fn(Wait) -> bool) {
        let parked = self.threads.iter().filter_map(|(&tid, tracked)| Some((tid, tracked.parked()?)));
        let parked = parked.filter(|(_, parked)| of(parked.wait));
        let waits = |tid, parked: &Parked| parked.since.elapsed() < LONGEST && self.waits(tid, parked.wait);
        let done = parked.filter(|&(tid, parked)| !waits(tid, parked)).map(|(tid, _)| tid);
        done.collect::<Vec<i32>>().into_iter().for_each(|tid| self.unpark(tid));
    }

    /// The address spaces in which threads have found no free context while others wait for room.
    fn crowded(&self) -> Vec<u32> {
        let parked = self.threads.values().filter(|tracked| tracked.parked().is_some());
        let numbers: BTreeSet<u32> = parked.filter_map(|tracked| tracked.space).collect();
        numbers.into_iter().filter(|number| self.spaces.get(number).is_some_and(Space::is_crowded)).collect()
    }

    /// Asks a thread that may wait to stop.
    fn ask_waiting(&mut self, tid: i32, wait: Wait) {
        if let Some(tracked) = self.threads.get_mut(&tid).filter(|tracked| !tracked.asked)
            && let Activity::Running(running) = &tracked.activity
        {
            tracked.asked = running.interrupt().is_ok();
            tracked.waits = Some(wait);
        }
    }

    /// Resumes a thread that was asked to stop, or parks it if it waits.
    pub(crate) fn park_or_go_on(&mut self, thread: Stopped, stop: Stop) -> Result<(), process::Error> {
        let tid = thread.tid();
        let wait = self.threads.get_mut(&tid).and_then(|tracked| tracked.waits.take());
        let wait = wait.filter(|&wait| stop == Stop::Interrupt && self.waits(tid, wait));
        // A thread that looks for a context is in a handler.
        let wait = match wait {
            Some(Wait::Context) if !self.may_wait(&thread)? => None,
            wait => wait,
        };
        let Some(wait) = wait else { return self.go_on(thread, stop) };
        self.tell_ids(&thread);
        self.set_activity(tid, Activity::Parked(Parked { thread, wait, since: Instant::now() }));
        Ok(())
    }

    /// Whether a thread must still wait.
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

    /// Whether a thread waits for room in a ring, and there is still too little.
    fn waits_for_room(&self, tid: i32, ring: u32) -> bool {
        let space = self.threads.get(&tid).and_then(|tracked| self.spaces.get(&tracked.space?));
        let rings = space.filter(|space| !space.waits_disabled).and_then(|space| space.rings.as_ref());
        rings.is_some_and(|rings| {
            !self.departure.is_parting
                && self.reader.drain.waiter(rings, ring) == Some(tid)
                && !has_room(rings, ring)
        })
    }

    /// Resumes a thread, if it is parked.
    pub(crate) fn unpark(&mut self, tid: i32) {
        if let Some(Parked { thread, .. }) = self.take_parked(tid) {
            let gone_on = self.go_on(thread, Stop::Interrupt);
            self.tell_failure(gone_on);
        }
    }

    /// Resumes all parked threads, of one address space or of all.
    pub(crate) fn unpark_all(&mut self, of: Option<u32>) {
        self.parked_of(of).into_iter().for_each(|tid| self.unpark(tid));
    }

    /// Counts the parked threads of an address space as held: as if they had just been asked to
    /// stop.
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
