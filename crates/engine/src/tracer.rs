//! The tracer's event loop: one thread waits for events of all followed threads and handles each.
//!
//! In: stops of threads, and requests. Out: each is handed to the method or role for it; then the
//! thread goes on.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use process::{Event, Stop, Stopped};
use vm::State as Machine;

use crate::budget::Budget;
use crate::cache::Cache;
use crate::dump::{Dumper, Dumps};
use crate::error::Error;
use crate::followed::Followed;
use crate::hit::handler_runner::HandlerRunner;
use crate::jump::{Domains, Drainer, Heartbeat, MemoryMapper, NextLook, Stepper};
use crate::ledger::Ledger;
use crate::messages::Messages;
use crate::observer::Observer;
use crate::pace::Pace;
use crate::placing::placer::Placer;
use crate::programs::Programs;
use crate::reader::Reader;
use crate::report::sources::ReportSources;
use crate::retire::Disarmer;
use crate::session::Session;
use crate::sharing::Sharing;
use crate::signal::slot_watcher::SlotWatcher;
use crate::space::Space;
use crate::tracked::{Activity, Tracked};

/// Flags shared with other threads and signal handlers. A caller that sets [`Control::stop`] also
/// interrupts the tracer's wait with a signal to its thread.
#[derive(Debug, Default)]
pub struct Control {
    /// Ends the session.
    pub stop: Arc<AtomicBool>,
    /// Set by the tracer while it needs interrupts at the normal rate (every few hundredths of a
    /// second).
    pub wants_ticks: AtomicBool,
    /// Set by the tracer while it needs interrupts at the slow rate (every second).
    pub wants_rare_ticks: AtomicBool,
    /// Set by the tracer while it needs interrupts at the fast rate (every few thousandths of a
    /// second).
    pub wants_quick_ticks: AtomicBool,
    /// Set by the tracer once the probes in all currently followed processes are armed or refused.
    pub placed: AtomicBool,
}

/// Traces processes: all their threads and all their children.
pub struct Tracer<'a> {
    pub(crate) programs: Programs,
    pub(crate) followed: Followed,
    /// Memory shared between the processes and the tracer.
    pub(crate) sharing: Sharing,
    pub(crate) reader: Reader,
    pub(crate) cache: Cache,
    pub(crate) messages: Messages<'a>,
    pub(crate) machine: Box<Machine>,
    pub(crate) dumps: Dumps,
    pub(crate) session: Session,
    pace: Pace,
    pub(crate) budget: Budget,
}

impl std::fmt::Debug for Tracer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Tracer {{ threads: {}, spaces: {} }}",
            self.followed.threads.len(),
            self.followed.spaces.len()
        )
    }
}

