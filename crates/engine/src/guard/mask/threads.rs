//! Notes the traps before calls that block all signals, and keeps SIGTRAP out of the masks of
//! threads.

use process::Stopped;

use super::blocks_everything;
use crate::signal::SIGTRAP_BIT;
use crate::spaces::Spaces;
use crate::threads::Threads;

impl Threads {
    /// Notes that a thread has hit a trap. Returns the trap it hit before.
    pub(crate) fn met(&mut self, spaces: &Spaces, tid: i32, trap: u64) -> u64 {
        let Some(tracked) = self.get_mut(&tid) else { return 0 };
        let guard = tracked.space.and_then(|space| spaces.get(&space)?.calls.guard.as_ref());
        tracked.calls = guard.map_or(0, |guard| guard.preludes.stops_after(trap));
        std::mem::replace(&mut tracked.last_trap, trap)
    }

    /// Takes SIGTRAP out of the mask of a thread that blocks everything, if its process has the
    /// guard's handler. Returns whether it did.
    pub(crate) fn unblock_trap(&self, spaces: &Spaces, thread: &mut Stopped) -> bool {
        let space = self.get(&thread.tid()).and_then(|tracked| spaces.get(&tracked.space?));
        let guard = space.and_then(|space| space.calls.guard.as_ref());
        let mask = thread.signal_mask().unwrap_or(0);
        guard.is_some_and(|guard| guard.handles)
            && mask & SIGTRAP_BIT != 0
            && blocks_everything(mask)
            && thread.set_signal_mask(mask & !SIGTRAP_BIT).is_ok()
    }
}
