//! The records of all rings, to the observer.

use std::rc::Rc;
use std::time::{Duration, Instant};

use process::Stopped;
use rings::{Head, Next, Nonsense};
use trace::{Items, Record};

use super::clock::Clock;
use super::handing::{Last, Names};
use super::mark::Mark;
use super::numbers::Numbers;
use super::ring::{Gap, Reader};
use super::rings::Rings;
use super::who::Who;
use crate::observer::{Lost, Note, Observer};
use crate::space::Space;
use crate::tracer::Tracer;

/// How long records may wait in a ring.
pub(crate) const PATIENCE: Duration = Duration::from_millis(3);

/// A drain that finds as many bytes in a ring is followed by another one at once.
const BUSY: u64 = 1 << 16;

/// The records of one drain, at most: then the tracer looks for events.
const BATCH: u64 = 20_000;

/// The records of one ring after which its process is told, at most.
const PORTION: u64 = 512;

/// What reads all rings.
#[derive(Debug)]
pub(crate) struct Drain {
    clock: Clock,
    /// The rings of all processes, and the reader's place in each.
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
    /// The thread whose user and name the record has, if any.
    named: Option<u32>,
    /// How often a ring was emptied since it made no sense; and the processes to be told of, with the reason.
    nonsense: u64,
    liars: Vec<(i32, Nonsense)>,
    /// What was lost in the rings of which processes, and is not told yet.
    gaps: Vec<(i32, Gap)>,
}

