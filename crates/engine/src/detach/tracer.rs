//! Detaches threads and processes: stops each thread, moves it out of our code and lets it go.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use process::{Status, Stop, Stopped};

use super::{ASK_AFTER, DETACH_TIMEOUT, LOOK_AFTER, Leaving, STOP_TIMEOUT};
use crate::jump::{ProgressTimer, take_ids};
use crate::observer::Note;
use crate::report::Report;
use crate::signal::SIGTRAP_BIT;
use crate::tracer::{Control, Tracer};
use crate::tracked::Activity;

impl Tracer<'_> {
    /// Removes the probes from all processes and detaches. Processes started by the tracer run on.
    pub fn finish(&mut self, control: &Control) -> Report {
        self.disarmer().look_for_over();
        let report_states = self.programs.states();
        self.detach_all(control);
        self.finish_dump(control);
        self.messages.tell_losses(&self.programs);
        self.followed.holds.released();
        control.wants_ticks.store(false, Ordering::Relaxed);
        // For the cost only: nothing is probed any more.
        self.budget.look(self.programs.traps());
        let report = self.report_sources().report(&report_states);
        Report { trap_time: self.budget.spent(), ..report }
    }

    /// Waits until the core dump that is being written is complete, or removes it.
    fn finish_dump(&mut self, control: &Control) {
        let last = Instant::now() + DETACH_TIMEOUT;
        while self.dumps.is_writing() {
            let now = Instant::now();
            if now > last + STOP_TIMEOUT {
                return self.dumps.abandon(&mut self.messages);
            }
            if now > last {
                self.dumps.stop();
            }
            if !self.step(control, false) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Removes the probes from all processes and detaches.
    pub(crate) fn detach_all(&mut self, control: &Control) {
        // Ends long runs of handlers, so that they are not waited for.
        let probes = self.programs.values().flat_map(|program| &program.probes);
        probes.filter_map(|probe| probe.counted.as_ref()).for_each(|counted| counted.take_out(None));
        for number in self.followed.spaces.keys().copied().collect::<Vec<_>>() {
            self.followed.restore_all(&mut self.messages, number);
        }
        self.part_with(Leaving::Everybody, control);
    }

    /// Detaches from the processes that have no probe left and for which no program waits.
    pub(crate) fn leave_unprobed(&mut self, control: &Control) {
        let unprobed = self.followed.unprobed(&self.programs);
        if unprobed.is_empty() {
            return;
        }
        let mut spaces = HashSet::new();
        for tracked in
            self.followed.threads.values().filter(|tracked| unprobed.contains(&tracked.identity.pid))
        {
            // Removes the sites at which the dynamic linker is watched.
            if let Some(space) = tracked.space {
                spaces.insert(space);
            }
        }
        for number in spaces {
            self.followed.restore_all(&mut self.messages, number);
        }
        self.part_with(Leaving::These(unprobed), control);
        self.followed.departure.who = Leaving::Nobody;
    }

    /// Detaches from processes whose probes have been removed.
    fn part_with(&mut self, who: Leaving, control: &Control) {
        self.followed.unpark_all(&mut self.messages, None);
        self.followed.departure.who = who;
        for tracked in self.followed.threads.values_mut() {
            if let Activity::Running(running) = &tracked.activity
                && self.followed.departure.who.includes(tracked.identity.pid)
            {
                tracked.asked = running.interrupt().is_ok();
            }
        }
        let mut patience = ProgressTimer::new();
        let mut end = Instant::now() + STOP_TIMEOUT;
        let last = Instant::now() + DETACH_TIMEOUT;
        self.followed.departure.is_parting = true;
        let mut idle = 0;
        while self.followed.anyone_left() && Instant::now() < end.min(last) {
            if self.step(control, false) {
                // Bringing a thread out of its handler may have taken long, and no other thread was
                // handled meanwhile.
                end = Instant::now() + STOP_TIMEOUT;
            } else {
                idle += 1;
                if idle % LOOK_AFTER == 0 {
                    self.followed.look_after_ended(&mut self.messages);
                }
                let asks = idle % ASK_AFTER == 0 && self.programs.is_lossless();
                if asks && self.followed.ask_leaving() && !self.followed.departure.gives_up {
                    // They wait for records to be read, which may take time.
                    self.followed.departure.gives_up = patience.is_over(self.reader.drain.read());
                    end = Instant::now() + STOP_TIMEOUT;
                }
                if self.followed.departure.gives_up {
                    let threads = self
                        .followed
                        .threads
                        .values()
                        .filter(|tracked| self.followed.is_still_there(tracked));
                    let spaces: HashSet<u32> = threads.filter_map(|tracked| tracked.space).collect();
                    spaces.into_iter().for_each(|number| self.drainer().give_up_waiting(number));
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        self.followed.departure.is_parting = false;
        self.drainer().nobody_gives_up();
        self.followed.drop_anchors();
        self.drainer().drain(true);
        let left = self.followed.threads.iter().filter(|(_, tracked)| self.followed.is_still_there(tracked));
        for tid in left.map(|(&tid, _)| tid).collect::<Vec<_>>() {
            self.messages.observer.note(&Note::Other(format!(
                "thread {tid} waits in the kernel and could not be stopped; it is let go where it is, and memory \
                 mapped for the probes stays in its process"
            )));
        }
    }

    /// Detaches from a thread in `stop`, which must not be a signal's.
    pub(crate) fn detach_thread(&mut self, mut thread: Stopped, stop: Stop) -> Result<(), process::Error> {
        let tid = thread.tid();
        if !matches!(stop, Stop::Interrupt | Stop::Group(_)) {
            thread = thread.settle()?.0;
        }
        if matches!(stop, Stop::Interrupt)
            && !self.followed.departure.gives_up
            && self.drainer().may_wait(&thread)?
        {
            // The thread continues by itself when there is room, and others may have to go first.
            // It is asked to stop again later.
            let running = thread.resume(0);
            self.followed.threads.set_activity(tid, Activity::Running(running));
            return Ok(());
        }
        let (mut thread, _) = self.stepper().bring_out(thread, Stop::Interrupt)?;
        // A trap it has just hit is still to be reported: that signal would kill an untraced
        // process. (The kernel unblocks such a trap; a SIGTRAP that the program has sent itself and
        // blocks is not ours.)
        let status = Status::read(tid)?;
        if status.own_pending & !status.blocked & SIGTRAP_BIT != 0 {
            // It is not asked to stop meanwhile: that stop would come first, again and again.
            let running = thread.resume(0);
            self.followed.threads.set_activity(tid, Activity::Running(running));
            return Ok(());
        }
        self.slot_watcher().bring_home(&mut thread)?;
        take_ids(&thread);
        let Some(tracked) = self.followed.threads.remove(&tid) else { return Ok(()) };
        let Some(number) = tracked.space else {
            thread.detach(0);
            return Ok(());
        };
        // Not for a vfork child: its parent, which shares the space, cannot stop before the child
        // has gone on.
        let has_siblings = self
            .followed
            .threads
            .values()
            .any(|other| other.space == Some(number) && other.identity.pid == tracked.identity.pid);
        let Some(space) = self.followed.spaces.get_mut(&number) else { return Ok(()) };
        if space.members == 1 {
            return self.followed.detach_last(&mut self.messages, number, thread);
        }
        let keeps = space.calls.guard.is_some() || !space.mapped().is_empty();
        if has_siblings && space.unmapper.is_none() && keeps {
            space.unmapper = Some(thread);
            return Ok(());
        }
        self.followed.release_space(&mut self.messages, number, tid);
        thread.detach(0);
        Ok(())
    }
}
