//! Identifies the threads of a process for its records: their ids in the tracer's pid namespace,
//! users and names.
//!
//! A handler records its thread's id as the thread sees it. In a process with its own pid namespace
//! that is another number than the tracer's: it is translated by a table that is filled as threads
//! are born. The process is the one that has the rings, except for threads of a vfork child, which
//! has the same memory: these are in the table, too.
//!
//! Users and names are read from /proc while records are read, again after 20 milliseconds; those
//! of a thread that ends are read once more before it is gone.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use process::Status;

/// The greatest age of a name.
const FRESH: Duration = Duration::from_millis(20);

/// The most threads whose names are kept: a process can claim any thread ids. The table of ids has
/// up to twice as many threads, and those that live.
const MAX_NAMES: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct ThreadNames {
    process: u32,
    /// Whether ids are translated.
    inner: bool,
    /// Thread id and process id by the id that the thread sees: of all threads if ids are
    /// translated, else only of those of other processes.
    noted: Noted,
    names: HashMap<u32, Name>,
}

/// A table of threads. A program can make any number of them, so dead threads are removed; but not
/// at once, since their records may not be read yet.
#[derive(Debug, Default)]
struct Noted {
    threads: HashMap<u32, (u32, u32)>,
    /// The table before the last cleaning; some of its threads may be dead.
    before: HashMap<u32, (u32, u32)>,
    /// The size that starts the next cleaning, so that not every further thread causes one, however
    /// many live.
    most: usize,
}

impl Noted {
    fn get(&self, own: u32) -> Option<(u32, u32)> {
        if self.threads.is_empty() && self.before.is_empty() {
            return None;
        }
        self.threads.get(&own).or_else(|| self.before.get(&own)).copied()
    }

    /// Adds a thread. `lives` tells which threads still live.
    fn note(&mut self, own: u32, thread: (u32, u32), lives: impl Fn(u32) -> bool) {
        if self.threads.len() >= self.most.max(MAX_NAMES) {
            let living = self.threads.iter().filter(|(_, (tid, _))| lives(*tid));
            let living: HashMap<_, _> = living.map(|(&own, &thread)| (own, thread)).collect();
            self.most = 2 * living.len();
            self.before = std::mem::replace(&mut self.threads, living);
        }
        self.threads.insert(own, thread);
    }

    /// Removes the entry of an id whose thread needs none any more.
    fn forget(&mut self, own: u32) {
        self.threads.remove(&own);
        self.before.remove(&own);
    }
}

#[derive(Debug)]
struct Name {
    uid: u32,
    name: String,
    /// When it was read; none if it will not change any more.
    read: Option<Instant>,
}

impl ThreadNames {
    /// The threads of the process to which thread `pid` belongs.
    pub(crate) fn of(pid: i32) -> ThreadNames {
        let process = Status::read(pid).map_or(pid, |status| status.tgid);
        ThreadNames {
            process: process as u32,
            inner: !process::same_pid_namespace(pid),
            ..ThreadNames::default()
        }
    }

    /// Adds a thread.
    pub(crate) fn add(&mut self, tid: i32, pid: i32) {
        let lives = |tid: u32| Status::read(tid as i32).is_ok();
        if self.inner {
            if let Ok(status) = Status::read(tid) {
                self.noted.note(status.inner_id as u32, (tid as u32, pid as u32), lives);
            }
        } else if pid as u32 != self.process {
            self.noted.note(tid as u32, (tid as u32, pid as u32), lives);
        } else {
            self.noted.forget(tid as u32);
        }
    }

    /// The process and the thread of a record with this thread id. If ids are translated and the id
    /// is unknown, or the thread had no id, the thread is shown as its process.
    #[inline]
    pub(crate) fn ids(&self, tid: u32) -> (u32, u32) {
        match self.noted.get(tid) {
            Some((tid, pid)) => (pid, tid),
            None => (self.process, if self.inner || tid == 0 { self.process } else { tid }),
        }
    }

    /// The thread that sees itself as `own`.
    pub(crate) fn thread(&self, own: u32) -> Option<i32> {
        let noted = self.noted.get(own).map(|(tid, _)| tid);
        noted.or_else(|| (!self.inner).then_some(own)).and_then(|tid| i32::try_from(tid).ok())
    }

