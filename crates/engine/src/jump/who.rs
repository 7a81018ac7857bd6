//! Who the threads of a process are, for its records: their ids as the tracer knows them, and their users and names.
//!
//! A handler notes its thread's id as the thread knows it. Where the process is in a pid namespace of its own that is another number
//! than the tracer's, and may be a stranger's: then the ids are translated, by what was noted when each thread was born.
//!
//! Users and names are read from /proc while records are read, anew after 20 milliseconds; those of a thread that ends are read once more before it
//! is gone.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use process::Status;

/// How old a name may be.
const FRESH: Duration = Duration::from_millis(20);

/// Threads whose names are kept, at most. A process can say that records are of any thread.
const MOST: usize = 4096;

/// Each thread's id and process, by the id that it has for itself.
type Inner = HashMap<u32, (u32, u32)>;

/// The threads of one address space.
#[derive(Debug, Default)]
pub(crate) struct Who {
    /// Where ids are translated: the process, and each thread's id and process, by the id that it has for itself.
    inner: Option<(u32, Inner)>,
    names: HashMap<u32, Name>,
}

#[derive(Debug)]
struct Name {
    uid: u32,
    name: String,
    /// When it was read; none if it will not change any more.
    read: Option<Instant>,
}

impl Who {
    /// The threads of a process.
    pub(crate) fn of(pid: i32) -> Who {
        let inner = !process::same_pid_namespace(pid);
        Who { inner: inner.then(|| (pid as u32, HashMap::new())), names: HashMap::new() }
    }

    /// A thread is there.
    pub(crate) fn add(&mut self, tid: i32, pid: i32) {
        if let Some((_, ids)) = &mut self.inner
            && let Ok(status) = Status::read(tid)
        {
            ids.insert(status.inner_id as u32, (tid as u32, pid as u32));
        }
    }

    /// The process and the thread that a record is of, which says that it is of these. One that nobody knows is its process.
    pub(crate) fn ids(&self, pid: u32, tid: u32) -> (u32, u32) {
        match &self.inner {
            None => (pid, tid),
            Some((process, ids)) => ids.get(&tid).map_or((*process, *process), |&(tid, pid)| (pid, tid)),
        }
    }

    /// The id that a thread has for itself.
    pub(crate) fn own_id(&self, tid: i32) -> i32 {
        let Some((_, ids)) = &self.inner else { return tid };
        let found = ids.iter().find(|(_, (outer, _))| *outer == tid as u32);
        found.map_or(tid, |(&own, _)| own as i32)
    }

    /// A thread is about to end.
    pub(crate) fn remember(&mut self, tid: i32) {
        if self.names.len() < MOST {
            let (uid, name) = read(tid).unwrap_or_default();
            self.names.insert(tid as u32, Name { uid, name, read: None });
        }
    }

    /// The user and the name of a thread. If its process is `gone`, they are what they were.
    pub(crate) fn look(&mut self, tid: u32, now: Instant, gone: bool) -> (u32, &str) {
        let is_old = |known: &Name| known.read.is_some_and(|read| now.duration_since(read) >= FRESH);
        let reads = self.names.get(&tid).is_none_or(|known| !gone && is_old(known));
        if reads {
            if self.names.len() >= MOST {
                self.names.clear();
            }
            match read(tid as i32) {
                Some((uid, name)) => drop(self.names.insert(tid, Name { uid, name, read: Some(now) })),
                // It is gone: what was known stays.
                None => {
                    self.names.entry(tid).or_insert(Name { uid: 0, name: String::new(), read: None }).read =
                        None;
                }
            }
        }
        self.names.get(&tid).map_or((0, ""), |known| (known.uid, &known.name))
    }
}

/// The user and the name of a thread that is there.
fn read(tid: i32) -> Option<(u32, String)> {
    Some((Status::read(tid).ok()?.uid, process::name(tid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_a_namespace_are_translated_and_no_stranger_is_named() {
        let mut who = Who { inner: Some((700, HashMap::from([(2, (702, 700))]))), names: HashMap::new() };
        assert_eq!(who.ids(1, 2), (700, 702));
        assert_eq!(who.ids(1, 1), (700, 700), "a thread that nobody knows");
        assert_eq!((who.own_id(702), who.own_id(9)), (2, 9));
        who.inner = None;
        assert_eq!(who.ids(1, 2), (1, 2));
    }

    #[test]
    fn a_name_is_read_again_and_that_of_the_dead_stays() {
        let tid = std::process::id();
        let (mut who, now) = (Who::default(), Instant::now());
        let own = who.look(tid, now, false).1.to_owned();
        assert!(!own.is_empty());
        who.names.get_mut(&tid).expect("it was read").name = "other".to_owned();
        assert_eq!(who.look(tid, now, false).1, "other", "it is fresh");
        assert_eq!(who.look(tid, now + FRESH, true).1, "other", "its process is gone");
        assert_eq!(who.look(tid, now + FRESH, false).1, own);
        // No thread has this number.
        let gone = u32::MAX >> 1;
        who.names.insert(gone, Name { uid: 5, name: "late".to_owned(), read: Some(now) });
        assert_eq!(who.look(gone, now + FRESH, false), (5, "late"));
        (0..20_000).for_each(|tid| assert_eq!(who.look(0x4000_0000 + tid, now, false), (0, "")));
        assert!(who.names.len() <= MOST);
    }
}
