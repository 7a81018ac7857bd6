//! The tracer: one thread that waits for the events of all the threads it follows, and answers each.

use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use layout::{GREATEST_RING, LEAST_RING, RING_SIZE};
use process::{Event, ImageCache, Stop, Stopped};
use vm::State as Machine;

use crate::births::{Announced, Newborn};
use crate::error::Error;
use crate::forget::Forgotten;
use crate::guard::Blocks;
use crate::hold::Holds;
use crate::jump::{Cells, Drain, NextLook, Numbers, Sign, Texts};
use crate::leave::Leaving;
use crate::ledger::Ledger;
use crate::loader::Loaders;
use crate::losses::Losses;
use crate::observer::{Note, Observer};
use crate::pace::Pace;
use crate::place::Plan;
use crate::programs::Programs;
use crate::space::{ModuleKey, Space};
use crate::tracked::{Activity, Tracked};
use crate::variables::Globals;

/// What the outside may ask of a running tracer, from another thread or a signal handler. Whoever sets a flag
/// also interrupts the tracer's wait, by a signal to its thread.
#[derive(Debug, Default)]
pub struct Control {
    /// Ends the session.
    pub stop: Arc<AtomicBool>,
    /// Set by the tracer while it wants to be interrupted regularly (every few hundredths of a second).
    pub wants_ticks: AtomicBool,
    /// Set by the tracer while it wants to be interrupted rarely (every second).
    pub wants_rare_ticks: AtomicBool,
    /// Set by the tracer while it wants to be interrupted often (every few thousandths of a second).
    pub wants_quick_ticks: AtomicBool,
    /// Set by the tracer once the probes are in, in all processes that it follows then, or cannot be.
    pub placed: AtomicBool,
}

/// Bytes of records that may wait to be read, for each processor: the least and the most. A buffer's size is a power of two.
pub const BUFFERS: std::ops::RangeInclusive<u64> = LEAST_RING..=GREATEST_RING;

/// Bytes of a ring that need not be read often while nothing comes: a tick's worth of records, however many there are at once.
const ROOMY: u64 = 8 << 20;
/// For how long rings are read often after a record.
const LATELY: Duration = Duration::from_millis(500);

/// Probes in living processes: all their threads, all their children.
pub struct Tracer<'a> {
    pub(crate) programs: Programs,
    pub(crate) globals: Globals,
    /// Memory that is shared with processes.
    pub(crate) cells: Option<Cells>,
    /// By what they see that their records are read.
    pub(crate) sign: Option<Arc<Sign>>,
    /// When those are looked at that may become one of another domain without executing a program.
    pub(crate) next_look: NextLook,
    /// Whether all processes are of one domain.
    pub(crate) shares_variables: bool,
    /// What records of jumps have in common.
    pub(crate) numbers: Numbers,
    /// The probes that have handlers in processes, by program and number in it, and that their handlers can end.
    pub(crate) mortal: Vec<(usize, usize)>,
    /// Programs that were removed, of which something may be left in processes.
    pub(crate) forgotten: Vec<Forgotten>,
    /// The reader of the rings.
    pub(crate) drain: Drain,
    /// Bytes of a ring, in processes that get theirs from now on: a power of two.
    pub(crate) ring_size: u64,
    pub(crate) holds: Holds,
    pub(crate) ledger: Option<Rc<Ledger>>,
    pub(crate) observer: &'a mut dyn Observer,
    pub(crate) losses: Losses,
    pub(crate) machine: Box<Machine>,
    /// [`Control::stop`], for handlers that run when it is set.
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) threads: HashMap<i32, Tracked>,
    pub(crate) spaces: HashMap<u32, Space>,
    pub(crate) next_space: u32,
    /// New threads that have stopped before their parent told of them.
    pub(crate) newborn: HashMap<i32, Newborn>,
    /// The address spaces of new threads that their parent told of before they stopped.
    pub(crate) announced: HashMap<i32, Announced>,
    /// What threads were stopped by that had to be stopped all at once. It is answered before anything that is
    /// still to be waited for; until then they stay as they are.
    pub(crate) held: VecDeque<Event>,
    pub(crate) images: ImageCache,
    pub(crate) loaders: Loaders,
    pub(crate) blocks: Blocks,
    /// What is not needed any more, and is given back when no thread waits for the tracer.
    pub(crate) spent: Vec<Box<dyn std::any::Any>>,
    /// What was planned to see whether something is refused, by program and module.
    pub(crate) checked: Vec<((usize, ModuleKey), Plan)>,
    /// Code of modules, for processes that are still to come.
    pub(crate) texts: Texts,
    /// Who is being let go.
    pub(crate) leaving: Leaving,
    /// Whether those who are being let go wait no longer for room in a ring.
    pub(crate) gives_up_waiting: bool,
    /// Whether threads are being let go.
    pub(crate) parts: bool,
    /// What ended it before its time.
    pub(crate) failure: Option<Error>,
    /// The wait statuses of the processes that have ended, for those that were started here.
    pub(crate) started: HashSet<i32>,
    pub(crate) statuses: HashMap<i32, i32>,
    /// Whether something waits for time to pass: a record for its instruction, or modules to be looked for.
    pub(crate) waiting: bool,
    /// Whether requests are served meanwhile.
    pub(crate) serving: bool,
    pace: Pace,
    /// How many records had been read when the last came, and when that was.
    read: (u64, Instant),
    /// The address spaces whose program has begun with the probes in.
    pub(crate) begun: HashSet<u32>,
    /// The programs whose waiting for a module was told.
    pub(crate) told_waiting: HashSet<usize>,
    /// Things told once.
    pub(crate) told: HashSet<String>,
}

