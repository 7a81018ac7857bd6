//! Answers the traps at calls that block all signals, and keeps SIGTRAP out of their mask.

use process::Stopped;

use super::blocks_everything;
use crate::signal::SIGTRAP_BIT;
use crate::tracer::Tracer;

impl Tracer<'_> {
    /// Notes that a thread has hit a trap. Returns the trap it hit before.
    pub(crate) fn met(&mut self, tid: i32, trap: u64) -> u64 {
        let Some(tracked) = self.threads.get_mut(&tid) else { return 0 };
        let guard = tracked.space.and_then(|space| self.spaces.get(&space)?.guard.as_ref());
        tracked.calls = guard.map_or(0, |guard| guard.preludes.stops_after(trap));
        std::mem::replace(&mut tracked.last_trap, trap)
    }

    /// Handles a thread that enters or leaves a system call.
    pub(crate) fn called(&mut self, mut thread: Stopped) {
        let unblocked = self.unblock_trap(&mut thread);
        if let Some(tracked) = self.threads.get_mut(&thread.tid()) {
            tracked.calls = if unblocked { 0 } else { tracked.calls.saturating_sub(1) };
        }
        self.resume(thread, 0);
    }

    /// Takes SIGTRAP out of the mask of a thread that blocks everything, if its process has the
    /// guard's handler. Returns whether it did.
    pub(crate) fn unblock_trap(&mut self, thread: &mut Stopped) -> bool {
        let guard = self.space_of(thread.tid()).and_then(|space| space.guard.as_ref());
        let mask = thread.signal_mask().unwrap_or(0);
        guard.is_some_and(|guard| guard.handles)
            && mask & SIGTRAP_BIT != 0
            && blocks_everything(mask)
            && thread.set_signal_mask(mask & !SIGTRAP_BIT).is_ok()
    }
}
