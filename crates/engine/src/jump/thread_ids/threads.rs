//! Writes a thread's ids where its handlers read them.

use layout::thread_id;
use process::Stopped;

use super::set;
use crate::spaces::Spaces;
use crate::threads::Threads;

impl Threads {
    /// Gives a thread that is about to run its ids, if its handlers may need them.
    pub(crate) fn tell_ids(&mut self, spaces: &Spaces, thread: &Stopped) {
        let Some(tracked) = self.get_mut(&thread.tid()).filter(|tracked| !tracked.has_ids) else {
            return;
        };
        let space = tracked.space.and_then(|number| spaces.get(&number));
        if space.is_none_or(|space| space.shared.handler_memory.is_none()) {
            return;
        }
        tracked.has_ids = true;
        if let Some(own) = thread.inner_id() {
            set(thread, thread_id::THREAD, own);
        }
        set(thread, thread_id::PROCESS, tracked.identity.pid as u32);
    }
}
