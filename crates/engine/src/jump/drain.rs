//! Reads the records of all rings, in the order of time, and passes them to the observer.

use std::rc::Rc;
use std::time::{Duration, Instant};

use process::Stopped;
use rings::{Head, Invalid, Next};
use trace::{Items, Record};

use super::clock::Clock;
use super::deliver::{Last, Names};
use super::mark::Mark;
use super::numbers::Numbers;
use super::ring::{Gap, Reader};
use super::rings::Rings;
use super::thread_names::ThreadNames;
use crate::observer::{Lost, Note, Observer};
use crate::space::Space;
use crate::tracer::Tracer;

/// How long records may wait in a ring.
pub(crate) const DRAIN_INTERVAL: Duration = Duration::from_millis(3);

/// If a drain finds this many bytes in a ring, the next drain follows at once.
const BUSY: u64 = 1 << 16;

/// The most records of one drain: then the tracer looks for events again.
const BATCH: u64 = 20_000;

/// The most records of one ring before its process is told that there is room.
const PORTION: u64 = 512;

/// The reader of all rings.
#[derive(Debug)]
pub(crate) struct Drain {
    clock: Clock,
    /// The rings of all processes, with the reader's position in each.
    sources: Vec<Source>,
    last: Instant,
    /// Whether the last drain found much, and could pass it on.
    busy: bool,
    /// Records read so far.
    read: u64,
    /// The next record of each ring that has one; reused by each drain.
    next: Vec<Front>,
    /// The record passed to the observer; its memory is reused.
    record: Record,
    /// The thread whose user and name are in `record`, if any.
    named: Option<u32>,
    /// How many rings were emptied because their content was invalid; and the processes still to be
    /// reported, with the reason.
    nonsense: u64,
    invalid_processes: Vec<(i32, Invalid)>,
    /// What was lost in rings and is not reported yet, with the process.
    gaps: Vec<(i32, Gap)>,
}

/// The rings of one address space.
#[derive(Debug)]
struct Source {
    rings: Rc<Rings>,
    readers: Vec<Reader>,
    /// Whether the process is gone: its rings get no more records.
    gone: bool,
    /// Whether it was reported that this process has written what no handler writes.
    told: bool,
    who: ThreadNames,
}

/// The next record of a ring.
#[derive(Clone, Copy, Debug)]
struct Front {
    source: usize,
    ring: u32,
    head: Head,
}

