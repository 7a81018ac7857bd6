//! Who the threads of a process are, for its records: their ids as the tracer knows them, and their users and names.
//!
//! A handler notes its thread's id as the thread knows it. Where the process is in a pid namespace of its own that is another number
//! than the tracer's, and may be a stranger's: then the ids are translated, by what was noted when each thread was born. The process is
//! the one whose rings these are, but for the threads of another one that has the same memory (vfork): these are noted too.
//!
//! Users and names are read from /proc while records are read, anew after 20 milliseconds; those of a thread that ends are read once more before it
//! is gone.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use process::Status;

/// How old a name may be.
const FRESH: Duration = Duration::from_millis(20);

/// Threads whose names are kept, at most. A process can say that records are of any thread. As many others' threads are noted, twice, and
/// those that live.
const MOST: usize = 4096;

/// The threads of one address space.
#[derive(Debug, Default)]
pub(crate) struct Who {
    /// The process.
    process: u32,
    /// Whether ids are translated.
    inner: bool,
    /// The id and the process of threads, by the id that each has for itself: of all where ids are translated, else of those of other
    /// processes.
    noted: Noted,
    names: HashMap<u32, Name>,
}

/// What is noted of threads. A program can make any number of them, so those that are gone are forgotten; but not at once, since their
/// records may not be read yet.
#[derive(Debug, Default)]
struct Noted {
    threads: HashMap<u32, (u32, u32)>,
    /// Those that were noted when there were too many last, some of which may be gone.
    before: HashMap<u32, (u32, u32)>,
    /// How many are too many: not every one more asks who lives, however many do.
    most: usize,
}

impl Noted {
    fn get(&self, own: u32) -> Option<(u32, u32)> {
        if self.threads.is_empty() && self.before.is_empty() {
            return None;
        }
        self.threads.get(&own).or_else(|| self.before.get(&own)).copied()
    }

    /// Notes a thread. `lives` tells which of those that were noted are not gone.
    fn note(&mut self, own: u32, thread: (u32, u32), lives: impl Fn(u32) -> bool) {
        if self.threads.len() >= self.most.max(MOST) {
            let living = self.threads.iter().filter(|(_, (tid, _))| lives(*tid));
            let living: HashMap<_, _> = living.map(|(&own, &thread)| (own, thread)).collect();
            self.most = 2 * living.len();
            self.before = std::mem::replace(&mut self.threads, living);
        }
        self.threads.insert(own, thread);
    }

    /// A thread is another one now.
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

impl Who {
    /// The threads of a process, of which `pid` is one.
    pub(crate) fn of(pid: i32) -> Who {
        let process = Status::read(pid).map_or(pid, |status| status.tgid);
        Who { process: process as u32, inner: !process::same_pid_namespace(pid), ..Who::default() }
    }

    /// A thread is there.
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

    /// The process and the thread that a record is of, which says that it is of this thread. Where ids are translated, one that nobody knows
    /// is its process, and so is a thread that was not told its own.
    #[inline]
    pub(crate) fn ids(&self, tid: u32) -> (u32, u32) {
        match self.noted.get(tid) {
            Some((tid, pid)) => (pid, tid),
            None => (self.process, if self.inner || tid == 0 { self.process } else { tid }),
        }
    }

    /// The thread that has an id for itself.
    pub(crate) fn thread(&self, own: u32) -> Option<i32> {
        let noted = self.noted.get(own).map(|(tid, _)| tid);
        noted.or_else(|| (!self.inner).then_some(own)).and_then(|tid| i32::try_from(tid).ok())
    }

    /// The id that a thread has for itself.
    pub(crate) fn own_id(&self, tid: i32) -> i32 {
        if !self.inner {
            return tid;
        }
        let mut all = self.noted.threads.iter().chain(&self.noted.before);
        all.find(|(_, (outer, _))| *outer == tid as u32).map_or(tid, |(&own, _)| own as i32)
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
        let mut who = Who { process: 700, inner: true, ..Who::default() };
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
        let mut who = Who { process: 700, ..Who::default() };
        who.add(701, 700);
        assert_eq!((who.ids(701), who.ids(800)), ((700, 701), (700, 800)));
        assert_eq!(who.ids(0), (700, 700), "a thread that does not know its own");
        who.add(800, 800);
        assert_eq!((who.ids(701), who.ids(800)), ((700, 701), (800, 800)));
        // The number is used again.
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
        assert!(noted.threads.len() + noted.before.len() <= 2 * MOST + 10);
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
