//! Signals and time limits of the tracer.
//!
//! The tracer sleeps in waitpid. SIGINT, SIGTERM, SIGHUP and the end of the time limit end the
//! session. A second thread watches for these, and for the tracer's request for regular wake-ups,
//! and interrupts the sleep with a signal. It repeats the signal until the tracer has noticed, so a
//! signal that comes just before the sleep is not lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use engine::{Control, HeartbeatHandle};
use nix::sys::signal::SigSet;

use crate::sleeper::Sleeper;
use crate::{Failure, progress};

/// The value of a forwarded signal that came from the terminal, which has sent it to its whole
/// process group.
pub(crate) const FROM_TERMINAL: usize = 1;

/// Time between two checks of the watching thread.
const TICK: Duration = Duration::from_millis(20);
/// The same while only signals matter.
const SLOW_TICK: Duration = Duration::from_millis(60);
/// Time between two interruptions while the tracer wants rare ones.
const RARE_TICK: Duration = Duration::from_secs(1);
/// Time between two checks while the tracer wants frequent interruptions.
const QUICK_TICK: Duration = Duration::from_millis(3);

/// The time limit of a session starts after at most this long, even if the probes are not in yet.
const ARMING: Duration = Duration::from_secs(30);

/// The last signal that asked for the end, or 0.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// How many such signals have come.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Whether the last one was sent by a process, not by the terminal.
static SENT: AtomicBool = AtomicBool::new(false);

/// The signals that a script has a probe for, as bits, and how often each has come.
static EXPECTED: AtomicU64 = AtomicU64::new(0);
static CAME: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

/// Counts a signal. It only stores to atomics.
extern "C" fn count(signal: i32, _info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    if let Some(came) = usize::try_from(signal).ok().and_then(|signal| CAME.get(signal)) {
        came.fetch_add(1, Ordering::Relaxed);
    }
}

/// From now on, these signals are counted, and do not end the session. Children of this process
/// count them, too.
pub(crate) fn expect(signals: impl Iterator<Item = i32>) {
    for signal in signals.filter(|signal| (1..64).contains(signal)) {
        EXPECTED.fetch_or(1 << signal, Ordering::Relaxed);
        handle(signal, count, false);
    }
}

/// Whether a signal is one of these.
pub(crate) fn is_expected(signal: i32) -> bool {
    (1..64).contains(&signal) && EXPECTED.load(Ordering::Relaxed) >> signal & 1 == 1
}

/// How often one of these has come since this was asked last.
pub(crate) fn came(signal: i32) -> u32 {
    let came = usize::try_from(signal).ok().and_then(|signal| CAME.get(signal));
    came.map_or(0, |came| came.swap(0, Ordering::Relaxed))
}

