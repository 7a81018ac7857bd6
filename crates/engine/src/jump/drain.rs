//! The records of all rings, to the observer.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use agent::layout::PROCESSOR_MASK;
use process::Stopped;
use trace::{Items, Record};

use super::clock::Clock;
use super::contexts::Contexts;
use super::mark::Mark;
use super::ring::{Head, Next, Reader};
use crate::tracer::Tracer;

/// How long records may wait in a ring.
pub(crate) const PATIENCE: Duration = Duration::from_millis(3);

/// A drain that finds as many bytes in a ring is followed by another one at once.
const BUSY: u64 = 1 << 16;

/// The records of one drain, at most: then the tracer looks for events.
const BATCH: u64 = 20_000;

/// The records of one ring after which its process is told, at most.
const PORTION: u64 = 512;

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
    /// Whether the last drain has found much, and could hand it out.
    busy: bool,
    /// Records that were ever taken out.
    read: u64,
    /// The rings that have records, and the next of each; used again.
    next: Vec<Front>,
    /// The record that is handed out; its memory is used again.
    record: Record,
    /// What is asked of each thread that has logged in one drain, and of those that have ended since the last: the user and the
    /// name.
    threads: HashMap<u32, (u32, String)>,
    /// The thread whose user and name the record has, if any.
    named: Option<u32>,
}

/// The rings of one process and its forked children.
#[derive(Debug)]
struct Source {
    contexts: Rc<Contexts>,
    readers: Vec<Reader>,
    /// A process that is gone has nothing more to say than what is there.
    gone: bool,
}

/// The next record of a ring.
#[derive(Clone, Copy, Debug)]
struct Front {
    source: usize,
    ring: u32,
    head: Head,
}

impl Drain {
    /// There is nothing to be read yet.
    pub(crate) fn new() -> Drain {
        Drain {
            clock: Clock::new(),
            sources: Vec::new(),
            last: Instant::now(),
            busy: false,
            read: 0,
            next: Vec::new(),
            record: Record::default(),
            threads: HashMap::new(),
            named: None,
        }
    }

    /// Reads the rings of these contexts, too.
    pub(crate) fn add(&mut self, contexts: Rc<Contexts>) {
        let readers = vec![Reader::default(); contexts.count() as usize];
        self.sources.push(Source { contexts, readers, gone: false });
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

    /// Records that were ever taken out.
    pub(crate) fn read(&self) -> u64 {
        self.read
    }

    /// Notes what is in the rings now.
    pub(crate) fn mark(&self) -> Mark {
        let mut mark = Mark::default();
        self.sources.iter().for_each(|source| mark.add(&source.contexts));
        mark
    }

    /// Whether all is read that was there at a moment.
    pub(crate) fn is_past(&self, mark: &mut Mark) -> bool {
        mark.is_passed(|contexts, ring| {
            let source = self.sources.iter().find(|source| std::ptr::eq(&*source.contexts, contexts))?;
            source.readers.get(ring as usize).map(Reader::tail)
        })
    }

    /// Looks how far the rings are filled, and notes the next record of each that has one.
    fn look(&mut self, all: bool) {
        self.next.clear();
        for (number, source) in self.sources.iter_mut().enumerate() {
            source.gone = Rc::strong_count(&source.contexts) == 1;
            for ring in 0..source.contexts.count() {
                let reader = &mut source.readers[ring as usize];
                reader.look(&source.contexts, ring);
                reader.provide(&source.contexts, ring);
                self.busy |= reader.filled() >= BUSY;
                match advance(reader, &source.contexts, ring, all || source.gone) {
                    Some(head) => self.next.push(Front { source: number, ring, head }),
                    None => reader.stands(&source.contexts, ring, self.last),
                }
            }
        }
    }

    /// Which of the rings in `next` has the oldest record, and the time up to which that ring's records are older than all
    /// others.
    fn oldest(&self) -> Option<(usize, u64)> {
        let (mut place, mut least, mut second) = (None, u64::MAX, u64::MAX);
        for (number, front) in self.next.iter().enumerate() {
            let time = front.head.time;
            if place.is_none() || time < least {
                (place, second, least) = (Some(number), least, time);
            } else {
                second = second.min(time);
            }
        }
        Some((place?, second))
    }
}

impl Tracer<'_> {
    /// Reads all rings, in the order of time. With `all`, to the end: what waits for an instruction is dropped.
    pub(crate) fn drain(&mut self, all: bool) {
        if let Some(reader) = self.cells.as_ref().and_then(|cells| cells.reader()) {
            super::pulse::beat(reader);
        }
        // The reader is taken out meanwhile: records go to the rest of the tracer.
        let mut drain = std::mem::replace(&mut self.drain, Drain::new());
        drain.last = Instant::now();
        drain.busy = false;
        drain.look(all);
        drain.named = None;
        if !drain.next.is_empty() {
            drain.clock.set();
        }
        let mut left = if all { u64::MAX } else { BATCH };
        while let Some((place, until)) = drain.oldest() {
            if left == 0 || !(all || self.observer.is_ready()) {
                break;
            }
            left -= self.drain_ring(&mut drain, place, until, all, left.min(PORTION));
        }
        if !drain.next.is_empty() {
            // Records that cannot be handed out wait for the next time; all others are wanted at once.
            drain.busy = left == 0;
            for front in drain.next.drain(..) {
                let source = &drain.sources[front.source];
                source.readers[front.ring as usize].tell(&source.contexts, front.ring);
            }
        }
        if !drain.busy {
            drain.threads.clear();
            // One that has something left is read next time.
            let done = |source: &Source| source.readers.iter().all(|reader| reader.filled() == 0);
            drain.sources.retain(|source| Rc::strong_count(&source.contexts) > 1 || !done(source));
        }
        self.drain = drain;
    }

