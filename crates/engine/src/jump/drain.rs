//! The records of all rings, to the observer.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use agent::layout::PROCESSOR_MASK;
use process::Stopped;
use trace::{Items, Record};

use super::clock::Clock;
use super::contexts::Contexts;
use super::ring::{Head, Next, Reader};
use crate::tracer::Tracer;

/// How long records may wait in a ring.
pub(crate) const PATIENCE: Duration = Duration::from_millis(3);

/// A drain that finds as many bytes in a ring is followed by another one at once.
const BUSY: u64 = 1 << 16;

/// The records of one drain, at most: then the tracer looks for events.
const BATCH: usize = 20_000;

/// The segments of 64-bit programs, as Linux has them.
const CODE_SEGMENT: u32 = 0x33;
const STACK_SEGMENT: u32 = 0x2b;

/// What reads all rings.
#[derive(Debug)]
pub(crate) struct Drain {
    clock: Clock,
    /// The contexts of all processes, and the reader's place in each ring.
    sources: Vec<Source>,
    last: Instant,
    /// Whether the last drain has found much.
    busy: bool,
    /// The record that is handed out; its memory is used again.
    record: Record,
    /// What is asked of each thread that has logged in one drain, and of those that have ended since the last: the user and the
    /// name.
    threads: HashMap<u32, (u32, String)>,
}

/// The rings of one process and its forked children.
#[derive(Debug)]
struct Source {
    contexts: Rc<Contexts>,
    readers: Vec<Reader>,
}

impl Drain {
    /// There is nothing to be read yet.
    pub(crate) fn new() -> Drain {
        Drain {
            clock: Clock::new(),
            sources: Vec::new(),
            last: Instant::now(),
            busy: false,
            record: Record::default(),
            threads: HashMap::new(),
        }
    }

    /// Reads the rings of these contexts, too.
    pub(crate) fn add(&mut self, contexts: Rc<Contexts>) {
        let readers = vec![Reader::default(); contexts.count() as usize];
        self.sources.push(Source { contexts, readers });
    }

    /// Whether there are rings.
    pub(crate) fn any(&self) -> bool {
        !self.sources.is_empty()
    }

    /// Whether records may have waited long enough.
    pub(crate) fn is_due(&self) -> bool {
        self.any() && (self.busy || self.last.elapsed() >= PATIENCE)
    }

    /// Whether the rings fill fast.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }
}