impl std::fmt::Debug for Tracer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tracer {{ threads: {}, spaces: {} }}", self.threads.len(), self.spaces.len())
    }
}

impl<'a> Tracer<'a> {
    /// A tracer without programs, following no process yet. It must be used by the thread that made it. What it
    /// changes is entered in the ledger, if there is one.
    pub fn new(ledger: Option<Rc<Ledger>>, observer: &'a mut dyn Observer) -> Tracer<'a> {
        process::allow_many_files();
        // Without shared memory all probes are traps.
        let sign = ledger.as_ref().map_or_else(|| Sign::new().ok(), |ledger| ledger.sign());
        let mut cells = sign.as_ref().and_then(|_| Cells::new().ok());
        Tracer {
            programs: Programs::default(),
            globals: Globals::new(cells.as_mut()),
            cells,
            sign,
            next_look: NextLook::Never,
            shares_variables: false,
            numbers: Numbers::default(),
            forgotten: Vec::new(),
            mortal: Vec::new(),
            drain: Drain::new(),
            ring_size: RING_SIZE,
            holds: Holds::default(),
            ledger,
            observer,
            losses: Losses::default(),
            machine: Box::new(Machine::new()),
            stop: Arc::default(),
            threads: HashMap::new(),
            spaces: HashMap::new(),
            next_space: 0,
            newborn: HashMap::new(),
            announced: HashMap::new(),
            held: VecDeque::new(),
            images: ImageCache::default(),
            loaders: Loaders::default(),
            blocks: Blocks::default(),
            spent: Vec::new(),
            checked: Vec::new(),
            texts: Texts::default(),
            leaving: Leaving::Nobody,
            gives_up_waiting: false,
            parts: false,
            failure: None,
            started: HashSet::new(),
            statuses: HashMap::new(),
            waiting: false,
            serving: false,
            pace: Pace::new(),
            read: (0, Instant::now()),
            begun: HashSet::new(),
            told_waiting: HashSet::new(),
            told: HashSet::new(),
        }
    }

    /// Sets how many bytes of records may wait to be read, for each processor, in processes that are probed from now on. It is
    /// rounded up to a power of two within [`BUFFERS`].
    pub fn set_buffer(&mut self, bytes: u64) {
        let size = bytes.checked_next_power_of_two().unwrap_or(GREATEST_RING);
        self.ring_size = size.clamp(LEAST_RING, GREATEST_RING);
    }

    /// Whether all processes share variables and counters, whoever they are. It holds for those that are followed from now on.
    pub fn share_variables(&mut self) {
        self.shares_variables = true;
    }

    /// Whether a program that is inserted waits for room where there is none for a record.
    pub(crate) fn is_lossless(&self) -> bool {
        self.programs.values().any(|program| program.options.lossless)
    }

    /// Answers events until every followed thread has ended or `control` says to stop.
    ///
    /// # Errors
    /// Probes could not be placed in the first process.
    pub fn run(&mut self, control: &Control) -> Result<(), Error> {
        while !self.is_alone() && !control.stop.load(Ordering::Relaxed) && self.failure.is_none() {
            self.step(control, true);
        }
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Whether no thread is followed, nor about to be.
    fn is_alone(&self) -> bool {
        self.threads.is_empty() && self.newborn.is_empty() && self.announced.is_empty()
    }

    /// The wait status of a process that was started by this tracer and has ended.
    pub fn status(&self, pid: i32) -> Option<i32> {
        self.statuses.get(&pid).copied()
    }

    /// Waits for one event (or, without `block`, looks for one) and answers it. Says whether there was one.
    pub(crate) fn step(&mut self, control: &Control, block: bool) -> bool {
        if !Arc::ptr_eq(&self.stop, &control.stop) {
            self.stop = Arc::clone(&control.stop);
        }
        self.drain_meanwhile();
        let next = self.next_event(block && !self.drain.is_busy());
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
                // No child is left that could tell anything: those still listed ended untold.
                self.threads.clear();
                self.newborn.clear();
                self.announced.clear();
                false
            }
            Err(error) => {
                self.failure.get_or_insert(error.into());
                false
            }
        };
        if !control.placed.load(Ordering::Relaxed)
            && !self.spaces.is_empty()
            && self.spaces.values().all(|space| !space.stale)
        {
            control.placed.store(true, Ordering::Relaxed);
            if self.failure.is_none() {
                self.observer.begun();
            }
        }
        self.tell_counts();
        let ticks = self.waiting
            || self.serving
            || self.drain.any()
            || self.observer.waits()
            || self.next_look == NextLook::Soon;
        control.wants_ticks.store(ticks, Ordering::Relaxed);
        control.wants_rare_ticks.store(self.next_look == NextLook::Later, Ordering::Relaxed);
        let quick = self.drain.any() && self.is_lively();
        control.wants_quick_ticks.store(quick, Ordering::Relaxed);
        stepped
    }

