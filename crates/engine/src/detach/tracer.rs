//! Detaches threads and processes: stops each thread, moves it out of our code and lets it go.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use process::{Caller, Status, Stop, Stopped};

use super::{ASK_AFTER, DETACH_TIMEOUT, LOOK_AFTER, Leaving, STOP_TIMEOUT};
use crate::change::Fixed;
use crate::jump::{ProgressTimer, take_ids};
use crate::mapping;
use crate::observer::Note;
use crate::report::Report;
use crate::signal::SIGTRAP_BIT;
use crate::space::Space;
use crate::tracer::{Control, Tracer};
use crate::tracked::{Activity, Tracked};

impl Tracer<'_> {
    /// Removes the probes from all processes and detaches. Processes started by the tracer run on.
    pub fn finish(&mut self, control: &Control) -> Report {
        self.look_for_over();
        let report_states = self.states();
        self.leave_all(control);
        self.tell_losses();
        self.holds.released();
        control.wants_ticks.store(false, Ordering::Relaxed);
        self.report(&report_states)
    }

    /// Removes the probes from all processes and detaches.
    pub(crate) fn leave_all(&mut self, control: &Control) {
        // Ends long runs of handlers, so that they are not waited for.
        let probes = self.programs.values().flat_map(|program| &program.probes);
        probes.filter_map(|probe| probe.counted.as_ref()).for_each(|counted| counted.take_out(None));
        for number in self.spaces.keys().copied().collect::<Vec<_>>() {
            self.restore_all(number);
        }
        self.part_with(Leaving::Everybody, control);
    }

    /// Detaches from the processes that have no probe left and for which no program waits.
    pub(crate) fn leave_unprobed(&mut self, control: &Control) {
        let unprobed = self.unprobed();
        if unprobed.is_empty() {
            return;
        }
        let mut spaces = HashSet::new();
        for tracked in self.threads.values().filter(|tracked| unprobed.contains(&tracked.identity.pid)) {
            // Removes the sites at which the dynamic linker is watched.
            if let Some(space) = tracked.space {
                spaces.insert(space);
            }
        }
        for number in spaces {
            self.restore_all(number);
        }
        self.part_with(Leaving::These(unprobed), control);
        self.departure.who = Leaving::Nobody;
    }

    /// The processes that have no probe and that no program names by process id. Processes that
    /// share memory stay together.
    fn unprobed(&self) -> HashSet<i32> {
        let followed = self.threads.values().filter(|tracked| !tracked.exiting);
        let followed = followed.map(|tracked| (tracked.identity.pid, tracked.space));
        let announced = self.new_threads.announced.values().map(|announced| (announced.pid, announced.space));
        let processes: Vec<(i32, Option<u32>)> = followed.chain(announced).collect();
        let probed = self.spaces.iter().filter(|(_, space)| space.is_probed());
        let mut spaces: HashSet<u32> = probed.map(|(&number, _)| number).collect();
        let is_meant = |pid: i32| {
            let mut programs = self.programs.values().filter(|program| program.inserted);
            programs.any(|program| program.only.as_ref().is_some_and(|only| only.contains(&pid)))
        };
        let meant: HashSet<i32> =
            processes.iter().map(|&(pid, _)| pid).filter(|&pid| is_meant(pid)).collect();
        spaces
            .extend(processes.iter().filter(|(pid, _)| meant.contains(pid)).filter_map(|(_, space)| *space));
        let stays = |pid: i32, space: Option<u32>| {
            meant.contains(&pid) || space.is_some_and(|space| spaces.contains(&space))
        };
        let staying: HashSet<i32> =
            processes.iter().filter(|&&(pid, space)| stays(pid, space)).map(|&(pid, _)| pid).collect();
        processes.into_iter().map(|(pid, _)| pid).filter(|pid| !staying.contains(pid)).collect()
    }

    /// Detaches from processes whose probes have been removed.
    fn part_with(&mut self, who: Leaving, control: &Control) {
        self.unpark_all(None);
        self.departure.who = who;
        for tracked in self.threads.values_mut() {
            if let Activity::Running(running) = &tracked.activity
                && self.departure.who.includes(tracked.identity.pid)
            {
                tracked.asked = running.interrupt().is_ok();
            }
        }
        let mut patience = ProgressTimer::new();
        let mut end = Instant::now() + STOP_TIMEOUT;
        let last = Instant::now() + DETACH_TIMEOUT;
        self.departure.is_parting = true;
        let mut idle = 0;
        while self.anyone_left() && Instant::now() < end.min(last) {
            if self.step(control, false) {
                // Bringing a thread out of its handler may have taken long, and no other thread was
                // handled meanwhile.
                end = Instant::now() + STOP_TIMEOUT;
            } else {
                idle += 1;
                if idle % LOOK_AFTER == 0 {
                    self.look_after_ended();
                }
                let asks = idle % ASK_AFTER == 0 && self.is_lossless();
                if asks && self.ask_leaving() && !self.departure.gives_up {
                    // They wait for records to be read, which may take time.
                    self.departure.gives_up = patience.is_over(self.reader.drain.read());
                    end = Instant::now() + STOP_TIMEOUT;
                }
                if self.departure.gives_up {
                    let threads = self.threads.values().filter(|tracked| self.is_still_there(tracked));
                    let spaces: HashSet<u32> = threads.filter_map(|tracked| tracked.space).collect();
                    spaces.into_iter().for_each(|number| self.give_up_waiting(number));
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        self.departure.is_parting = false;
        self.nobody_gives_up();
        self.drop_anchors();
        self.drain(true);
        let left = self.threads.iter().filter(|(_, tracked)| self.is_still_there(tracked));
        for tid in left.map(|(&tid, _)| tid).collect::<Vec<_>>() {
            self.observer.note(&Note::Other(format!(
                "thread {tid} waits in the kernel and could not be stopped; it is let go where it is, and memory \
                 mapped for the probes stays in its process"
            )));
        }
    }

    /// Asks the threads to stop that were resumed because they may wait for room in a ring. Returns
    /// whether there are any.
    fn ask_leaving(&mut self) -> bool {
        let mut any = false;
        for tracked in self.threads.values_mut() {
            if let Activity::Running(running) = &tracked.activity
                && !tracked.exiting
                && !tracked.asked
                && self.departure.who.includes(tracked.identity.pid)
            {
                tracked.asked = running.interrupt().is_ok();
                any = true;
            }
        }
        any
    }

    /// Restores all bytes of an address space.
    fn restore_all(&mut self, number: u32) {
        let Some(space) = self.spaces.get_mut(&number) else { return };
        if space.planners.is_empty() {
            let fixed = Fixed::of(&process::maps(space.code.process).unwrap_or_default());
            match space.has_jumps() {
                false => space.disarm_traps(&fixed),
                true => space.traps().into_iter().for_each(|address| space.disarm(address)),
            }
        }
        if space.has_jumps() || !space.planners.is_empty() {
            let batch = space.all_out();
            match self.hold(number) {
                Ok(held) => {
                    // Needs to know which jumps lead where, so it comes first.
                    self.bring_back(number, &held);
                    if let Some(space) = self.spaces.get_mut(&number) {
                        space.disarm_all(batch, &held);
                    }
                }
                Err(reason) => self.tell_once(Note::Other(format!(
                    "the probes of a process stay in, without effect, and memory mapped for them: {reason}"
                ))),
            }
        }
    }

    /// Removes threads that have ended unreported: when a process's main thread is killed while
    /// exiting, there is no stop and no report while other threads live.
    fn look_after_ended(&mut self) {
        let ended = |tid: &i32| Status::read(*tid).is_ok_and(|status| status.has_ended());
        for tid in self.threads.keys().copied().filter(ended).collect::<Vec<_>>() {
            self.stop_following(tid);
        }
    }

    /// Whether there are threads that are not detached and not about to end.
    fn anyone_left(&self) -> bool {
        let is_awaited = |tid: &i32| match &self.departure.who {
            Leaving::Everybody => true,
            some => Status::read(*tid).is_ok_and(|status| some.includes(status.tgid)),
        };
        self.new_threads.newborn.keys().any(is_awaited)
            || self.new_threads.announced.keys().any(is_awaited)
            || self.threads.values().any(|tracked| self.is_still_there(tracked))
    }

    /// Whether a thread is to be detached and has not been.
    fn is_still_there(&self, tracked: &Tracked) -> bool {
        !tracked.exiting && self.departure.who.includes(tracked.identity.pid)
    }

    /// Whether a followed thread is to be detached.
    pub(crate) fn is_leaving(&self, tid: i32) -> bool {
        !matches!(self.departure.who, Leaving::Nobody)
            && self.threads.get(&tid).is_some_and(|tracked| self.departure.who.includes(tracked.identity.pid))
    }

    /// Detaches from a thread in `stop`, which must not be a signal's.
    pub(crate) fn leave(&mut self, mut thread: Stopped, stop: Stop) -> Result<(), process::Error> {
        let tid = thread.tid();
        if !matches!(stop, Stop::Interrupt | Stop::Group(_)) {
            thread = thread.settle()?.0;
        }
        if matches!(stop, Stop::Interrupt) && !self.departure.gives_up && self.may_wait(&thread)? {
            // The thread continues by itself when there is room, and others may have to go first.
            // It is asked to stop again later.
            let running = thread.resume(0);
            self.set_activity(tid, Activity::Running(running));
            return Ok(());
        }
        let (mut thread, _) = self.bring_out(thread, Stop::Interrupt)?;
        // A trap it has just hit is still to be reported: that signal would kill an untraced
        // process. (The kernel unblocks such a trap; a SIGTRAP that the program has sent itself and
        // blocks is not ours.)
        let status = Status::read(tid)?;
        if status.own_pending & !status.blocked & SIGTRAP_BIT != 0 {
            // It is not asked to stop meanwhile: that stop would come first, again and again.
            let running = thread.resume(0);
            self.set_activity(tid, Activity::Running(running));
            return Ok(());
        }
        self.bring_home(&mut thread)?;
        take_ids(&thread);
        let Some(tracked) = self.threads.remove(&tid) else { return Ok(()) };
        let Some(number) = tracked.space else {
            thread.detach(0);
            return Ok(());
        };
        // Not for a vfork child: its parent, which shares the space, cannot stop before the child
        // has gone on.
        let has_siblings = self
            .threads
            .values()
            .any(|other| other.space == Some(number) && other.identity.pid == tracked.identity.pid);
        let Some(space) = self.spaces.get_mut(&number) else { return Ok(()) };
        if space.members == 1 {
            return self.detach_last(number, thread);
        }
        let keeps = space.guard.is_some() || !space.mapped().is_empty();
        if has_siblings && space.unmapper.is_none() && keeps {
            space.unmapper = Some(thread);
            return Ok(());
        }
        self.leave_space(number, tid);
        thread.detach(0);
        Ok(())
    }

    /// Detaches from the last thread of an address space, after it has unmapped the slots.
    pub(crate) fn detach_last(&mut self, number: u32, thread: Stopped) -> Result<(), process::Error> {
        let thread = self.unmap(number, thread);
        let space = self.spaces.remove(&number);
        thread?.detach(0);
        self.released_if_alone();
        // Slow if there were many sites, so it comes after the thread has been released.
        drop(space);
        Ok(())
    }

    /// Handles the death of a thread that was kept to unmap the slots.
    pub(crate) fn unmapper_died(&mut self, tid: i32) {
        let held = |space: &Space| space.unmapper.as_ref().is_some_and(|anchor| anchor.tid() == tid);
        let number = self.spaces.iter().find(|(_, space)| held(space)).map(|(&number, _)| number);
        if let Some(number) = number {
            if let Some(space) = self.spaces.get_mut(&number) {
                space.unmapper = None;
            }
            self.leave_space(number, tid);
        }
    }

    /// Detaches from threads that were kept to unmap the slots, where other threads could not be
    /// stopped.
    fn drop_anchors(&mut self) {
        for anchor in self.spaces.values_mut().filter_map(|space| space.unmapper.take()) {
            anchor.detach(0);
        }
    }

    /// Unmaps the memory for probes in an address space, by calls of its last thread.
    fn unmap(&mut self, number: u32, mut thread: Stopped) -> Result<Stopped, process::Error> {
        let Some(space) = self.spaces.get_mut(&number) else { return Ok(thread) };
        let mapped = space.mapped();
        let Some(entrance) = space.entrance() else { return Ok(thread) };
        // Jumps that could not be removed lead there.
        if mapped.is_empty() && space.guard.is_none() || space.has_jumps() {
            return Ok(thread);
        }
        // The thread was brought out of that memory. If it is there nevertheless, the memory stays.
        let rip = thread.registers()?.rip();
        if mapped.iter().any(|&(base, size)| rip.wrapping_sub(base) < size) {
            let pid = space.code.process;
            self.tell_once(Note::Other(format!(
                "a thread of process {pid} is still in memory that was mapped for the probes, which stays there"
            )));
            return Ok(thread);
        }
        // If the process entered a sandbox after the memory was mapped, it stays.
        let Ok(suspended) = Self::allow_call(&mut thread) else { return Ok(thread) };
        // This is the last thread, so nothing else is mapped meanwhile.
        let mappings = process::maps(thread.tid()).unwrap_or_default();
        let spans = mapping::spans(mapped, &mappings);
        if let Some(space) = self.spaces.get_mut(&number) {
            space.strike_memory();
        }
        // What cannot be unmapped stays, without effect.
        let caller = Caller::unfiltered(thread, Stop::Interrupt, entrance);
        let (stopped, stop) = mapping::unmap(caller, &spans)?.0.end()?;
        thread = self.unguard(number, stopped, stop)?.0;
        if suspended {
            thread.restore_seccomp()?;
        }
        // The call has settled the thread once more: a wait that the kernel does not restart must
        // be restarted again.
        let mut registers = thread.registers()?;
        if crate::restart::restart(thread.tid(), &mut registers) {
            thread.set_registers(&registers)?;
        }
        Ok(thread)
    }
}
