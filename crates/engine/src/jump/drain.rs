//! The state of the reader of all rings: the rings, the next record of each, and which is the
//! oldest.
//!
//! In: how far each ring is filled. Out: the ring whose record is next in the order of time, and up
//! to which time it may be read. `drain/drainer.rs` reads the records in that order.

use std::rc::Rc;
use std::time::{Duration, Instant};

use rings::{Head, Invalid, Next};
use trace::Record;

use super::clock::{Clock, counter};
use super::deliver::group::Group;
use super::numbers::Numbers;
use super::ring::{Gap, Reader};
use super::rings::Rings;
use super::thread_names::ThreadNames;
use crate::observer::{Lost, Observer};

pub(super) mod drainer;

/// How long records may wait in a ring.
pub(crate) const DRAIN_INTERVAL: Duration = Duration::from_millis(3);

/// If a drain finds this many bytes in a ring, the next drain follows at once.
const BUSY: u64 = 1 << 16;

/// The most records of one drain: then the tracer looks for events again.
const BATCH: u64 = 20_000;

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
    /// The TSC before the first ring was looked at, and after the last one.
    looked: (u64, u64),
    /// The records to be passed to the observer, and one that is filled in; their memory is reused.
    group: Group,
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
            looked: (0, 0),
            group: Group::new(),
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
    fn read_position(&self, rings: &Rings, ring: u32) -> Option<u64> {
        let source = self.sources.iter().find(|source| std::ptr::eq(&*source.rings, rings))?;
        source.readers.get(ring as usize).map(Reader::tail)
    }

    /// Reads how far each ring is filled, and notes the next record of each.
    fn look(&mut self, numbers: &Numbers, all: bool) {
        self.next.clear();
        let before = counter();
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
        self.looked = (before, counter());
    }

    /// Up to which time a front may be read, if `until` is the oldest time of all other rings;
    /// `None` if it is too new.
    ///
    /// The rings are looked at one after the other. A thread may log into a ring that was looked at
    /// already, move to another processor, and log into the next ring: of the two records only the
    /// second is seen. So records of the time in which the rings were looked at wait for the next
    /// drain. A record of a later time is not one of those: another processor's TSC is ahead, or
    /// its process has forged it.
    fn settled(&self, front: usize, until: u64) -> Option<u64> {
        let ((before, after), time) = (self.looked, self.next[front].head.time);
        if time <= before { Some(until.min(before)) } else { (time > after).then_some(until) }
    }

    /// Tells the processes how far their rings were read.
    fn tell(&self) {
        for front in &self.next {
            let source = &self.sources[front.source];
            source.readers[front.ring as usize].tell(&source.rings, front.ring);
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

/// Empties a ring with invalid content.
fn empty(reader: &mut Reader, rings: &Rings, ring: u32) {
    reader.empty();
    reader.tell(rings, ring);
}
