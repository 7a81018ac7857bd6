//! Follows new threads and processes from their first event, and stops following the dead.
//!
//! In: a thread's report of a child, the child's first stop, an exec, an end. Out: threads
//! (`Tracked`) that are followed in an address space: their parent's, a copy of it, or after an
//! exec a new one. Before the first instruction in a new space, `refresh` (`modules`) places probes
//! there; in a copy only if it is stale.

use process::{Status, Stop, Stopped};

use super::{Announced, CHECKS_BEFORE_ORPHAN, Newborn, is_its_own_end};
use crate::observer::Note;
use crate::reason::NotProbed;
use crate::space::Space;
use crate::tracer::Tracer;
use crate::tracked::{Activity, Tracked};

impl Tracer<'_> {
    /// Handles a thread's report that it has created another.
    pub(crate) fn announced(&mut self, mut thread: Stopped, child: i32) -> Result<(), process::Error> {
        let checked = self.slot_watcher().check_slot(&thread);
        self.followed.threads.unblock_trap(&self.followed.spaces, &mut thread);
        if self.followed.threads.contains_key(&child) {
            // It was found before.
        } else if let Some(status) = process::traced_here(child) {
            self.told_of(thread.tid(), child, &status);
        } else {
            // A thread that was already detached, by a session that ends, is no longer traced. Or
            // the reporting thread has been killed: then what it reports is its exit status, and
            // resuming it takes it past its last stop.
            self.announce_untold(&thread);
        }
        self.followed.resume(thread, 0);
        checked
    }

    /// Registers a new thread whose parent is known.
    fn told_of(&mut self, parent: i32, child: i32, status: &Status) {
        // The child's space is made now and not when the child stops: the parent's sites, of which
        // the child has copies, may change, and the parent may end.
        let space = self.child_space(parent, child, status.tgid);
        let announced = Announced { space, pid: status.tgid, inner_id: status.inner_id };
        match self.followed.new_threads.newborn.remove(&child) {
            Some(newborn) => self.adopt(newborn.thread, announced),
            None => {
                self.followed.new_threads.announced.insert(child, announced);
            }
        }
    }

    /// Handles the first stop of an unknown thread.
    pub(crate) fn born(&mut self, thread: Stopped) {
        match self.followed.new_threads.announced.remove(&thread.tid()) {
            Some(announced) => self.adopt(thread, announced),
            None => {
                self.session.waiting = true;
                self.followed.new_threads.newborn.insert(thread.tid(), Newborn { thread, ticks: 0 });
            }
        }
    }

    /// Adopts new threads whose parent was killed before it could report them.
    pub(crate) fn look_after_newborn(&mut self) {
        let mut orphans = Vec::new();
        for (&tid, newborn) in &mut self.followed.new_threads.newborn {
            newborn.ticks += 1;
            if newborn.ticks > CHECKS_BEFORE_ORPHAN {
                orphans.push(tid);
            }
        }
        for tid in orphans {
            let Some(newborn) = self.followed.new_threads.newborn.remove(&tid) else { continue };
            let status = Status::read(tid).unwrap_or_else(|_| Status {
                tgid: tid,
                inner_id: tid,
                ..Status::default()
            });
            let relative = self
                .followed
                .threads
                .values()
                .map(|tracked| &tracked.identity)
                .find(|identity| identity.pid == status.tgid || identity.pid == status.parent)
                .map(|identity| identity.tid);
            let space = relative.and_then(|relative| self.child_space(relative, tid, status.tgid));
            let announced = Announced { space, pid: status.tgid, inner_id: status.inner_id };
            self.adopt(newborn.thread, announced);
        }
    }

    /// Starts to follow a new thread in its address space.
    fn adopt(&mut self, mut thread: Stopped, announced: Announced) {
        let tid = thread.tid();
        let Announced { space, pid, inner_id } = announced;
        thread.note_inner_id(inner_id);
        self.followed.threads.insert(tid, Tracked::new(tid, pid, space, Activity::Handled));
        self.sharing.name_thread(tid);
        self.followed.identify(&thread);
        self.drainer().note_thread(tid);
        self.followed.threads.unblock_trap(&self.followed.spaces, &mut thread);
        if self.followed.is_leaving(tid) {
            // It is in its first stop and can be detached there.
            let left = self.detach_thread(thread, Stop::Interrupt);
            self.messages.tell_failure(left);
            return;
        }
        let (lacks_rings, stale, becomes) =
            self.followed.space_of(tid).map_or((false, false, false), |space| {
                (space.shared.lacks_rings, space.modules.stale, space.trust.becomes.is_some())
            });
        if !lacks_rings && !stale && !becomes {
            return self.followed.resume(thread, 0);
        }
        let prepared = self.prepare(thread, lacks_rings, stale);
        self.messages.tell_failure(prepared);
    }

    /// Prepares a new process before it runs: maps the cells of its domain and its own rings, and
    /// places its probes.
    fn prepare(&mut self, thread: Stopped, lacks_rings: bool, stale: bool) -> Result<(), process::Error> {
        let (mut thread, mut stop) = self.domains().change_domain(thread, Stop::Interrupt)?;
        if lacks_rings {
            (thread, stop) = self.memory_mapper().give_rings(thread, stop)?;
        }
        if stale {
            (thread, stop) = self.placer().refresh(thread, stop)?;
        }
        self.followed.go_on(thread, stop)
    }

    /// The address space of a new thread: that of its parent, or a copy of it.
    fn child_space(&mut self, parent: i32, child: i32, pid: i32) -> Option<u32> {
        let tracked = self.followed.threads.get(&parent)?;
        let (space, parent_pid) = (tracked.space, tracked.identity.pid);
        self.followed.departure.who.born(parent_pid, pid);
        let number = space?;
        let space = self.followed.spaces.get_mut(&number)?;
        let shared = parent_pid == pid || process::same_memory(child, parent).unwrap_or(false);
        if shared {
            space.members += 1;
            return Some(number);
        }
        self.messages.observer.forked(parent_pid, pid);
        for program in self.programs.values_mut() {
            if let Some(only) = program.only.as_mut().filter(|only| only.contains(&parent_pid)) {
                only.insert(pid);
            }
        }
        match space.copy(child) {
            Ok(copy) => {
                // If the copy is stale because a module was unmapped, the parent's site is to be
                // forgotten too.
                space.modules.stale |= copy.modules.stale;
                Some(self.add_space(copy))
            }
            Err(error) => {
                if !error.is_gone() {
                    self.messages.tell_once(Note::NotProbed { pid, reason: NotProbed::Failed(error.into()) });
                }
                None
            }
        }
    }

    /// Handles an exec: all other threads of the process are gone.
    pub(crate) fn replaced(&mut self, thread: Stopped, former: i32) -> Result<(), process::Error> {
        let tid = thread.tid();
        let gone: Vec<i32> = self
            .followed
            .threads
            .values()
            .filter(|other| other.identity.pid == tid && other.identity.tid != tid)
            .map(|other| other.identity.tid)
            .collect();
        // The system call was the thread's last instruction there, and has completed.
        for old in gone.into_iter().chain([tid]) {
            if (old == former || former == 0)
                && let Some(waiting) =
                    self.followed.threads.get_mut(&old).and_then(|tracked| tracked.in_slot.take())
            {
                self.messages.commit(&mut self.programs, waiting.records);
            }
            for waiting in self.followed.unexecuted(old) {
                self.messages.drop_records(&mut self.programs, waiting.records);
            }
            if let Some(tracked) = self.followed.threads.remove(&old)
                && let Some(space) = tracked.space
            {
                self.drainer().release_context(Some(space), old);
                self.followed.release_space(&mut self.messages, space, old);
            }
        }
        let space = match Space::open(tid, true, self.followed.spaces.ledger.clone()) {
            Ok(space) => Some(self.add_space(space)),
            Err(error) if error.is_gone() => return Err(error),
            Err(error) => {
                self.messages
                    .tell_once(Note::NotProbed { pid: tid, reason: NotProbed::Failed(error.into()) });
                None
            }
        };
        self.followed.threads.insert(tid, Tracked::new(tid, tid, space, Activity::Handled));
        self.sharing.name_thread(tid);
        if self.followed.is_leaving(tid) {
            return self.detach_thread(thread, Stop::Other);
        }
        if space.is_none() {
            self.followed.resume(thread, 0);
            return Ok(());
        }
        let (thread, stop) = self.placer().refresh(thread, Stop::Other)?;
        match stop {
            Stop::Interrupt | Stop::Group(_) => self.followed.go_on(thread, stop),
            _ => {
                self.followed.resume(thread, 0);
                Ok(())
            }
        }
    }

    /// Handles a thread that is about to end: settles its last displaced instruction.
    pub(crate) fn exiting(&mut self, thread: Stopped) -> Result<(), process::Error> {
        let checked = self.slot_watcher().check_slot(&thread);
        self.drainer().bury_if_inside(&thread);
        if !thread.registers().is_ok_and(|registers| is_its_own_end(&registers)) {
            self.announce_untold(&thread);
        }
        self.followed.stop_following(&mut self.messages, thread.tid());
        self.followed.resume(thread, 0);
        checked
    }

    /// Reports the children of a thread that was killed before it could. After its end, nothing
    /// tells whose copy of the probes a child has.
    fn announce_untold(&mut self, parent: &Stopped) {
        for child in process::children(parent.tid()) {
            if !self.followed.threads.contains_key(&child)
                && !self.followed.new_threads.announced.contains_key(&child)
                && let Some(status) = process::traced_here(child)
            {
                self.told_of(parent.tid(), child, &status);
            }
        }
    }
}