impl<'a> Tracer<'a> {
    /// A tracer without programs that follows no process yet. It must be used by the thread that
    /// made it. Its changes are entered in the ledger, if there is one.
    pub fn new(ledger: Option<Rc<Ledger>>, observer: &'a mut dyn Observer) -> Tracer<'a> {
        process::allow_many_files();
        let sign = ledger.as_ref().map_or_else(|| Heartbeat::new().ok(), |ledger| ledger.sign());
        Tracer {
            programs: Programs::default(),
            followed: Followed::new(ledger),
            sharing: Sharing::new(sign),
            reader: Reader::new(),
            cache: Cache::default(),
            messages: Messages::new(observer),
            machine: Box::new(Machine::new()),
            dumps: Dumps::default(),
            session: Session::default(),
            pace: Pace::new(),
            budget: Budget::new(),
        }
    }

    /// Lends what follows the threads in slots.
    pub(crate) fn slot_watcher(&mut self) -> SlotWatcher<'_, 'a> {
        SlotWatcher {
            programs: &mut self.programs,
            followed: &mut self.followed,
            messages: &mut self.messages,
        }
    }

    /// Lends what reads the rings.
    pub(crate) fn drainer(&mut self) -> Drainer<'_, 'a> {
        Drainer {
            programs: &mut self.programs,
            followed: &mut self.followed,
            sharing: &mut self.sharing,
            reader: &mut self.reader,
            messages: &mut self.messages,
        }
    }

    /// Lends what steps threads out of trampolines.
    pub(crate) fn stepper(&mut self) -> Stepper<'_, 'a> {
        Stepper {
            programs: &mut self.programs,
            followed: &mut self.followed,
            sharing: &mut self.sharing,
            reader: &mut self.reader,
            messages: &mut self.messages,
        }
    }

    /// Lends what assigns processes to trust domains.
    pub(crate) fn domains(&mut self) -> Domains<'_, 'a> {
        Domains {
            programs: &mut self.programs,
            followed: &mut self.followed,
            sharing: &mut self.sharing,
            cache: &mut self.cache,
            messages: &mut self.messages,
        }
    }

    /// Lends what disarms probes.
    pub(crate) fn disarmer(&mut self) -> Disarmer<'_, 'a> {
        Disarmer {
            programs: &mut self.programs,
            followed: &mut self.followed,
            sharing: &mut self.sharing,
            cache: &mut self.cache,
            messages: &mut self.messages,
        }
    }

    /// Lends what maps handler memory and rings.
    pub(crate) fn memory_mapper(&mut self) -> MemoryMapper<'_, 'a> {
        MemoryMapper {
            programs: &mut self.programs,
            followed: &mut self.followed,
            sharing: &mut self.sharing,
            reader: &mut self.reader,
            cache: &mut self.cache,
            messages: &mut self.messages,
        }
    }

    /// Lends what places probes.
    pub(crate) fn placer(&mut self) -> Placer<'_, 'a> {
        Placer {
            programs: &mut self.programs,
            followed: &mut self.followed,
            sharing: &mut self.sharing,
            reader: &mut self.reader,
            cache: &mut self.cache,
            messages: &mut self.messages,
            session: &mut self.session,
        }
    }

    /// Lends what runs handlers.
    pub(crate) fn handler_runner(&mut self) -> HandlerRunner<'_, 'a> {
        HandlerRunner {
            programs: &mut self.programs,
            followed: &mut self.followed,
            sharing: &mut self.sharing,
            cache: &mut self.cache,
            messages: &mut self.messages,
            machine: &mut self.machine,
            dumps: &mut self.dumps,
            stop: &self.session.stop,
        }
    }

    /// Lends what dumps processes.
    pub(crate) fn dumper(&mut self) -> Dumper<'_, 'a> {
        Dumper { followed: &mut self.followed, messages: &mut self.messages, dumps: &mut self.dumps }
    }

    /// Lends what reports are made from.
    pub(crate) fn report_sources(&self) -> ReportSources<'_> {
        ReportSources {
            programs: &self.programs,
            followed: &self.followed,
            sharing: &self.sharing,
            reader: &self.reader,
            cache: &self.cache,
        }
    }

    /// Sets the size of the ring for each processor, in bytes, for processes that are probed from
    /// now on. It is rounded up to a power of two within [`BUFFERS`](crate::BUFFERS).
    pub fn set_buffer(&mut self, bytes: u64) {
        self.reader.set_buffer(bytes);
    }

