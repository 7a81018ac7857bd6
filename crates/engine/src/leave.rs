//! The end of a session, or of one process's part in it: every byte is as before, and every thread runs on untraced.
//!
//! The sites are restored at once. Then each thread is stopped for a moment, brought out of slot or stub to the
//! place where the unprobed program would be, and let go. The last one of an address space unmaps the slots
//! before it goes: by then nobody can be in them.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use process::{Caller, Status, Stop, Stopped};

use crate::change::Fixed;
use crate::jump::{Patience, take_ids};
use crate::mapping;
use crate::observer::Note;
use crate::report::Report;
use crate::signal::SIGTRAP_BIT;
use crate::space::Space;
use crate::tracer::{Control, Tracer};
use crate::tracked::{Activity, Tracked};

/// How long threads may take to stop. One that the kernel keeps in an uninterruptible wait may never do.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long all of it may take, whatever threads do meanwhile.
const LAST: Duration = Duration::from_secs(120);

/// Rounds without news after which threads are looked for that have ended unreported.
const LOOK_AFTER: u32 = 64;

/// Rounds without news after which threads are asked again that were let run on.
const ASK_AFTER: u32 = 16;

/// The letting go of processes.
#[derive(Debug, Default)]
pub(crate) struct Departure {
    pub(crate) who: Leaving,
    /// Whether those wait no longer for room in a ring.
    pub(crate) gives_up: bool,
    /// Whether threads are being let go just now.
    pub(crate) is_parting: bool,
}

/// Which processes are being let go.
#[derive(Debug, Default)]
pub(crate) enum Leaving {
    /// None.
    #[default]
    Nobody,
    /// These, and their children.
    These(HashSet<i32>),
    /// All: the session ends.
    Everybody,
}

impl Leaving {
    pub(crate) fn includes(&self, pid: i32) -> bool {
        match self {
            Leaving::Nobody => false,
            Leaving::These(processes) => processes.contains(&pid),
            Leaving::Everybody => true,
        }
    }

    /// A process has a child: it goes where its parent goes.
    pub(crate) fn born(&mut self, parent: i32, child: i32) {
        if let Leaving::These(processes) = self
            && processes.contains(&parent)
        {
            processes.insert(child);
        }
    }
}