impl Drain {
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
            invalid_processes: Vec::new(),
            gaps: Vec::new(),
        }
    }

    /// Reads these rings, too.
    pub(crate) fn add(&mut self, rings: Rc<Rings>, who: ThreadNames) {
        let readers = vec![Reader::default(); rings.count() as usize];
        self.sources.push(Source { rings, readers, gone: false, told: false, who });
    }

    pub(crate) fn any(&self) -> bool {
        !self.sources.is_empty()
    }

    /// Whether it is time to read.
    pub(crate) fn is_due(&self) -> bool {
        self.any() && (self.busy || self.last.elapsed() >= DRAIN_INTERVAL)
    }

    /// Whether the rings fill fast.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    /// How many rings were emptied because of content that no handler writes.
    pub(crate) fn nonsense(&self) -> u64 {
        self.nonsense
    }

    /// Records read so far.
    pub(crate) fn read(&self) -> u64 {
        self.read
    }

    /// The threads that claim to wait for room, with the numbers of their rings.
    pub(super) fn waiting(&self) -> Vec<(i32, u32)> {
        let rings = |source: &Source| 0..source.rings.count();
        let all = self.sources.iter().flat_map(|source| rings(source).map(move |ring| (source, ring)));
        all.filter_map(|(source, ring)| Some((source.who.thread(source.rings.waiter(ring)?)?, ring)))
            .collect()
    }

    /// The thread that claims to wait for room in a ring.
    pub(super) fn waiter(&self, rings: &Rc<Rings>, ring: u32) -> Option<i32> {
        let source = self.sources.iter().find(|source| Rc::ptr_eq(&source.rings, rings))?;
        source.who.thread(rings.waiter(ring)?)
    }

    /// The reader's position in a ring; none if it is not read any more.
    fn tail(&self, rings: &Rings, ring: u32) -> Option<u64> {
        let source = self.sources.iter().find(|source| std::ptr::eq(&*source.rings, rings))?;
        source.readers.get(ring as usize).map(Reader::tail)
    }

    /// Reads how far each ring is filled, and notes the next record of each.
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
                        reader.check_stalled(&source.rings, ring, self.last);
                        self.gaps
                            .extend(reader.gap(&source.rings, ring).map(|gap| (source.rings.pid(), gap)));
                    }
                    Next::Nonsense(why) => {
                        empty(reader, &source.rings, ring);
                        self.nonsense += 1;
                        if !std::mem::replace(&mut source.told, true) {
                            self.invalid_processes.push((source.rings.pid(), why));
                        }
                    }
                }
            }
        }
    }

    /// Reports what was lost for want of room.
    fn tell_gaps(&mut self, observer: &mut dyn Observer) {
        if self.gaps.is_empty() {
            return;
        }
        // Without records, no moment is taken just for this: times stay what they were.
        if self.clock.is_unset() {
            self.clock.set();
        }
        for (pid, Gap { from, to, count }) in self.gaps.drain(..) {
            let from = if from == 0 { 0 } else { self.clock.time(from) };
            observer.lost(&Lost { pid: Some(pid), from, to: self.clock.time(to), count });
        }
    }

    /// The index in `next` of the ring with the oldest record; and the oldest time of all other
    /// rings: up to it, that ring's records come first.
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
    /// Reads all rings in the order of time. With `all`, to the end: records that wait for their
    /// instruction are dropped.
    pub(crate) fn drain(&mut self, all: bool) {
        self.sharing.sign.iter().for_each(|sign| sign.beat());
        self.tell_times();
        // The reader is taken out of `self` meanwhile, so that the rest of the tracer can be
        // borrowed.
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
            // If the observer takes no more, the records wait for the next regular drain; if only
            // the batch is full, the next drain follows at once.
            drain.busy = left == 0;
            for front in drain.next.drain(..) {
                let source = &drain.sources[front.source];
                source.readers[front.ring as usize].tell(&source.rings, front.ring);
            }
        }
        // A ring that is not empty is read again next time.
        let done = |source: &Source| source.readers.iter().all(|reader| reader.filled() == 0);
        if self.sharing.numbers.wait() && drain.sources.iter().all(done) {
            self.sharing.numbers.all_is_read();
        }
        if !drain.busy {
            drain.sources.retain(|source| Rc::strong_count(&source.rings) > 1 || !done(source));
        }
        let liars = std::mem::take(&mut drain.invalid_processes);
        drain.tell_gaps(self.observer);
        self.reader.drain = drain;
        for (pid, why) in liars {
            self.tell_once(Note::Other(format!(
                "process {pid} has written what no handler writes into its own buffer ({why}): what was there is lost"
            )));
        }
        self.park_waiting();
    }

    /// Drains during other work, if it is due; never while threads are held.
    pub(crate) fn drain_meanwhile(&mut self) {
        if self.holds.events.is_empty() && self.reader.drain.is_due() {
            self.drain(false);
        }
    }

    /// Passes on the records of the ring at `place` in `next`: up to a time, and at most `most`;
    /// then tells its process. Returns how many.
    fn drain_ring(&mut self, drain: &mut Drain, place: usize, until: u64, all: bool, most: u64) -> u64 {
        let Drain {
            sources, next, clock, record, named, nonsense, invalid_processes: liars, last, gaps, ..
        } = drain;
        *named = None;
        let front = &mut next[place];
        let source = &mut sources[front.source];
        let mut names = Names { who: &mut source.who, named, gone: source.gone, now: *last };
        let (rings, reader) = (&*source.rings, &mut source.readers[front.ring as usize]);
        let (all, mut handed, mut is_empty) = (all || source.gone, 0, false);
        let mut last = Last::default();
        while handed < most && front.head.time <= until {
            if !self.deliver_similar(&mut last, rings, &front.head, clock, record) {
                self.count_taken(&mut last);
                last = self.deliver(rings, &front.head, clock, record, &mut names);
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
        // A thread that waits for room need not wait until all is read.
        reader.tell(rings, front.ring);
        gaps.extend(reader.gap(rings, front.ring).map(|gap| (rings.pid(), gap)));
        if is_empty {
            next.swap_remove(place);
        }
        drain.read += handed;
        handed
    }

    /// Called when a thread is about to end: keeps its name for its records; and if it was killed
    /// in a handler, gives back its context.
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
            self.release_context(number, thread.tid());
        }
    }

    /// Gives back the contexts of a thread that has ended, and drops its record that waits for an
    /// instruction.
    pub(crate) fn release_context(&mut self, space: Option<u32>, tid: i32) {
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

    /// Notes a new thread of an address space, for its records.
    pub(crate) fn note_thread(&mut self, tid: i32) {
        let Some(tracked) = self.threads.get(&tid) else { return };
        let space = tracked.space.and_then(|number| self.spaces.get(&number));
        let Some(rings) = space.and_then(|space| space.rings.as_ref()) else { return };
        let mut sources = self.reader.drain.sources.iter_mut();
        if let Some(source) = sources.find(|source| Rc::ptr_eq(&source.rings, rings)) {
            source.who.add(tid, tracked.identity.pid);
        }
    }

    /// Notes how far all rings are filled now.
    pub(crate) fn mark(&self) -> Mark {
        let mut mark = Mark::default();
        for source in &self.reader.drain.sources {
            mark.add(&source.rings, |ring| self.is_claimed(&source.rings, ring));
        }
        mark
    }

    /// Whether everything has been read that was logged before a mark.
    pub(crate) fn is_past(&self, mark: &mut Mark) -> bool {
        mark.is_passed(
            |rings, ring| self.reader.drain.tail(rings, ring),
            |rings, ring| self.is_claimed(rings, ring),
        )
    }

    /// Whether a handler has claimed the context of a ring; never in a process that is gone.
    fn is_claimed(&self, rings: &Rings, ring: u32) -> bool {
        let has = |space: &&Space| space.rings.as_ref().is_some_and(|own| std::ptr::eq(&**own, rings));
        let space = self.spaces.values().find(has);
        let ground = space.and_then(|space| space.ground.as_ref().map(|ground| (space, ground)));
        ground.is_some_and(|(space, ground)| ground.contexts.is_claimed(&space.code.memory, ring))
    }
}

/// Empties a ring with invalid content.
fn empty(reader: &mut Reader, rings: &Rings, ring: u32) {
    reader.empty();
    reader.tell(rings, ring);
}
