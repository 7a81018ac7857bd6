//! Counts records by process and thread.

use crate::event::Event;
use crate::map::Map;

/// Most threads counted individually.
const MAX_THREADS: usize = 1 << 16;

/// A thread and its records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Talker {
    /// The thread id.
    pub(crate) tid: u32,
    /// Its last known name.
    pub(crate) name: String,
    /// Number of records.
    pub(crate) records: u64,
}

/// A process and its records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Process {
    /// The process id.
    pub(crate) pid: u32,
    /// The name of its first thread, or of another one.
    pub(crate) name: String,
    /// Number of records.
    pub(crate) records: u64,
    /// Its threads, in descending order of records.
    pub(crate) threads: Vec<Talker>,
}

/// Counts the records of threads.
#[derive(Debug, Default)]
pub(super) struct Talkers {
    numbers: Map<(u32, u32), usize>,
    all: Vec<((u32, u32), Talker)>,
    last: Option<usize>,
    others: u64,
}

impl Talkers {
    pub(super) fn record(&mut self, event: &Event<'_>) {
        let record = event.record;
        let key = (record.pid, record.tid);
        let number = match self.last.filter(|&last| self.all[last].0 == key) {
            Some(last) => last,
            None => match self.numbers.get(&key) {
                Some(&number) => number,
                None if self.all.len() >= MAX_THREADS => {
                    self.others += 1;
                    return;
                }
                None => {
                    self.all.push((key, Talker { tid: record.tid, ..Talker::default() }));
                    self.numbers.insert(key, self.all.len() - 1);
                    self.all.len() - 1
                }
            },
        };
        self.last = Some(number);
        let (_, talker) = &mut self.all[number];
        talker.records += 1;
        if talker.name != record.name {
            talker.name.clone_from(&record.name);
        }
    }

    /// The processes in descending order of records, and the number of records of threads not
    /// counted individually.
    pub(super) fn end(&mut self) -> (Vec<Process>, u64) {
        let mut processes: Map<u32, Process> = Map::default();
        for ((pid, _), talker) in self.all.drain(..) {
            let process = processes.entry(pid).or_insert_with(|| Process { pid, ..Process::default() });
            process.records += talker.records;
            if process.name.is_empty() || talker.tid == pid {
                process.name.clone_from(&talker.name);
            }
            process.threads.push(talker);
        }
        let mut processes: Vec<Process> = processes.into_values().collect();
        processes.sort_by_key(|process| (std::cmp::Reverse(process.records), process.pid));
        for process in &mut processes {
            process.threads.sort_by_key(|thread| (std::cmp::Reverse(thread.records), thread.tid));
        }
        (processes, self.others)
    }
}