/// The rings of one address space.
#[derive(Debug)]
struct Source {
    rings: Rc<Rings>,
    readers: Vec<Reader>,
    /// A process that is gone has nothing more to say than what is there.
    gone: bool,
    /// Whether it was told that this process has written what no handler writes.
    told: bool,
    who: Who,
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
            named: None,
            nonsense: 0,
            liars: Vec::new(),
            gaps: Vec::new(),
        }
    }

    /// Reads these rings, too.
    pub(crate) fn add(&mut self, rings: Rc<Rings>, who: Who) {
        let readers = vec![Reader::default(); rings.count() as usize];
        self.sources.push(Source { rings, readers, gone: false, told: false, who });
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

    /// How often a ring was emptied since there was what no handler writes.
    pub(crate) fn nonsense(&self) -> u64 {
        self.nonsense
    }

    /// Records that were ever taken out.
    pub(crate) fn read(&self) -> u64 {
        self.read
    }

    /// The threads that say that they wait for room, and the numbers of their rings.
    pub(super) fn waiting(&self) -> Vec<(i32, u32)> {
        let rings = |source: &Source| 0..source.rings.count();
        let all = self.sources.iter().flat_map(|source| rings(source).map(move |ring| (source, ring)));
        all.filter_map(|(source, ring)| Some((source.who.thread(source.rings.waiter(ring)?)?, ring)))
            .collect()
    }

    /// The thread that says that it waits for room in a ring.
    pub(super) fn waiter(&self, rings: &Rc<Rings>, ring: u32) -> Option<i32> {
        let source = self.sources.iter().find(|source| Rc::ptr_eq(&source.rings, rings))?;
        source.who.thread(rings.waiter(ring)?)
    }

    /// How far the reader has come in a ring, if it reads that still.
    fn tail(&self, rings: &Rings, ring: u32) -> Option<u64> {
        let source = self.sources.iter().find(|source| std::ptr::eq(&*source.rings, rings))?;
        source.readers.get(ring as usize).map(Reader::tail)
    }

    /// Looks how far the rings are filled, and notes the next record of each that has one.
    fn look(&mut self, numbers: &Numbers, all: bool) {
        self.next.clear();
        for (number, source) in self.sources.iter_mut().enumerate() {
            source.gone = Rc::strong_count(&source.rings) == 1;
            for ring in 0..source.rings.count() {
                let reader = &mut source.readers[ring as usize];
                reader.look(&source.rings, ring);
                reader.provide(&source.rings, ring);
                let (all, mut head) = (all || source.gone, Head::default());
                match reader.next(&source.rings, ring, |number| numbers.bounds(number), all, &mut head) {
                    Next::Record(_) => {
                        self.busy |= reader.filled() >= BUSY;
                        self.next.push(Front { source: number, ring, head });
                    }
                    Next::Nothing | Next::Lost(_) => {
                        reader.stands(&source.rings, ring, self.last);
                        self.gaps
                            .extend(reader.gap(&source.rings, ring).map(|gap| (source.rings.pid(), gap)));
                    }
                    Next::Nonsense(why) => {
                        empty(reader, &source.rings, ring);
                        self.nonsense += 1;
                        if !std::mem::replace(&mut source.told, true) {
                            self.liars.push((source.rings.pid(), why));
                        }
                    }
                }
            }
        }
    }

    /// Tells what was lost for want of room.
    fn tell_gaps(&mut self, observer: &mut dyn Observer) {
        if self.gaps.is_empty() {
            return;
        }
        // Times of records stay what they were told as: no other moment is taken.
        if self.clock.is_unset() {
            self.clock.set();
        }
        for (pid, Gap { from, to, count }) in self.gaps.drain(..) {
            let from = if from == 0 { 0 } else { self.clock.time(from) };
            observer.lost(&Lost { pid: Some(pid), from, to: self.clock.time(to), count });
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
        self.sharing.sign.iter().for_each(|sign| sign.beat());
        self.tell_times();
        // The reader is taken out meanwhile: records go to the rest of the tracer.
        let mut drain = std::mem::replace(&mut self.reader.drain, Drain::new());
        drain.last = Instant::now();
        drain.busy = false;
        self.sharing.numbers.about_to_look();
        drain.look(&self.sharing.numbers, all);
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
                source.readers[front.ring as usize].tell(&source.rings, front.ring);
            }
        }
        // One that has something left is read next time.
        let done = |source: &Source| source.readers.iter().all(|reader| reader.filled() == 0);
        if self.sharing.numbers.wait() && drain.sources.iter().all(done) {
            self.sharing.numbers.all_is_read();
        }
        if !drain.busy {
            drain.sources.retain(|source| Rc::strong_count(&source.rings) > 1 || !done(source));
        }
        let liars = std::mem::take(&mut drain.liars);
        drain.tell_gaps(self.observer);
        self.reader.drain = drain;
        for (pid, why) in liars {
            self.tell_once(Note::Other(format!(
                "process {pid} has written what no handler writes into its own buffer ({why}): what was there is lost"
            )));
        }
        self.park_waiting();
    }

    /// Reads the rings if it is time, in the midst of other work. Threads that are held must not wait for it.
    pub(crate) fn drain_meanwhile(&mut self) {
        if self.holds.events.is_empty() && self.reader.drain.is_due() {
            self.drain(false);
        }
    }

    /// Hands out the records of a ring, which is one of those in `next`, up to a time, and at most so many; and tells its process.
    /// Says how many.
    fn drain_ring(&mut self, drain: &mut Drain, place: usize, until: u64, all: bool, most: u64) -> u64 {
        let Drain { sources, next, clock, record, named, nonsense, liars, last, gaps, .. } = drain;
        *named = None;
        let front = &mut next[place];
        let source = &mut sources[front.source];
        let mut names = Names { who: &mut source.who, named, gone: source.gone, now: *last };
        let (rings, reader) = (&*source.rings, &mut source.readers[front.ring as usize]);
        let (all, mut handed, mut is_empty) = (all || source.gone, 0, false);
        let mut last = Last::default();
        while handed < most && front.head.time <= until {
            if !self.hand_out_like(&mut last, rings, &front.head, clock, record) {
                self.count_taken(&mut last);
                last = self.hand_out(rings, &front.head, clock, record, &mut names);
            }
            reader.pass(&front.head);
            handed += 1;
            match reader.next(
                rings,
                front.ring,
                |number| self.sharing.numbers.bounds(number),
                all,
                &mut front.head,
            ) {
                Next::Record(_) => {}
                other => {
                    if let Next::Nonsense(why) = other {
                        reader.empty();
                        *nonsense += 1;
                        if !std::mem::replace(&mut source.told, true) {
                            liars.push((rings.pid(), why));
                        }
                    }
                    is_empty = true;
                    break;
                }
            }
        }
        self.count_taken(&mut last);
        // Who waits for room need not wait for all of it.
        reader.tell(rings, front.ring);
        gaps.extend(reader.gap(rings, front.ring).map(|gap| (rings.pid(), gap)));
        if is_empty {
            next.swap_remove(place);
        }
        drain.read += handed;
        handed
    }

    /// A thread is about to end. What its records show of it is remembered; and if it was killed in a handler, what it had is
    /// given back.
    pub(crate) fn bury_if_inside(&mut self, thread: &Stopped) {
        let items = |wanted| self.programs.values().any(|program| program.options.items.contains(wanted));
        let is_named = items(Items::UID) || items(Items::PROCNAME);
        let number = self.threads.get(&thread.tid()).and_then(|tracked| tracked.space);
        let space = number.and_then(|number| self.spaces.get(&number));
        if let Some(rings) = space.and_then(|space| space.rings.as_ref()).filter(|_| is_named) {
            let mut sources = self.reader.drain.sources.iter_mut();
            if let Some(source) = sources.find(|source| Rc::ptr_eq(&source.rings, rings)) {
                source.who.remember(thread.tid());
            }
        }
        let inside = match (space, thread.registers()) {
            (Some(space), Ok(registers)) => space.in_jump(&registers).is_some(),
            _ => false,
        };
        if inside {
            self.bury(number, thread.tid());
        }
    }

    /// A thread of an address space is no more: what it had of contexts is given back, and its record that waits for an instruction
    /// dropped.
    pub(crate) fn bury(&mut self, space: Option<u32>, tid: i32) {
        let Some(space) = space.and_then(|number| self.spaces.get(&number)) else { return };
        let (Some(ground), Some(rings)) = (&space.ground, &space.rings) else { return };
        let Some(source) = self.reader.drain.sources.iter().find(|source| Rc::ptr_eq(&source.rings, rings))
        else {
            return;
        };
        let tid = source.who.own_id(tid);
        ground.contexts.give_back(&space.code.memory, tid);
        for (ring, reader) in source.readers.iter().enumerate() {
            reader.drop_of(rings, ring as u32, |number| self.sharing.numbers.bounds(number), tid as u32);
        }
    }

    /// A new thread of an address space is noted, for its records.
    pub(crate) fn note_thread(&mut self, tid: i32) {
        let Some(tracked) = self.threads.get(&tid) else { return };
        let space = tracked.space.and_then(|number| self.spaces.get(&number));
        let Some(rings) = space.and_then(|space| space.rings.as_ref()) else { return };
        let mut sources = self.reader.drain.sources.iter_mut();
        if let Some(source) = sources.find(|source| Rc::ptr_eq(&source.rings, rings)) {
            source.who.add(tid, tracked.identity.pid);
        }
    }

    /// Notes what is in the rings now.
    pub(crate) fn mark(&self) -> Mark {
        let mut mark = Mark::default();
        for source in &self.reader.drain.sources {
            mark.add(&source.rings, |ring| self.is_claimed(&source.rings, ring));
        }
        mark
    }

    /// Whether all is read that was there at a moment.
    pub(crate) fn is_past(&self, mark: &mut Mark) -> bool {
        mark.is_passed(
            |rings, ring| self.reader.drain.tail(rings, ring),
            |rings, ring| self.is_claimed(rings, ring),
        )
    }

    /// Whether a handler has the context of a ring. Of a process that is gone none has.
    fn is_claimed(&self, rings: &Rings, ring: u32) -> bool {
        let has = |space: &&Space| space.rings.as_ref().is_some_and(|own| std::ptr::eq(&**own, rings));
        let space = self.spaces.values().find(has);
        let ground = space.and_then(|space| space.ground.as_ref().map(|ground| (space, ground)));
        ground.is_some_and(|(space, ground)| ground.contexts.is_claimed(&space.code.memory, ring))
    }
}

/// Empties a ring that makes no sense.
fn empty(reader: &mut Reader, rings: &Rings, ring: u32) {
    reader.empty();
    reader.tell(rings, ring);
}
