//! Lets threads go on without room while the tracer itself has to wait for them.

use std::mem::offset_of;

use layout::Identity;
use process::Stopped;

use super::super::Part;
use super::ProgressTimer;
use crate::jump::Drainer;

impl Drainer<'_, '_> {
    /// Called repeatedly while the tracer waits for a thread of an address space: makes room for
    /// it.
    pub(crate) fn wait_for_waiting(&mut self, number: u32, patience: &mut ProgressTimer) {
        if !self.programs.is_lossless() || !self.reader.drain.is_due() {
            return;
        }
        self.drain(false);
        if !self.reader.drain.is_busy() {
            self.messages.observer.idle();
        }
        let leaves = self.followed.departure.is_parting && self.followed.leaves(number);
        patience.over |=
            leaves && self.followed.departure.gives_up || patience.is_over(self.reader.drain.read());
        if patience.over {
            self.give_up_waiting(number);
            // So that the next thread to be let go does not wait as long again.
            self.followed.departure.gives_up |= leaves;
        }
    }

    /// Called when the tracer's wait is over: threads wait for room again.
    pub(crate) fn no_longer_waiting(&mut self, number: u32, patience: &ProgressTimer) {
        if patience.over && !(self.followed.departure.gives_up && self.followed.leaves(number)) {
            self.set_gives_up(number, 0);
        }
    }

    /// Called when everything to be let go has been: threads that are still there wait for room
    /// again.
    pub(crate) fn nobody_gives_up(&mut self) {
        if std::mem::take(&mut self.followed.departure.gives_up) {
            let numbers: Vec<u32> = self.followed.spaces.keys().copied().collect();
            numbers.into_iter().for_each(|number| self.set_gives_up(number, 0));
        }
    }

    /// Makes the threads of an address space wait neither for room nor for a context, until further
    /// notice.
    pub(crate) fn give_up_waiting(&mut self, number: u32) {
        self.set_gives_up(number, 1);
    }

    fn set_gives_up(&mut self, number: u32, value: u32) {
        let Some(space) = self.followed.spaces.get_mut(&number) else { return };
        let Some(handler_memory) = &space.shared.handler_memory else { return };
        let place = handler_memory.identity + offset_of!(Identity, must_not_wait) as u64;
        space.threads.waits_disabled = value != 0;
        // Fails only if the process is gone.
        let _ = space.code.memory.poke(place, &value.to_le_bytes());
        if value != 0 {
            self.followed.unpark_all(self.messages, Some(number));
        }
    }

    /// Whether a thread may be waiting for room or for a context: if resumed, it gets out of the
    /// handler by itself.
    pub(crate) fn may_wait(&self, thread: &Stopped) -> Result<bool, process::Error> {
        if !self.programs.is_lossless() {
            return Ok(false);
        }
        let number = self.followed.threads.get(&thread.tid()).and_then(|tracked| tracked.space);
        let Some(space) = number.and_then(|number| self.followed.spaces.get(&number)) else {
            return Ok(false);
        };
        let part = space.in_jump(&thread.registers()?).map(|(_, part)| part);
        Ok(matches!(part, Some(Part::Handler | Part::Access { .. })))
    }
}
