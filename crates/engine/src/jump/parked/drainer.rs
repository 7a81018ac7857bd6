//! Parks threads that wait for room in a ring, and lets them run once there is room.

use std::time::Instant;

use process::{Stop, Stopped};

use super::{LONGEST, Parked, Wait, has_room};
use crate::jump::Drainer;
use crate::tracked::{Activity, Tracked};

impl Drainer<'_, '_> {
    /// Called when the rings have been looked into: resumes threads that have room now, and stops
    /// those that have none.
    pub(in crate::jump) fn park_waiting(&mut self) {
        if !self.programs.is_lossless() {
            return;
        }
        // In this order: nobody waits for a context if nobody waits for room.
        self.unpark_done(|wait| matches!(wait, Wait::Room(_)));
        self.unpark_done(|wait| wait == Wait::Context);
        for (tid, ring) in self.reader.drain.waiting() {
            if self.waits_for_room(tid, ring) {
                self.followed.ask_waiting(tid, Wait::Room(ring));
            }
        }
        for number in self.followed.crowded() {
            let threads = self.followed.threads.iter().filter(|(_, tracked)| tracked.space == Some(number));
            for tid in threads.map(|(&tid, _)| tid).collect::<Vec<_>>() {
                self.followed.ask_waiting(tid, Wait::Context);
            }
        }
    }

    /// Resumes the parked threads with such a wait that need not wait any longer.
    fn unpark_done(&mut self, of: impl Fn(Wait) -> bool) {
        let parked =
            self.followed.threads.iter().filter_map(|(&tid, tracked)| Some((tid, tracked.parked()?)));
        let parked = parked.filter(|(_, parked)| of(parked.wait));
        let waits = |tid, parked: &Parked| parked.since.elapsed() < LONGEST && self.waits(tid, parked.wait);
        let done = parked.filter(|&(tid, parked)| !waits(tid, parked)).map(|(tid, _)| tid);
        done.collect::<Vec<i32>>().into_iter().for_each(|tid| self.followed.unpark(self.messages, tid));
    }

    /// Resumes a thread that was asked to stop, or parks it if it waits.
    pub(crate) fn park_or_go_on(&mut self, thread: Stopped, stop: Stop) -> Result<(), process::Error> {
        let tid = thread.tid();
        let wait = self.followed.threads.get_mut(&tid).and_then(|tracked| tracked.waits.take());
        let wait = wait.filter(|&wait| stop == Stop::Interrupt && self.waits(tid, wait));
        // A thread that looks for a context is in a handler.
        let wait = match wait {
            Some(Wait::Context) if !self.may_wait(&thread)? => None,
            wait => wait,
        };
        let Some(wait) = wait else { return self.followed.go_on(thread, stop) };
        self.followed.threads.tell_ids(&self.followed.spaces, &thread);
        self.followed
            .threads
            .set_activity(tid, Activity::Parked(Parked { thread, wait, since: Instant::now() }));
        Ok(())
    }

    /// Whether a thread must still wait.
    fn waits(&self, tid: i32, wait: Wait) -> bool {
        match wait {
            Wait::Room(ring) => self.waits_for_room(tid, ring),
            Wait::Context => {
                let space = self.followed.threads.get(&tid).and_then(|tracked| tracked.space);
                let mut others = self.followed.threads.values().filter(|other| other.space == space);
                space.is_some() && others.any(Tracked::is_parked_for_room)
            }
        }
    }

    /// Whether a thread waits for room in a ring, and there is still too little.
    fn waits_for_room(&self, tid: i32, ring: u32) -> bool {
        let space =
            self.followed.threads.get(&tid).and_then(|tracked| self.followed.spaces.get(&tracked.space?));
        let rings =
            space.filter(|space| !space.threads.waits_disabled).and_then(|space| space.shared.rings.as_ref());
        rings.is_some_and(|rings| {
            !self.followed.departure.is_parting
                && self.reader.drain.waiter(rings, ring) == Some(tid)
                && !has_room(rings, ring)
        })
    }
}
