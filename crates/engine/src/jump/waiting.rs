//! Threads that wait for room in a ring, or for a context, while the tracer waits for them.
//!
//! With `lossless` a thread goes on when there is room, which the tracer makes. Where the tracer waits for such a thread - to deliver
//! it a signal, or to let it go - it reads on meanwhile. That may not be enough: the room is behind the record of a thread
//! that waits for the tracer in its turn, or nobody takes the records from the tracer. Then, after a while without any
//! progress, the threads of that process go on without room, and their records are dropped and counted.

use std::mem::offset_of;
use std::time::{Duration, Instant};

use layout::Identity;
use process::Stopped;

use super::Part;
use crate::tracer::Tracer;

/// How long nothing may be read before waiting threads go on without room. A reader of the output may be slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// How long the tracer has waited for a thread.
#[derive(Debug)]
pub(crate) struct Patience {
    since: Instant,
    /// Records that had been read by then.
    read: u64,
    /// Whether it is over.
    over: bool,
}

impl Patience {
    /// It begins.
    pub(crate) fn new() -> Patience {
        Patience { since: Instant::now(), read: 0, over: false }
    }

    /// Whether nothing was read for too long; `read` is how many records ever were.
    pub(crate) fn is_over(&mut self, read: u64) -> bool {
        if read != self.read {
            (self.read, self.since) = (read, Instant::now());
        }
        self.since.elapsed() > PATIENCE
    }
}

impl Tracer<'_> {
    /// A thread of an address space has not done yet what the tracer waits for: makes room for it.
    pub(crate) fn wait_for_waiting(&mut self, number: u32, patience: &mut Patience) {
        if !self.is_lossless() || !self.reader.drain.is_due() {
            return;
        }
        self.drain(false);
        if !self.reader.drain.is_busy() {
            self.observer.idle();
        }
        let leaves = self.departure.is_parting && self.leaves(number);
        patience.over |= leaves && self.departure.gives_up || patience.is_over(self.reader.drain.read());
        if patience.over {
            self.give_up_waiting(number);
            // Of those who are to be let go the next one does not wait as long again.
            self.departure.gives_up |= leaves;
        }
    }

    /// What the tracer waited for is done: threads wait again where there is no room.
    pub(crate) fn no_longer_waiting(&mut self, number: u32, patience: &Patience) {
        if patience.over && !(self.departure.gives_up && self.leaves(number)) {
            self.set_gives_up(number, 0);
        }
    }

    /// Those who are to be let go have been: whoever is still there waits again.
    pub(crate) fn nobody_gives_up(&mut self) {
        if std::mem::take(&mut self.departure.gives_up) {
            let numbers: Vec<u32> = self.spaces.keys().copied().collect();
            numbers.into_iter().for_each(|number| self.set_gives_up(number, 0));
        }
    }

    /// Whether the processes of an address space are about to be let go.
    fn leaves(&self, number: u32) -> bool {
        let mut threads = self.threads.values().filter(|tracked| tracked.space == Some(number));
        threads.any(|tracked| self.departure.who.includes(tracked.identity.pid))
    }

    /// Nobody of an address space waits, for room or for a context, until it is told otherwise.
    pub(crate) fn give_up_waiting(&mut self, number: u32) {
        self.set_gives_up(number, 1);
    }

    fn set_gives_up(&mut self, number: u32, value: u32) {
        let Some(space) = self.spaces.get_mut(&number) else { return };
        let Some(ground) = &space.ground else { return };
        let place = ground.identity + offset_of!(Identity, gives_up) as u64;
        space.gives_up = value != 0;
        // It fails only if the process is gone.
        let _ = space.code.memory.poke(place, &value.to_le_bytes());
        if value != 0 {
            self.unpark_all(Some(number));
        }
    }

    /// Whether a thread may wait for room, or for a context: it goes on by itself if it is let.
    pub(crate) fn may_wait(&self, thread: &Stopped) -> Result<bool, process::Error> {
        if !self.is_lossless() {
            return Ok(false);
        }
        let number = self.threads.get(&thread.tid()).and_then(|tracked| tracked.space);
        let Some(space) = number.and_then(|number| self.spaces.get(&number)) else { return Ok(false) };
        let part = space.in_jump(&thread.registers()?).map(|(_, part)| part);
        Ok(matches!(part, Some(Part::Handler | Part::Access { .. })))
    }
}
