//! The tracks: one per process, thread and counter.

use trace::Record;

use super::field::track;
use super::wire::{message, number, text};
use crate::map::Map;

/// Most tracks. Threads beyond share one.
const MAX_TRACKS: usize = 1 << 17;

/// The track of threads without one of their own.
pub(super) const OTHERS: u64 = 1;

/// The tracks written so far.
#[derive(Debug, Default)]
pub(super) struct Tracks {
    /// By process.
    processes: Map<u32, u64>,
    /// Known names of processes: a thread may have a name of its own.
    names: Map<u32, String>,
    /// Track and thread name, by process and thread.
    threads: Map<(u32, u32), (u64, String)>,
    /// By process and name.
    counters: Map<(u32, String), u64>,
    last: Option<((u32, u32), u64)>,
    told_others: bool,
    /// Number of tracks.
    count: u64,
    /// Descriptors not written yet: bodies of `TrackDescriptor`.
    pub(super) new: Vec<Vec<u8>>,
}

impl Tracks {
    /// Starts with the known names of processes.
    pub(super) fn new(names: Map<u32, String>) -> Tracks {
        Tracks { names, ..Tracks::default() }
    }

    fn next(&mut self) -> u64 {
        self.count += 1;
        OTHERS + self.count
    }

    fn is_full(&self) -> bool {
        self.count as usize >= MAX_TRACKS
    }

    /// The track of a record's thread.
    pub(super) fn thread(&mut self, record: &Record) -> u64 {
        let key = (record.pid, record.tid);
        if let Some((own, name)) = self.threads.get_mut(&key) {
            let own = *own;
            if self.last.is_some_and(|(last, _)| last == key) && *name == record.name {
                return own;
            }
            self.last = Some((key, own));
            if *name != record.name {
                name.clone_from(&record.name);
                self.new.push(thread(own, record));
                if record.tid == record.pid
                    && let Some(&process) = self.processes.get(&record.pid)
                {
                    self.new.push(self::process(process, record.pid, &record.name));
                }
            }
            return own;
        }
        if self.is_full() {
            if !std::mem::replace(&mut self.told_others, true) {
                self.new.push(plain(OTHERS, None, b"other threads"));
            }
            return OTHERS;
        }
        self.process(record);
        let own = self.next();
        self.threads.insert(key, (own, record.name.clone()));
        self.new.push(thread(own, record));
        own
    }

    /// The existing track of a thread.
    pub(super) fn known(&self, pid: u32, tid: u32) -> u64 {
        self.threads.get(&(pid, tid)).map_or(OTHERS, |(own, _)| *own)
    }

    /// The track of a record's process.
    fn process(&mut self, record: &Record) -> u64 {
        if let Some(&own) = self.processes.get(&record.pid) {
            return own;
        }
        let own = self.next();
        self.processes.insert(record.pid, own);
        let is_first = record.tid == record.pid && !record.name.is_empty();
        let known = if is_first { Some(&record.name) } else { self.names.get(&record.pid) };
        self.new.push(process(own, record.pid, known.map_or("", String::as_str)));
        own
    }

    /// The track of a counter of a record's process; `None` if there are too many.
    pub(super) fn counter(&mut self, record: &Record, name: &str) -> Option<u64> {
        // The lookup needs an owned string; counters are few.
        let key = (record.pid, name.to_owned());
        if let Some(&own) = self.counters.get(&key) {
            return Some(own);
        }
        if self.is_full() {
            return None;
        }
        let process = self.process(record);
        let own = self.next();
        self.counters.insert(key, own);
        self.new.push(counter(own, Some(process), name));
        Some(own)
    }

    /// A new track for a counter without a process.
    pub(super) fn global(&mut self, name: &str) -> u64 {
        let own = self.next();
        self.new.push(counter(own, None, name));
        own
    }
}

fn process(own: u64, pid: u32, name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    number(track::UUID, own, &mut out);
    message(track::PROCESS, &mut out, |out| {
        number(track::PROCESS_PID, id(pid), out);
        if !name.is_empty() {
            text(track::PROCESS_NAME, name.as_bytes(), out);
        }
    });
    out
}

fn thread(own: u64, record: &Record) -> Vec<u8> {
    let mut out = Vec::new();
    number(track::UUID, own, &mut out);
    message(track::THREAD, &mut out, |out| {
        number(track::THREAD_PID, id(record.pid), out);
        number(track::THREAD_TID, id(record.tid), out);
        if !record.name.is_empty() {
            text(track::THREAD_NAME, record.name.as_bytes(), out);
        }
    });
    out
}

/// A process or thread id as a signed number, as the definitions have it.
fn id(number: u32) -> u64 {
    u64::from(number & i32::MAX.cast_unsigned())
}

fn plain(own: u64, parent: Option<u64>, name: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    number(track::UUID, own, &mut out);
    if let Some(parent) = parent {
        number(track::PARENT, parent, &mut out);
    }
    text(track::NAME, name, &mut out);
    out
}

fn counter(own: u64, parent: Option<u64>, name: &str) -> Vec<u8> {
    let mut out = plain(own, parent, name.as_bytes());
    message(track::COUNTER, &mut out, |_| {});
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_not_named_after_one_of_its_threads() {
        let named = |bytes: &[u8], name: &str| bytes.windows(name.len()).any(|part| part == name.as_bytes());
        let record = |pid, tid, name: &str| Record { pid, tid, name: name.to_owned(), ..Record::default() };
        let mut tracks = Tracks::new(Map::from_iter([(10, "server".to_owned())]));
        tracks.thread(&record(10, 11, "worker"));
        tracks.thread(&record(20, 21, "other"));
        tracks.thread(&record(30, 30, "first"));
        let [known, _, unknown, _, first, _] = tracks.new.as_slice() else { panic!("{tracks:?}") };
        assert!(named(known, "server") && !named(known, "worker"));
        assert!(!named(unknown, "other"), "nobody has said how the process is called");
        assert!(named(first, "first"));
    }
}