    /// Handles events until every followed thread has ended or `control` says to stop.
    ///
    /// # Errors
    /// Probes could not be placed in the first process.
    pub fn run(&mut self, control: &Control) -> Result<(), Error> {
        while !self.followed.is_alone()
            && !control.stop.load(Ordering::Relaxed)
            && self.session.failure.is_none()
        {
            self.step(control, true);
        }
        match self.session.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Waits for one event (or, without `block`, polls for one) and handles it. Returns whether
    /// there was one.
    pub(crate) fn step(&mut self, control: &Control, block: bool) -> bool {
        if !Arc::ptr_eq(&self.session.stop, &control.stop) {
            self.session.stop = Arc::clone(&control.stop);
        }
        self.sharing.name_threads(&mut self.followed.threads, false);
        self.drainer().drain_meanwhile();
        let next = self.next_event(block && !self.reader.drain.is_busy());
        let stepped = match next {
            Ok(Some(event)) => {
                self.pace.event();
                self.answer(event);
                true
            }
            Ok(None) => {
                self.tick();
                false
            }
            Err(process::Error::Gone { .. }) => {
                // No child is left that could report anything: the threads still listed ended
                // without a report.
                self.followed.threads.clear();
                self.followed.new_threads.newborn.clear();
                self.followed.new_threads.announced.clear();
                false
            }
            Err(error) => {
                self.session.failure.get_or_insert(error.into());
                false
            }
        };
        if !control.placed.load(Ordering::Relaxed)
            && !self.followed.spaces.is_empty()
            && self.followed.spaces.values().all(|space| !space.modules.stale)
        {
            control.placed.store(true, Ordering::Relaxed);
            if self.session.failure.is_none() {
                self.messages.observer.begun();
            }
        }
        self.dumps.tell_finished(&mut self.messages);
        self.tell_counts();
        self.keep_budget();
        let ticks = self.session.waiting
            || self.session.serving
            || self.dumps.is_writing()
            || self.reader.drain.any()
            || self.messages.observer.waits()
            || self.sharing.next_look == NextLook::Soon;
        control.wants_ticks.store(ticks, Ordering::Relaxed);
        control.wants_rare_ticks.store(self.sharing.next_look == NextLook::Later, Ordering::Relaxed);
        let quick = self.reader.drain.any() && self.reader.is_lively();
        control.wants_quick_ticks.store(quick, Ordering::Relaxed);
        stepped
    }

    /// The next event. The tracer sleeps or polls for it, whichever `pace` has found faster.
    fn next_event(&mut self, block: bool) -> Result<Option<Event>, process::Error> {
        if let Some(event) = self.followed.holds.events.pop_front() {
            return Ok(Some(event));
        }
        self.followed.holds.released();
        self.dumps.released();
        self.session.spent.clear();
        if let Some(end) = self.pace.look_until().filter(|_| block) {
            while Instant::now() < end {
                if let Some(event) = process::wait(false)? {
                    return Ok(Some(event));
                }
            }
        }
        process::wait(block)
    }

    /// Handles one event.
    fn answer(&mut self, event: Event) {
        let (thread, stop) = match event {
            Event::Ended { tid, status } => return self.ended(tid, status),
            Event::Stopped(thread, stop) => (thread, stop),
        };
        let tid = thread.tid();
        if self.dumps.is_copy(tid) {
            // It stays where it is.
            return;
        }
        match self.followed.threads.get_mut(&tid) {
            Some(tracked) => {
                tracked.activity = Activity::Handled;
                // Whatever the stop, the kernel counts it as the one that was asked for.
                tracked.asked = false;
            }
            None => {
                if let Stop::Exec { .. } = stop {
                    // An unknown thread executed a program and took over its process's id: it is
                    // treated as that process.
                    self.followed.threads.insert(tid, Tracked::new(tid, tid, None, Activity::Handled));
                } else {
                    return self.born(thread);
                }
            }
        }
        let answered = match stop {
            Stop::Signal(signal) => self.signalled(thread, signal),
            Stop::Interrupt | Stop::Group(_) => self.interrupted(thread, stop),
            Stop::Clone { child, .. } => self.announced(thread, child),
            Stop::Exec { former } => self.replaced(thread, former),
            Stop::Exit => self.exiting(thread),
            Stop::SystemCall => {
                self.called(thread);
                Ok(())
            }
            Stop::Other => {
                self.followed.resume(thread, 0);
                Ok(())
            }
        };
        self.messages.tell_failure(answered);
    }

    /// A thread has stopped because the tracer asked it to, because it is new, or because of job
    /// control.
    fn interrupted(&mut self, thread: Stopped, stop: Stop) -> Result<(), process::Error> {
        let tid = thread.tid();
        if self.followed.is_leaving(tid) {
            return self.detach_thread(thread, stop);
        }
        self.slot_watcher().check_slot(&thread)?;
        let stale = self.followed.space_of(tid).is_some_and(|space| space.modules.stale);
        if stale && self.placer().needs_preplan(tid) {
            let (thread, stop) = self.placer().watch(thread, stop)?;
            self.followed.go_on(thread, stop)?;
            self.placer().preplan(tid);
            return Ok(());
        }
        let (thread, stop) = if stale { self.placer().refresh(thread, stop)? } else { (thread, stop) };
        let (thread, stop) = self.domains().change_domain(thread, stop)?;
        self.drainer().park_or_go_on(thread, stop)
    }

    /// Adds an address space.
    pub(crate) fn add_space(&mut self, mut space: Space) -> u32 {
        self.domains().enter_domain(&mut space);
        self.session.waiting |= space.modules.stale;
        self.followed.spaces.add(space)
    }

    /// Handles a thread that enters or leaves a system call.
    pub(crate) fn called(&mut self, mut thread: Stopped) {
        let unblocked = self.followed.threads.unblock_trap(&self.followed.spaces, &mut thread);
        if let Some(tracked) = self.followed.threads.get_mut(&thread.tid()) {
            tracked.calls = if unblocked { 0 } else { tracked.calls.saturating_sub(1) };
        }
        self.followed.resume(thread, 0);
    }

    /// A thread has ended.
    fn ended(&mut self, tid: i32, status: i32) {
        if self.dumps.ended(tid) {
            return;
        }
        if let Some(started) = self.session.started.get_mut(&tid) {
            *started = Some(status);
        }
        self.sharing.forget_thread(tid);
        self.followed.new_threads.newborn.remove(&tid);
        self.followed.unmapper_died(&mut self.messages, tid);
        if let Some(tracked) = self.followed.threads.get(&tid).filter(|tracked| !tracked.exiting) {
            // Killed without an exit stop.
            let space = tracked.space;
            self.drainer().release_context(space, tid);
        }
        if let Some(space) =
            self.followed.new_threads.announced.remove(&tid).and_then(|announced| announced.space)
        {
            self.followed.release_space(&mut self.messages, space, tid);
        }
        // Killed before the tracer saw its instruction complete.
        for waiting in self.followed.unexecuted(tid) {
            self.messages.drop_records(&mut self.programs, waiting.records);
        }
        if let Some(tracked) = self.followed.threads.remove(&tid)
            && let Some(space) = tracked.space
        {
            self.followed.release_space(&mut self.messages, space, tid);
        }
    }

    /// Reports the counts so far, if they are wanted.
    fn tell_counts(&mut self) {
        if self.messages.observer.wants_counts() {
            let report = self.report_sources().report(&self.programs.states());
            self.messages.observer.counted(&report);
        }
    }

    /// Does the periodic work.
    fn tick(&mut self) {
        self.drainer().drain_meanwhile();
        self.messages.look_for_losses(&self.programs);
        if !self.reader.drain.is_busy() {
            self.messages.observer.idle();
        }
        self.disarmer().look_for_over();
        self.drainer().forget_programs();
        self.look_after_newborn();
        self.slot_watcher().look_at_slots();
        self.followed.identify_again();
        self.domains().look_for_others();
        self.sharing.tick(&mut self.followed.threads);
        self.followed.spaces.hide_again();
        let stale = self.followed.ask_stale(&mut self.messages);
        let records = self.followed.threads.values().any(Tracked::has_records);
        self.session.waiting = !self.followed.new_threads.newborn.is_empty() || stale || records;
    }
}