impl Tracer<'_> {
    /// Reads all rings, in the order of time. With `all`, to the end: what waits for an instruction is dropped.
    pub(crate) fn drain(&mut self, all: bool) {
        // The reader is taken out meanwhile: records go to the rest of the tracer.
        let mut drain = std::mem::replace(&mut self.drain, Drain::new());
        drain.last = Instant::now();
        drain.busy = false;
        let mut clock_is_set = false;
        let mut next: Vec<(usize, u32, Head)> = Vec::new();
        for (number, source) in drain.sources.iter_mut().enumerate() {
            // A process that is gone has nothing more to say than what is there.
            let gone = Rc::strong_count(&source.contexts) == 1;
            for ring in 0..source.contexts.count() {
                let reader = &mut source.readers[ring as usize];
                reader.look(&source.contexts, ring);
                drain.busy |= reader.filled() >= BUSY;
                if let Some(record) = advance(reader, &source.contexts, ring, all || gone) {
                    next.push((number, ring, record));
                }
            }
        }
        let mut handed = 0;
        // The ring whose record is the oldest.
        while let Some(place) = (0..next.len()).min_by_key(|&place| next[place].2.time) {
            let (number, ring, record) = next[place];
            if !std::mem::replace(&mut clock_is_set, true) {
                drain.clock.set();
            }
            let source = &mut drain.sources[number];
            let reader = &mut source.readers[ring as usize];
            let contexts = &source.contexts;
            self.hand_out(contexts, &record, &drain.clock, &mut drain.record, &mut drain.threads);
            reader.pass(&record);
            handed += 1;
            let over = handed >= BATCH && !all;
            let gone = Rc::strong_count(contexts) == 1;
            match advance(reader, contexts, ring, all || gone).filter(|_| !over) {
                Some(record) => next[place].2 = record,
                None => {
                    reader.tell(contexts, ring);
                    next.swap_remove(place);
                }
            }
            if over {
                drain.busy = true;
                for (number, ring, _) in next.drain(..) {
                    let source = &drain.sources[number];
                    source.readers[ring as usize].tell(&source.contexts, ring);
                }
            }
            if handed % 512 == 0 {
                // Those who wait for room need not wait for all of it.
                for (number, ring, _) in &next {
                    let source = &drain.sources[*number];
                    source.readers[*ring as usize].tell(&source.contexts, *ring);
                }
            }
        }
        if !drain.busy {
            drain.threads.clear();
            drain.sources.retain(|source| Rc::strong_count(&source.contexts) > 1);
        }
        self.drain = drain;
    }

    /// Hands a record out, and counts it.
    fn hand_out(
        &mut self,
        contexts: &Contexts,
        head: &Head,
        clock: &Clock,
        record: &mut Record,
        threads: &mut HashMap<u32, (u32, String)>,
    ) {
        let Some(&(program_number, probe)) = self.probe_names.get(head.probe as usize) else { return };
        let program = &mut self.programs[program_number];
        let counts = &mut program.probes[probe].counts;
        if head.dropped {
            counts.dropped += u64::from(head.log.is_some());
            return;
        }
        fill(record, head, program.options.items, clock, threads);
        record.probe = probe as u32;
        if let Some(log) = head.log {
            record.data.resize(log, 0);
            contexts.shared().copy(head.data(), &mut record.data);
            match self.observer.record(program_number, record) {
                Ok(()) => counts.logged += 1,
                Err(_) => counts.dropped += 1,
            }
        }
        if head.traces > 0 {
            (record.major, record.minor) = (0, 0);
            record.data.resize(head.traces, 0);
            contexts.shared().copy(head.data() + head.log.unwrap_or(0), &mut record.data);
            // Nobody counts these.
            let _ = self.observer.record(program_number, record);
        }
    }

    /// A thread is about to end. What its records show of it is remembered; and if it was killed in a handler, what it had is
    /// given back.
    pub(crate) fn bury_if_inside(&mut self, thread: &Stopped) {
        let items = |wanted| self.programs.iter().any(|program| program.options.items.contains(wanted));
        if self.drain.any() && (items(Items::UID) || items(Items::PROCNAME)) {
            let tid = thread.tid();
            self.drain.threads.insert(tid as u32, look(tid));
        }
        let space = self.space_of(thread.tid());
        let inside = match (space, thread.registers()) {
            (Some(space), Ok(registers)) => space.in_jump(&registers).is_some(),
            _ => false,
        };
        if inside {
            // As the thread knows itself.
            let tid = process::Status::read(thread.tid()).map_or(thread.tid(), |status| status.inner_id);
            self.bury(tid);
        }
    }

    /// A thread is no more: what it had of contexts is given back, and its record that waits for an instruction dropped.
    pub(crate) fn bury(&mut self, tid: i32) {
        for source in &self.drain.sources {
            source.contexts.give_back(tid);
            for (ring, reader) in source.readers.iter().enumerate() {
                reader.drop_of(&source.contexts, ring as u32, tid as u32);
            }
        }
    }
}

/// The next record of a ring. One that makes no sense is emptied.
fn advance(reader: &mut Reader, contexts: &Contexts, ring: u32, all: bool) -> Option<Head> {
    match reader.next(contexts, ring, all) {
        Next::Record(record) => Some(record),
        Next::Nothing => None,
        Next::Nonsense => {
            reader.empty();
            reader.tell(contexts, ring);
            None
        }
    }
}

/// Fills a record's header, with the items that were asked for.
fn fill(
    record: &mut Record,
    head: &Head,
    items: Items,
    clock: &Clock,
    threads: &mut HashMap<u32, (u32, String)>,
) {
    (record.major, record.minor) = (head.major, head.minor);
    (record.pid, record.tid, record.cpu) = (head.pid, head.tid, head.processor & PROCESSOR_MASK);
    (record.cs, record.eip) = (CODE_SEGMENT, head.site);
    (record.ss, record.esp) = (STACK_SEGMENT, head.rsp);
    record.word = size_of::<u64>();
    if items.contains(Items::TSC) {
        record.time = clock.time(head.time).as_nanos() as u64;
    }
    if items.contains(Items::UID) || items.contains(Items::PROCNAME) {
        let (uid, name) = threads.entry(head.tid).or_insert_with(|| look(head.tid as i32));
        record.uid = *uid;
        record.name.clone_from(name);
    }
}

/// The user and the name of a thread.
fn look(tid: i32) -> (u32, String) {
    (process::Status::read(tid).map(|status| status.uid).unwrap_or(0), process::name(tid))
}
