//! Reads the rings of all processes in the order of time, and delivers what they hold.
//!
//! In: the rings, as `drain.rs` has them. Out: each record to `deliver/drainer.rs`; losses to the
//! observer. Threads that wait for room are parked.

use std::rc::Rc;
use std::time::Instant;

use process::Stopped;
use rings::Next;
use trace::Items;

use super::super::deliver::Names;
use super::super::deliver::group::Place;
use super::super::forbidden::tell_times;
use super::super::mark::Mark;
use super::super::rings::Rings;
use super::{BATCH, Drain, Source};
use crate::followed::Followed;
use crate::messages::Messages;
use crate::observer::Note;
use crate::programs::Programs;
use crate::reader::Reader;
use crate::sharing::Sharing;
use crate::space::Space;

/// Reads the rings and passes their records on. It also parks threads that wait for room, and frees
/// programs of which nothing is left in a ring.
pub(crate) struct Drainer<'t, 'a> {
    pub(crate) programs: &'t mut Programs,
    pub(crate) followed: &'t mut Followed,
    pub(crate) sharing: &'t mut Sharing,
    pub(crate) reader: &'t mut Reader,
    pub(crate) messages: &'t mut Messages<'a>,
}

impl Drainer<'_, '_> {
    /// Reads all rings in the order of time. With `all`, to the end: records that wait for their
    /// instruction are dropped.
    pub(crate) fn drain(&mut self, all: bool) {
        self.sharing.sign.iter().for_each(|sign| sign.beat());
        tell_times(&self.followed.spaces);
        // The reader is taken out of `self` meanwhile, so that the rest can be borrowed.
        let mut drain = std::mem::replace(&mut self.reader.drain, Drain::new());
        drain.last = Instant::now();
        drain.busy = false;
        self.sharing.numbers.about_to_look();
        drain.look(&self.sharing.numbers, all);
        drain.named = None;
        drain.group.begin();
        if !drain.next.is_empty() {
            drain.clock.set();
        }
        let mut left = if all { u64::MAX } else { BATCH };
        let mut is_refused = false;
        while let Some((place, until)) = drain.oldest() {
            let Some(until) = (if all { Some(until) } else { drain.settled(place, until) }) else { break };
            if drain.group.is_empty() {
                is_refused = !(all || self.messages.observer.is_ready());
            }
            if left == 0 || is_refused {
                break;
            }
            left -= self.drain_ring(&mut drain, place, until, all, left);
            if drain.group.is_full() {
                self.hand_out(&mut drain.group);
                // A thread that waits for room need not wait until all is read.
                drain.tell();
            }
        }
        self.hand_out(&mut drain.group);
        if !drain.next.is_empty() {
            // If the observer takes no more, the records wait for the next regular drain; if only
            // the batch is full, the next drain follows at once.
            drain.busy = left == 0 || drain.busy && !is_refused;
            drain.tell();
            drain.next.clear();
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
        drain.tell_gaps(self.messages.observer);
        self.reader.drain = drain;
        for (pid, why) in liars {
            self.messages.tell_once(Note::Other(format!(
                "process {pid} has invalid records in its own ring ({why}): the ring's records are lost"
            )));
        }
        self.park_waiting();
    }

    /// Drains during other work, if it is due; never while threads are held.
    pub(crate) fn drain_meanwhile(&mut self) {
        if self.followed.holds.events.is_empty() && self.reader.drain.is_due() {
            self.drain(false);
        }
    }

    /// Adds the records of the ring at `place` in `next` to the group: up to a time, at most
    /// `most`, and until it is full. Returns how many.
    fn drain_ring(&mut self, drain: &mut Drain, place: usize, until: u64, all: bool, most: u64) -> u64 {
        let Drain {
            sources,
            next,
            clock,
            group,
            record,
            named,
            nonsense,
            invalid_processes: liars,
            last,
            gaps,
            ..
        } = drain;
        *named = None;
        let front = &mut next[place];
        let source = &mut sources[front.source];
        let mut names = Names { who: &mut source.who, named, gone: source.gone, now: *last };
        let (rings, reader) = (&*source.rings, &mut source.readers[front.ring as usize]);
        let memory = (rings.shared(), rings.ring(front.ring));
        let (all, mut handed, mut is_empty) = (all || source.gone, 0, false);
        while handed < most && front.head.time <= until && !group.is_full() {
            let place = Place { source: front.source, rings, head: &front.head };
            if !self.deliver_similar(place, clock, group) {
                self.deliver(place, clock, group, record, &mut names);
            }
            reader.pass(&front.head);
            handed += 1;
            let bounds = |number| self.sharing.numbers.bounds(number);
            if reader.next_plain(memory, bounds, &mut front.head) {
                continue;
            }
            match reader.next(rings, front.ring, bounds, all, &mut front.head) {
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
        gaps.extend(reader.gap(rings, front.ring).map(|gap| (rings.pid(), gap)));
        if is_empty {
            reader.tell(rings, front.ring);
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
        let number = self.followed.threads.get(&thread.tid()).and_then(|tracked| tracked.space);
        let space = number.and_then(|number| self.followed.spaces.get(&number));
        if let Some(rings) = space.and_then(|space| space.shared.rings.as_ref()).filter(|_| is_named) {
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
        let Some(space) = space.and_then(|number| self.followed.spaces.get(&number)) else { return };
        let (Some(handler_memory), Some(rings)) = (&space.shared.handler_memory, &space.shared.rings) else {
            return;
        };
        let Some(source) = self.reader.drain.sources.iter().find(|source| Rc::ptr_eq(&source.rings, rings))
        else {
            return;
        };
        let tid = source.who.own_id(tid);
        handler_memory.contexts.give_back(&space.code.memory, tid);
        for (ring, reader) in source.readers.iter().enumerate() {
            reader.drop_of(rings, ring as u32, |number| self.sharing.numbers.bounds(number), tid as u32);
        }
    }

    /// Notes a new thread of an address space, for its records.
    pub(crate) fn note_thread(&mut self, tid: i32) {
        let Some(tracked) = self.followed.threads.get(&tid) else { return };
        let space = tracked.space.and_then(|number| self.followed.spaces.get(&number));
        let Some(rings) = space.and_then(|space| space.shared.rings.as_ref()) else { return };
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
            |rings, ring| self.reader.drain.read_position(rings, ring),
            |rings, ring| self.is_claimed(rings, ring),
        )
    }

    /// Whether a handler has claimed the context of a ring; never in a process that is gone.
    fn is_claimed(&self, rings: &Rings, ring: u32) -> bool {
        let has = |space: &&Space| space.shared.rings.as_ref().is_some_and(|own| std::ptr::eq(&**own, rings));
        let space = self.followed.spaces.values().find(has);
        let handler_memory = space.and_then(|space| {
            space.shared.handler_memory.as_ref().map(|handler_memory| (space, handler_memory))
        });
        handler_memory.is_some_and(|(space, handler_memory)| {
            handler_memory.contexts.is_claimed(&space.code.memory, ring)
        })
    }
}