/// Watches signals and time until dropped.
pub(crate) struct Watch {
    pub(crate) control: Arc<Control>,
    ended: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

/// The signal mask for started commands: the one this process was started with.
pub(crate) fn inherited_mask() -> SigSet {
    SigSet::thread_get_mask().unwrap_or_else(|_| SigSet::empty())
}

/// The signal that asked for the end, if any, and whether a process sent it.
pub(crate) fn signal() -> Option<(i32, bool)> {
    match SIGNAL.load(Ordering::Relaxed) {
        0 => None,
        signal => Some((signal, SENT.load(Ordering::Relaxed))),
    }
}

/// How many signals have asked for the end.
pub(crate) fn signals() -> u32 {
    COUNT.load(Ordering::Relaxed)
}

/// Whether this process itself has asked for the end.
static OVER: AtomicBool = AtomicBool::new(false);

/// Ends the session as a time limit does: nobody wants its results any more.
pub(crate) fn end_session() {
    OVER.store(true, Ordering::Relaxed);
}

/// Remembers a signal. It only stores to atomics.
extern "C" fn remember(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to a handler with SA_SIGINFO.
    let (code, value) = unsafe { ((*info).si_code, (*info).si_value().sival_ptr.addr()) };
    let from_terminal = code > 0 || (code == libc::SI_QUEUE && value == FROM_TERMINAL);
    SENT.store(!from_terminal, Ordering::Relaxed);
    SIGNAL.store(signal, Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Relaxed);
}

/// Other signals that would kill the process by default; the tracer handles them like SIGTERM. The
/// signals that the terminal sends go to the front.
const OTHER_FATAL_SIGNALS: [i32; 10] = [
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
    // The limit of processor time; at least a second is left.
    libc::SIGXCPU,
];

/// Does nothing: its signal only interrupts a system call.
extern "C" fn wake(_signal: i32, _info: *mut libc::siginfo_t, _context: *mut libc::c_void) {}

/// Installs a handler that does not restart system calls. With `unless_ignored`, an ignored signal
/// (nohup) stays ignored.
pub(crate) fn handle(
    signal: i32,
    handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void),
    unless_ignored: bool,
) {
    // SAFETY: the handlers are async-signal-safe, and the structures are valid for the calls. (nix
    // has no real-time signals.)
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut old);
        if unless_ignored && old.sa_sigaction == libc::SIG_IGN {
            return;
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

impl Watch {
    /// Starts to watch on behalf of the calling thread. `limit` is counted from when the probes are
    /// in. `pulse` shows that the reader of records lives, whatever the calling thread is waiting
    /// for.
    ///
    /// # Errors
    /// No second thread can be started: the limit of processes is reached.
    pub(crate) fn start(limit: Option<Duration>, pulse: Option<HeartbeatHandle>) -> Result<Watch, Failure> {
        let ends = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].into_iter().chain(OTHER_FATAL_SIGNALS);
        let ends = ends.chain(libc::SIGRTMIN()..=libc::SIGRTMAX());
        for signal in ends.filter(|signal| !is_expected(*signal)) {
            handle(signal, remember, true);
        }
        handle(libc::SIGURG, wake, false);
        let control = Arc::new(Control::default());
        let ended = Arc::new(AtomicBool::new(false));
        let tracer = Sleeper::this();
        let watcher =
            Watcher { control: Arc::clone(&control), ended: Arc::clone(&ended), tracer, limit, pulse };
        let thread = thread::Builder::new().name("watch".to_owned()).spawn(move || watcher.watch());
        let thread = thread.map_err(|error| Failure::new(format!("a thread cannot be started: {error}")))?;
        Ok(Watch { control, ended, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
        progress::end();
    }
}

/// The second thread.
struct Watcher {
    control: Arc<Control>,
    ended: Arc<AtomicBool>,
    /// This thread joins the watcher before it ends (`Watch::drop`).
    tracer: Sleeper,
    limit: Option<Duration>,
    pulse: Option<HeartbeatHandle>,
}

impl Watcher {
    fn watch(&self) {
        let begun = Instant::now();
        let mut placed = None;
        let mut interrupted = begun;
        while !self.ended.load(Ordering::Relaxed) {
            let quick = self.control.wants_quick_ticks.load(Ordering::Relaxed);
            let ticks = self.limit.is_some() || self.control.wants_ticks.load(Ordering::Relaxed);
            thread::park_timeout(match (quick, ticks) {
                (true, _) => QUICK_TICK,
                (false, true) => TICK,
                (false, false) => SLOW_TICK,
            });
            self.pulse.iter().for_each(HeartbeatHandle::beat);
            if placed.is_none() {
                progress::tick();
            }
            if placed.is_none() && (self.control.placed.load(Ordering::Relaxed) || begun.elapsed() >= ARMING)
            {
                placed = Some(Instant::now());
                progress::end();
            }
            let over = placed.zip(self.limit).is_some_and(|(placed, limit)| placed.elapsed() >= limit);
            if over || SIGNAL.load(Ordering::Relaxed) != 0 || OVER.load(Ordering::Relaxed) {
                self.control.stop.store(true, Ordering::Relaxed);
            }
            let wanted = quick
                || self.control.stop.load(Ordering::Relaxed)
                || self.control.wants_ticks.load(Ordering::Relaxed)
                || self.control.wants_rare_ticks.load(Ordering::Relaxed)
                    && interrupted.elapsed() >= RARE_TICK;
            if wanted && !self.ended.load(Ordering::Relaxed) {
                interrupted = Instant::now();
                self.tracer.interrupt();
            }
        }
    }
}