    /// Whether rings are to be read often: records have come lately, or there is little room for those that may.
    fn is_lively(&mut self) -> bool {
        if self.read.0 != self.drain.read() {
            self.read = (self.drain.read(), Instant::now());
        }
        self.ring_size < ROOMY || self.read.1.elapsed() < LATELY
    }

    /// The next event, for which the tracer sleeps or looks, as is faster just now.
    fn next_event(&mut self, block: bool) -> Result<Option<Event>, process::Error> {
        if let Some(event) = self.held.pop_front() {
            return Ok(Some(event));
        }
        self.holds.released();
        self.spent.clear();
        if let Some(end) = self.pace.look_until().filter(|_| block) {
            while Instant::now() < end {
                if let Some(event) = process::wait(false)? {
                    return Ok(Some(event));
                }
            }
        }
        process::wait(block)
    }

    /// Answers one event.
    fn answer(&mut self, event: Event) {
        let (thread, stop) = match event {
            Event::Ended { tid, status } => return self.ended(tid, status),
            Event::Stopped(thread, stop) => (thread, stop),
        };
        let tid = thread.tid();
        match self.threads.get_mut(&tid) {
            Some(tracked) => {
                tracked.activity = Activity::Handled;
                // Whatever the stop: the kernel takes it for the one that was asked for.
                tracked.asked = false;
            }
            None => {
                if let Stop::Exec { .. } = stop {
                    // A thread that was not known took over its process; it is treated as that process.
                    self.threads.insert(tid, Tracked::new(tid, tid, None, Activity::Handled));
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
                self.resume(thread, 0);
                Ok(())
            }
        };
        self.tell_failure(answered);
    }

    /// Tells why a stop could not be answered. That the thread was killed under our hands is nothing to tell: its end
    /// is reported next.
    pub(crate) fn tell_failure(&mut self, answered: Result<(), process::Error>) {
        if let Err(error) = answered
            && !error.is_gone()
        {
            self.tell_once(Note::Other(error.to_string()));
        }
    }

    /// A thread has stopped because it was asked to, because it is new, or because of job control.
    fn interrupted(&mut self, thread: Stopped, stop: Stop) -> Result<(), process::Error> {
        let tid = thread.tid();
        if self.is_leaving(tid) {
            return self.leave(thread, stop);
        }
        self.check_slot(&thread)?;
        let stale = self.space_of(tid).is_some_and(|space| space.stale);
        if stale && self.has_to_foresee(tid) {
            let (thread, stop) = self.watch(thread, stop)?;
            self.go_on(thread, stop)?;
            self.foresee(tid);
            return Ok(());
        }
        let (thread, stop) = if stale { self.refresh(thread, stop)? } else { (thread, stop) };
        let (thread, stop) = self.change_domain(thread, stop)?;
        self.park_or_go_on(thread, stop)
    }

    /// Lets a thread that is in [`Stop::Interrupt`] or [`Stop::Group`] go on as it would have.
    pub(crate) fn go_on(&mut self, mut thread: Stopped, stop: Stop) -> Result<(), process::Error> {
        if let Stop::Group(_) = stop {
            let tid = thread.tid();
            let running = thread.listen();
            self.set_activity(tid, Activity::Running(running));
            return Ok(());
        }
        let mut registers = thread.registers()?;
        if crate::restart::restart(thread.tid(), &mut registers) {
            thread.set_registers(&registers)?;
        }
        self.resume(thread, 0);
        Ok(())
    }

    /// Lets a thread run; one that is leaving, until it can be let go.
    pub(crate) fn resume(&mut self, thread: Stopped, signal: i32) {
        let tid = thread.tid();
        self.tell_ids(&thread);
        let looks_at_calls = signal == 0 && self.threads.get(&tid).is_some_and(|tracked| tracked.calls > 0);
        let running = if looks_at_calls { thread.resume_to_call() } else { thread.resume(signal) };
        let asked = self.is_leaving(tid) && running.interrupt().is_ok();
        if let Some(tracked) = self.threads.get_mut(&tid) {
            tracked.asked = asked;
            tracked.activity = Activity::Running(running);
        }
    }

    pub(crate) fn set_activity(&mut self, tid: i32, activity: Activity) {
        if let Some(tracked) = self.threads.get_mut(&tid) {
            tracked.activity = activity;
        }
    }

    /// The address space of a thread.
    pub(crate) fn space_of(&mut self, tid: i32) -> Option<&mut Space> {
        let space = self.threads.get(&tid)?.space?;
        self.spaces.get_mut(&space)
    }

    /// Adds an address space.
    pub(crate) fn add_space(&mut self, mut space: Space) -> u32 {
        self.enter_domain(&mut space);
        let number = self.next_space;
        self.next_space += 1;
        self.waiting |= space.stale;
        self.spaces.insert(number, space);
        number
    }

    /// Takes a thread out of its address space; the last one takes the space with it.
    pub(crate) fn leave_space(&mut self, number: u32, tid: i32) {
        if let Some(space) = self.spaces.get_mut(&number) {
            space.forget_stranger(tid);
            space.members -= 1;
            if space.members == 0 {
                self.spaces.remove(&number);
            } else if space.members == 1
                && let Some(anchor) = space.anchor.take()
            {
                let gone = self.weigh(number, anchor);
                self.tell_failure(gone);
            }
        }
    }

    /// A thread has ended.
    fn ended(&mut self, tid: i32, status: i32) {
        if self.started.contains(&tid) {
            self.statuses.insert(tid, status);
        }
        self.newborn.remove(&tid);
        self.lose_anchor(tid);
        if let Some(tracked) = self.threads.get(&tid).filter(|tracked| !tracked.exiting) {
            // Killed without a stop on its way.
            self.bury(tracked.space, tid);
        }
        if let Some(space) = self.announced.remove(&tid).and_then(|announced| announced.space) {
            self.leave_space(space, tid);
        }
        // Killed before it said that its instruction had completed.
        for waiting in self.unexecuted(tid) {
            self.drop_records(waiting.records);
        }
        if let Some(tracked) = self.threads.remove(&tid)
            && let Some(space) = tracked.space
        {
            self.leave_space(space, tid);
        }
    }

    /// Time has passed: what waits for it is looked at.
    fn tick(&mut self) {
        self.drain_meanwhile();
        self.look_for_losses();
        if !self.drain.is_busy() {
            self.observer.idle();
        }
        self.look_for_over();
        self.forget_programs();
        self.look_after_newborn();
        self.look_at_slots();
        self.identify_again();
        self.look_for_others();
        self.hide_again();
        // A process whose modules are to be looked for needs a thread that stops; the one asked may be blocked
        // where no tracer can stop it.
        let stale: Vec<u32> =
            self.spaces.iter().filter(|(_, space)| space.stale).map(|(&number, _)| number).collect();
        for &number in &stale {
            self.ask_one(number);
        }
        let records = self.threads.values().any(Tracked::has_records);
        self.waiting = !self.newborn.is_empty() || !stale.is_empty() || records;
    }

    /// Looks at the threads whose records wait, and that have not been asked to stop.
    pub(crate) fn look_at_slots(&mut self) {
        let waiting = self.threads.values().filter(|thread| thread.has_records() && !thread.asked);
        for tid in waiting.map(|thread| thread.identity.tid).collect::<Vec<_>>() {
            self.look_at_slot(tid);
        }
    }

    /// Asks one more thread of an address space to stop.
    pub(crate) fn ask_one(&mut self, number: u32) {
        let mut candidates = self.threads.iter();
        let candidate = candidates.find(|(_, thread)| thread.space == Some(number) && !thread.asked);
        if let Some((&tid, _)) = candidate {
            self.ask(tid);
        }
    }

    /// A record waits in a thread that has not stopped for a while: finds out, without stopping the thread if
    /// possible, whether its instruction has completed.
    fn look_at_slot(&mut self, tid: i32) {
        let Some(tracked) = self.threads.get_mut(&tid) else { return };
        let space = tracked.space.and_then(|space| self.spaces.get(&space));
        match process::blocked_at(tid) {
            Ok(Some(rip)) => {
                let still = space.and_then(|space| space.in_slot(rip));
                if !still.is_some_and(|(_, place)| place.is_before())
                    && let Some(waiting) = tracked.in_slot.take()
                {
                    self.commit(waiting.records);
                }
            }
            _ => {
                if let Activity::Running(running) = &tracked.activity
                    && running.interrupt().is_ok()
                {
                    tracked.asked = true;
                }
            }
        }
    }

    /// Tells a note, once in a session.
    pub(crate) fn tell_once(&mut self, note: Note) {
        if self.told.insert(format!("{note:?}")) {
            self.observer.note(&note);
        }
    }

    /// Whether the seccomp filters of a thread forbid a system call on the tracer's behalf; tries to suspend
    /// them. `Ok(suspended)` where a call may be made.
    pub(crate) fn allow_call(thread: &mut Stopped) -> Result<bool, String> {
        match thread.status().map(|status| status.seccomp) {
            Ok(0) => Ok(false),
            _ => thread.suspend_seccomp().map(|()| true).map_err(|_| {
                "the process is in a seccomp sandbox, in which no memory can be mapped for the probes without \
                 CAP_SYS_ADMIN"
                    .to_owned()
            }),
        }
    }
}
