//! The threads that a store has told of.

use std::collections::HashMap;

use super::encode::Thread;

/// Threads that are remembered, at most; then all are forgotten, and told again.
const MOST: usize = 1 << 16;

/// The threads that were told, as they were then, by process and thread id.
#[derive(Debug, Default)]
pub(super) struct Threads(HashMap<(u32, u32), (u32, String)>);

impl Threads {
    /// Whether a thread is to be told: it was not, or not as it is now.
    pub(super) fn is_new(&mut self, thread: &Thread) -> bool {
        let key = (thread.pid, thread.tid);
        if self.0.get(&key).is_some_and(|(uid, name)| *uid == thread.uid && *name == thread.name) {
            return false;
        }
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(key, (thread.uid, thread.name.clone()));
        true
    }
}
