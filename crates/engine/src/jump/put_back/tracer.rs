//! Moves the threads that are held back to their sites.

use process::{Event, Stop};

use super::put_back;
use crate::hold::Held;
use crate::tracer::Tracer;

impl Tracer<'_> {
    /// Moves all threads of an address space back that are on the way to a trampoline.
    pub(crate) fn bring_back(&mut self, number: u32, _held: &Held) {
        let Some(space) = self.spaces.get(&number) else { return };
        for event in &mut self.holds.events {
            let Event::Stopped(thread, stop) = event else { continue };
            let by_trap = *stop == Stop::Signal(libc::SIGTRAP);
            if self.threads.get(&thread.tid()).and_then(|tracked| tracked.space) == Some(number) {
                // It fails only if the thread has been killed.
                let _ = put_back(space, thread, by_trap);
            }
        }
    }
}
