//! Finds out how the threads of a process are known, and tells its handlers.

use std::time::Instant;

use process::{Event, Stopped};

use super::space::write_identity;
use super::{ThreadLayout, common_rseq, has_rseq, put_mark, will_have_rseq};
use crate::followed::Followed;
use crate::space::Space;

impl Followed {
    /// Looks at a program that begins now: its libc may have set up more.
    pub(crate) fn identify_begun(&mut self, thread: &Stopped) {
        let Some(number) = self.threads.get(&thread.tid()).and_then(|tracked| tracked.space) else { return };
        if self.spaces.get(&number).is_some_and(|space| space.threads.known.is_some()) {
            self.look(number, Some(thread));
        }
    }

    /// Looks at the address spaces that are due.
    pub(crate) fn identify_again(&mut self) {
        let now = Instant::now();
        let due = |space: &Space| space.threads.looks.due.is_some_and(|due| due <= now);
        let numbers: Vec<u32> =
            self.spaces.iter().filter(|(_, space)| due(space)).map(|(&number, _)| number).collect();
        for number in numbers {
            if !self.holds.events.is_empty() {
                return;
            }
            if let Some(space) = self.spaces.get_mut(&number) {
                space.threads.looks.due = None;
            }
            if self.hold(number).is_ok() {
                self.look(number, None);
            } else if let Some(space) = self.spaces.get_mut(&number) {
                space.threads.looks.plan();
            }
        }
    }

    /// Looks at the threads of an address space, unless that was done. All are held, but for
    /// `thread`, which is being answered.
    pub(crate) fn identify_all(&mut self, number: u32, thread: Option<&Stopped>) {
        if self.spaces.get(&number).is_some_and(|space| space.threads.known.is_none()) {
            self.look(number, thread);
        }
    }

    /// Looks at all threads of an address space, which are held. What was known stays until more is
    /// found.
    fn look(&mut self, number: u32, thread: Option<&Stopped>) {
        let Some(space) = self.spaces.get_mut(&number).filter(|space| space.shared.handler_memory.is_some())
        else {
            return;
        };
        let held = self.holds.events.iter().filter_map(|event| match event {
            Event::Stopped(thread, _) => Some(thread),
            Event::Ended { .. } => None,
        });
        let stopped: Vec<&Stopped> = held.chain(thread).collect();
        let mut threads = Vec::new();
        for tracked in self.threads.values().filter(|tracked| tracked.space == Some(number)) {
            match stopped.iter().find(|thread| thread.tid() == tracked.identity.tid) {
                Some(thread) => threads.push(*thread),
                // It waits in the kernel and cannot be stopped: try later.
                None => return space.threads.looks.plan(),
            }
        }
        let Some(&first) = threads.first() else { return };
        let known = ThreadLayout {
            thread: process::thread_id_offset(&threads).unwrap_or(0),
            rseq: common_rseq(&threads).unwrap_or(0),
        };
        if known.thread == 0 || known.rseq == 0 {
            space.threads.looks.plan();
        }
        if space.threads.known.is_some_and(|before| !known.is_more_than(before)) {
            return;
        }
        let of = thread.unwrap_or(first).tid();
        let pid = self.threads.get(&of).map(|tracked| tracked.identity.pid);
        space.threads.known = Some(known);
        space.threads.pid = pid.unwrap_or(0);
        // It is true of all threads, except for those of another process in the same memory.
        space.threads.unidentified_threads = self
            .threads
            .values()
            .filter(|tracked| tracked.space == Some(number) && Some(tracked.identity.pid) != pid)
            .map(|tracked| tracked.identity.tid)
            .collect();
        write_identity(space);
    }

    /// Checks a new thread, or a forked child's first, before it has run.
    pub(crate) fn identify(&mut self, thread: &Stopped) {
        let tid = thread.tid();
        let Some(tracked) = self.threads.get(&tid) else { return };
        let (pid, Some(number)) = (tracked.identity.pid, tracked.space) else { return };
        let Some(space) = self.spaces.get_mut(&number) else { return };
        let Some(known) = space.threads.known.filter(|_| space.shared.handler_memory.is_some()) else {
            return;
        };
        let mut changed = false;
        if space.threads.pid == 0 {
            // A copy of its parent's address space, in which the page is all zeros.
            space.threads.pid = pid;
            changed = true;
        }
        let is_known = (known.thread == 0 || process::keeps_its_id(thread, known.thread))
            && (known.rseq == 0
                || (has_rseq(thread, known.rseq) || will_have_rseq(thread, known))
                    && put_mark(thread, known.rseq));
        if pid != space.threads.pid || !is_known {
            changed |= space.threads.unidentified_threads.insert(tid);
        }
        if changed {
            write_identity(space);
        }
    }
}