impl Tracer<'_> {
    /// Takes the probes out of all processes and lets them go. A process that was started here runs on.
    pub fn finish(&mut self, control: &Control) -> Report {
        self.look_for_over();
        let report_states = self.states();
        self.leave_all(control);
        self.tell_losses();
        self.holds.released();
        control.wants_ticks.store(false, Ordering::Relaxed);
        self.report(&report_states)
    }

    /// Takes the probes out of all processes and lets them go.
    pub(crate) fn leave_all(&mut self, control: &Control) {
        // Threads that are in long runs are not waited for.
        let probes = self.programs.values().flat_map(|program| &program.probes);
        probes.filter_map(|probe| probe.counted.as_ref()).for_each(|counted| counted.take_out(None));
        for number in self.spaces.keys().copied().collect::<Vec<_>>() {
            self.restore_all(number);
        }
        self.part_with(Leaving::Everybody, control);
    }

    /// Lets the processes go that have no probe left and for which no program waits.
    pub(crate) fn leave_unprobed(&mut self, control: &Control) {
        let unprobed = self.unprobed();
        if unprobed.is_empty() {
            return;
        }
        let mut spaces = HashSet::new();
        for tracked in self.threads.values().filter(|tracked| unprobed.contains(&tracked.identity.pid)) {
            // Those that the dynamic linker is watched by.
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

    /// The processes that have no probe, and that no program is meant for by their number. Processes that share their memory
    /// stay together.
    fn unprobed(&self) -> HashSet<i32> {
        let followed = self.threads.values().filter(|tracked| !tracked.exiting);
        let followed = followed.map(|tracked| (tracked.identity.pid, tracked.space));
        let announced = self.births.announced.values().map(|announced| (announced.pid, announced.space));
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

    /// Lets processes go whose probes have been taken out.
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
        let mut patience = Patience::new();
        let mut end = Instant::now() + PATIENCE;
        let last = Instant::now() + LAST;
        self.departure.is_parting = true;
        let mut idle = 0;
        while self.anyone_left() && Instant::now() < end.min(last) {
            if self.step(control, false) {
                // To bring one out of its handler may have taken long, in which nobody else was answered.
                end = Instant::now() + PATIENCE;
            } else {
                idle += 1;
                if idle % LOOK_AFTER == 0 {
                    self.look_after_ended();
                }
                let asks = idle % ASK_AFTER == 0 && self.is_lossless();
                if asks && self.ask_leaving() && !self.departure.gives_up {
                    // They wait for records to be read: that may take its time.
                    self.departure.gives_up = patience.is_over(self.reader.drain.read());
                    end = Instant::now() + PATIENCE;
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

    /// Asks the threads to stop that were let run on, since they may wait for room in a ring. Says whether there are any.
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
                    // Before it is forgotten which jumps lead where.
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

    /// A process's first thread that was killed on its way out has ended without a stop, and nothing more is reported
    /// of it while others live.
    fn look_after_ended(&mut self) {
        let ended = |tid: &i32| Status::read(*tid).is_ok_and(|status| status.has_ended());
        for tid in self.threads.keys().copied().filter(ended).collect::<Vec<_>>() {
            self.set_out(tid);
        }
    }

    /// Whether there are threads that have not been let go and are not about to end.
    fn anyone_left(&self) -> bool {
        let is_awaited = |tid: &i32| match &self.departure.who {
            Leaving::Everybody => true,
            some => Status::read(*tid).is_ok_and(|status| some.includes(status.tgid)),
        };
        self.births.newborn.keys().any(is_awaited)
            || self.births.announced.keys().any(is_awaited)
            || self.threads.values().any(|tracked| self.is_still_there(tracked))
    }

    /// Whether a thread is to be let go, and has not been.
    fn is_still_there(&self, tracked: &Tracked) -> bool {
        !tracked.exiting && self.departure.who.includes(tracked.identity.pid)
    }

    /// Whether a thread that is followed is to be let go.
    pub(crate) fn is_leaving(&self, tid: i32) -> bool {
        !matches!(self.departure.who, Leaving::Nobody)
            && self.threads.get(&tid).is_some_and(|tracked| self.departure.who.includes(tracked.identity.pid))
    }

    /// Lets a thread go that is in `stop`, which is no signal's.
    pub(crate) fn leave(&mut self, mut thread: Stopped, stop: Stop) -> Result<(), process::Error> {
        let tid = thread.tid();
        if !matches!(stop, Stop::Interrupt | Stop::Group(_)) {
            thread = thread.settle()?.0;
        }
        if matches!(stop, Stop::Interrupt) && !self.departure.gives_up && self.may_wait(&thread)? {
            // It comes out by itself when there is room; others may have to come out first. It is asked again.
            let running = thread.resume(0);
            self.set_activity(tid, Activity::Running(running));
            return Ok(());
        }
        let (mut thread, _) = self.bring_out(thread, Stop::Interrupt)?;
        // A trap that it has just met is still to be reported: it would kill an untraced process.
        // (The kernel unblocks it for that; one that the program has sent itself and blocks is not of ours.)
        let status = Status::read(tid)?;
        if status.own_pending & !status.blocked & SIGTRAP_BIT != 0 {
            // It is not asked to stop meanwhile: that would come first, again and again.
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
        // Not for a vfork child: its parent, the other one there, cannot stop before it has gone on.
        let has_siblings = self
            .threads
            .values()
            .any(|other| other.space == Some(number) && other.identity.pid == tracked.identity.pid);
        let Some(space) = self.spaces.get_mut(&number) else { return Ok(()) };
        if space.members == 1 {
            return self.weigh(number, thread);
        }
        let keeps = space.guard.is_some() || !space.mapped().is_empty();
        if has_siblings && space.anchor.is_none() && keeps {
            space.anchor = Some(thread);
            return Ok(());
        }
        self.leave_space(number, tid);
        thread.detach(0);
        Ok(())
    }

    /// Lets the last thread of an address space go, after it has unmapped the slots.
    pub(crate) fn weigh(&mut self, number: u32, thread: Stopped) -> Result<(), process::Error> {
        let thread = self.unmap(number, thread);
        let space = self.spaces.remove(&number);
        thread?.detach(0);
        self.released_if_alone();
        // That takes its time where there were many sites.
        drop(space);
        Ok(())
    }

    /// A thread that was kept to unmap slots has been killed.
    pub(crate) fn lose_anchor(&mut self, tid: i32) {
        let held = |space: &Space| space.anchor.as_ref().is_some_and(|anchor| anchor.tid() == tid);
        let number = self.spaces.iter().find(|(_, space)| held(space)).map(|(&number, _)| number);
        if let Some(number) = number {
            if let Some(space) = self.spaces.get_mut(&number) {
                space.anchor = None;
            }
            self.leave_space(number, tid);
        }
    }

    /// Lets threads go that were kept for others, which could not be stopped.
    fn drop_anchors(&mut self) {
        for anchor in self.spaces.values_mut().filter_map(|space| space.anchor.take()) {
            anchor.detach(0);
        }
    }

    /// Unmaps what was mapped for probes in an address space whose last thread this is.
    fn unmap(&mut self, number: u32, mut thread: Stopped) -> Result<Stopped, process::Error> {
        let Some(space) = self.spaces.get_mut(&number) else { return Ok(thread) };
        let mapped = space.mapped();
        let Some(entrance) = space.entrance() else { return Ok(thread) };
        // Jumps that could not be taken out lead there.
        if mapped.is_empty() && space.guard.is_none() || space.has_jumps() {
            return Ok(thread);
        }
        // It has been brought out. Should it be there all the same, what it executes stays.
        let rip = thread.registers()?.rip();
        if mapped.iter().any(|&(base, size)| rip.wrapping_sub(base) < size) {
            let pid = space.code.process;
            self.tell_once(Note::Other(format!(
                "a thread of process {pid} is still in memory that was mapped for the probes, which stays there"
            )));
            return Ok(thread);
        }
        // A sandbox that came after the areas were mapped: they stay.
        let Ok(suspended) = Self::allow_call(&mut thread) else { return Ok(thread) };
        // It is the last thread there: nobody else maps anything meanwhile.
        let mappings = process::maps(thread.tid()).unwrap_or_default();
        let spans = mapping::spans(mapped, &mappings);
        if let Some(space) = self.spaces.get_mut(&number) {
            space.strike_memory();
        }
        // What cannot be unmapped stays, and does nothing.
        let caller = Caller::unfiltered(thread, Stop::Interrupt, entrance);
        let (stopped, stop) = mapping::unmap(caller, &spans)?.0.end()?;
        thread = self.unguard(number, stopped, stop)?.0;
        if suspended {
            thread.restore_seccomp()?;
        }
        // The call has settled it once more: a wait that the kernel does not restart is to be restarted again.
        let mut registers = thread.registers()?;
        if crate::restart::restart(thread.tid(), &mut registers) {
            thread.set_registers(&registers)?;
        }
        Ok(thread)
    }
}
