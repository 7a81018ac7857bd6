//! The threads that are already in the store.

use std::collections::HashMap;

use super::encode::Thread;

/// The most threads that are remembered. Beyond that all are forgotten and written again.
const MAX_THREADS: usize = 1 << 16;

/// User id and name of the threads that were written, by process and thread id.
#[derive(Debug, Default)]
pub(super) struct Threads(HashMap<(u32, u32), (u32, String)>);

impl Threads {
    /// Whether a thread must be written: it was not, or it has changed.
    pub(super) fn is_new(&mut self, thread: &Thread) -> bool {
        let key = (thread.pid, thread.tid);
        if self.0.get(&key).is_some_and(|(uid, name)| *uid == thread.uid && *name == thread.name) {
            return false;
        }
        if self.0.len() >= MAX_THREADS {
            self.0.clear();
        }
        self.0.insert(key, (thread.uid, thread.name.clone()));
        true
    }
}