    /// The id of a thread as it sees it.
    pub(crate) fn own_id(&self, tid: i32) -> i32 {
        if !self.inner {
            return tid;
        }
        let mut all = self.noted.threads.iter().chain(&self.noted.before);
        all.find(|(_, (outer, _))| *outer == tid as u32).map_or(tid, |(&own, _)| own as i32)
    }

    /// Keeps the user and the name of a thread that is about to end.
    pub(crate) fn remember(&mut self, tid: i32) {
        if self.names.len() < MAX_NAMES {
            let (uid, name) = read(tid).unwrap_or_default();
            self.names.insert(tid as u32, Name { uid, name, read: None });
        }
    }

    /// The user and the name of a thread. If its process is `gone`, known ones are not read again.
    pub(crate) fn look(&mut self, tid: u32, now: Instant, gone: bool) -> (u32, &str) {
        let is_old = |known: &Name| known.read.is_some_and(|read| now.duration_since(read) >= FRESH);
        let reads = self.names.get(&tid).is_none_or(|known| !gone && is_old(known));
        if reads {
            if self.names.len() >= MAX_NAMES {
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

/// Reads the user and the name of a thread.
fn read(tid: i32) -> Option<(u32, String)> {
    Some((Status::read(tid).ok()?.uid, process::name(tid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_a_namespace_are_translated_and_no_stranger_is_named() {
        let mut who = ThreadNames { process: 700, inner: true, ..ThreadNames::default() };
        who.noted.note(2, (702, 700), |_| true);
        assert_eq!(who.ids(2), (700, 702));
        assert_eq!(who.ids(1), (700, 700), "a thread that nobody knows");
        assert_eq!((who.own_id(702), who.own_id(9)), (2, 9));
        assert_eq!((who.thread(2), who.thread(9)), (Some(702), None));
        who.inner = false;
        assert_eq!(who.ids(1), (700, 1));
    }

    #[test]
    fn a_thread_of_another_process_in_the_same_memory_is_that_process() {
        let mut who = ThreadNames { process: 700, ..ThreadNames::default() };
        who.add(701, 700);
        assert_eq!((who.ids(701), who.ids(800)), ((700, 701), (700, 800)));
        assert_eq!(who.ids(0), (700, 700), "a thread that does not know its own");
        who.add(800, 800);
        assert_eq!((who.ids(701), who.ids(800)), ((700, 701), (800, 800)));
        // The id is used again.
        who.add(800, 700);
        assert_eq!(who.ids(800), (700, 800));
    }

    #[test]
    fn of_any_number_of_threads_the_living_and_the_latest_are_known() {
        let mut noted = Noted::default();
        let lives = |tid: u32| tid < 10;
        for tid in 0..100_000 {
            noted.note(tid, (tid, 7), lives);
            assert!(noted.get(tid.saturating_sub(100)).is_some() && noted.get(tid % 10).is_some());
        }
        assert!(noted.threads.len() + noted.before.len() <= 2 * MAX_NAMES + 10);
    }

    #[test]
    fn a_name_is_read_again_and_that_of_the_dead_stays() {
        let tid = std::process::id();
        let (mut who, now) = (ThreadNames::default(), Instant::now());
        let own = who.look(tid, now, false).1.to_owned();
        assert!(!own.is_empty());
        who.names.get_mut(&tid).expect("it was read").name = "other".to_owned();
        assert_eq!(who.look(tid, now, false).1, "other", "it is fresh");
        assert_eq!(who.look(tid, now + FRESH, true).1, "other", "its process is gone");
        assert_eq!(who.look(tid, now + FRESH, false).1, own);
        // No thread has this id.
        let gone = u32::MAX >> 1;
        who.names.insert(gone, Name { uid: 5, name: "late".to_owned(), read: Some(now) });
        assert_eq!(who.look(gone, now + FRESH, false), (5, "late"));
        (0..20_000).for_each(|tid| assert_eq!(who.look(0x4000_0000 + tid, now, false), (0, "")));
        assert!(who.names.len() <= MAX_NAMES);
    }
}