    /// Reads the rings if it is time, in the midst of other work. Threads that are held must not wait for it.
    pub(crate) fn drain_meanwhile(&mut self) {
        if self.held.is_empty() && self.drain.is_due() {
            self.drain(false);
        }
    }

    /// Hands out the records of a ring, which is one of those in `next`, up to a time, and at most so many; and tells its process.
    /// Says how many.
    fn drain_ring(&mut self, drain: &mut Drain, place: usize, until: u64, all: bool, most: u64) -> u64 {
        let Drain { sources, next, clock, record, threads, named, .. } = drain;
        let front = &mut next[place];
        let source = &mut sources[front.source];
        let (contexts, reader) = (&*source.contexts, &mut source.readers[front.ring as usize]);
        let (all, mut handed, mut empty) = (all || source.gone, 0, false);
        let mut names = Names { threads, named };
        while handed < most && front.head.time <= until {
            self.hand_out(contexts, &front.head, clock, record, &mut names);
            reader.pass(&front.head);
            handed += 1;
            match advance(reader, contexts, front.ring, all) {
                Some(head) => front.head = head,
                None => {
                    empty = true;
                    break;
                }
            }
        }
        // Who waits for room need not wait for all of it.
        reader.tell(contexts, front.ring);
        if empty {
            next.swap_remove(place);
        }
        drain.read += handed;
        handed
    }

    /// Hands a record out, and counts it.
    fn hand_out(
        &mut self,
        contexts: &Contexts,
        head: &Head,
        clock: &Clock,
        record: &mut Record,
        names: &mut Names<'_>,
    ) {
        let Some(&(program_number, probe)) = self.probe_names.get(head.probe as usize) else { return };
        let program = &mut self.programs[program_number];
        let counts = &mut program.probes[probe].counts;
        if head.dropped {
            counts.dropped += u64::from(head.log.is_some());
            return;
        }
        fill(record, head, program.options.items, clock, names);
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

/// The users and names of threads.
struct Names<'a> {
    threads: &'a mut HashMap<u32, (u32, String)>,
    /// The thread whose user and name the record has.
    named: &'a mut Option<u32>,
}

/// Fills a record's header, with the items that were asked for.
fn fill(record: &mut Record, head: &Head, items: Items, clock: &Clock, names: &mut Names<'_>) {
    (record.major, record.minor) = (head.major, head.minor);
    (record.pid, record.tid, record.cpu) = (head.pid, head.tid, head.processor & PROCESSOR_MASK);
    (record.cs, record.eip) = (CODE_SEGMENT, head.site);
    (record.ss, record.esp) = (STACK_SEGMENT, head.rsp);
    record.word = size_of::<u64>();
    if items.contains(Items::TSC) {
        record.time = clock.time(head.time);
    }
    if (items.contains(Items::UID) || items.contains(Items::PROCNAME)) && *names.named != Some(head.tid) {
        let (uid, name) = names.threads.entry(head.tid).or_insert_with(|| look(head.tid as i32));
        record.uid = *uid;
        record.name.clone_from(name);
        *names.named = Some(head.tid);
    }
}

/// The user and the name of a thread.
fn look(tid: i32) -> (u32, String) {
    (process::Status::read(tid).map(|status| status.uid).unwrap_or(0), process::name(tid))
}
