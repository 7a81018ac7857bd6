//! A traced thread is [`Running`] or [`Stopped`]; the types keep what may be done to each apart.
//!
//! A running thread can only be asked to stop. A stopped one can be looked at and changed; letting it run
//! consumes it. [`wait`] turns what the kernel reports into a [`Stopped`] thread and the reason of its stop, or
//! into the news that the thread has ended.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use libc::{c_int, pid_t, siginfo_t};

use crate::ptrace::{self, SYSCALL_STOP};
use crate::{Error, FloatRegisters, Mapping, ModuleError, Registers, RseqRegistration, Status};

/// What is reported of every traced thread: its children, its exec, its end.
const OPTIONS: c_int = libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT
    | libc::PTRACE_O_TRACESYSGOOD;

/// Suspends the process's seccomp filters while it is traced (needs CAP_SYS_ADMIN).
const SUSPEND_SECCOMP: c_int = 1 << 21;

/// A traced thread that runs.
#[derive(Debug)]
pub struct Running {
    pub(crate) tid: pid_t,
}

/// A traced thread that is stopped.
///
/// Its registers are asked for once in a stop: nobody but this tracer changes them. What the kernel says of it and of its process's
/// memory is read once, too, also if the thread makes calls for the tracer meanwhile.
pub struct Stopped {
    pub(crate) tid: pid_t,
    registers: Cell<Option<Box<Registers>>>,
    rseq: Cell<Option<Option<RseqRegistration>>>,
    inner_id: Cell<Option<u32>>,
    status: Cell<Option<Rc<Status>>>,
    mappings: Cell<Option<Rc<[Mapping]>>>,
    /// Where [`Stopped::settle`] would move it, if it is there already.
    settled: Option<Stop>,
}

impl std::fmt::Debug for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stopped").field("tid", &self.tid).finish_non_exhaustive()
    }
}

/// A segment of a thread's own, as the kernel's `struct user_desc` describes it (arch/x86/include/uapi/asm/ldt.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnSegment {
    /// Where it begins.
    pub base: u32,
    /// Its last byte, or page.
    pub limit: u32,
    /// Its kind, as the bits that follow in the description.
    pub flags: u32,
}

/// Why a thread stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A signal is about to be delivered; [`Stopped::resume`] with it delivers it, with 0 drops it.
    Signal(c_int),
    /// The tracer asked for it, a new thread is about to start, or a job-control stop has ended.
    Interrupt,
    /// The process is in a job-control stop by this signal; [`Stopped::listen`] leaves it there.
    Group(c_int),
    /// It has created a thread or process, which is traced too.
    Clone {
        /// The new thread. 0 if it was killed before it could be asked.
        child: pid_t,
        /// `Fork`, `Vfork` or `Clone`, as the kernel classes it.
        kind: Birth,
    },
    /// It has replaced its program; its other threads are gone, and its id is now that of its process.
    Exec {
        /// Its id before.
        former: pid_t,
    },
    /// It is about to end; its registers can still be read.
    Exit,
    /// It enters or leaves a system call.
    SystemCall,
    /// Another event; it can simply be resumed.
    Other,
}

/// How the kernel classes the creation of a thread or process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Birth {
    /// `fork`, or a clone that signals SIGCHLD at its end.
    Fork,
    /// `vfork`: the parent waits for the child's exec or end.
    Vfork,
    /// Any other clone; most are new threads.
    Clone,
}

/// News of a traced thread.
#[derive(Debug)]
pub enum Event {
    /// It has stopped.
    Stopped(Stopped, Stop),
    /// It has ended; for the last thread of a process with the process's wait status.
    Ended {
        /// The thread.
        tid: pid_t,
        /// As waitpid gives it.
        status: c_int,
    },
}

impl Running {
    /// Starts tracing a thread; it goes on running.
    ///
    /// # Errors
    /// The thread is gone, belongs to somebody else, or is traced already.
    pub fn seize(tid: pid_t) -> Result<Running, Error> {
        ptrace::seize(tid, OPTIONS)?;
        Ok(Running { tid })
    }

    /// The same, without being told of its children, its exec and its end, which go their way untraced.
    ///
    /// # Errors
    /// As of [`Running::seize`].
    pub fn seize_quietly(tid: pid_t) -> Result<Running, Error> {
        // The stops of its system calls are told from a SIGTRAP.
        ptrace::seize(tid, libc::PTRACE_O_TRACESYSGOOD)?;
        Ok(Running { tid })
    }

    /// The thread's id.
    pub fn tid(&self) -> pid_t {
        self.tid
    }

    /// Asks it to stop; the stop comes as [`Stop::Interrupt`] or [`Stop::Group`], unless the thread stops for another
    /// reason first: the kernel lets that do.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn interrupt(&self) -> Result<(), Error> {
        ptrace::interrupt(self.tid)
    }
}

impl Stopped {
    /// A thread that has just stopped.
    pub(crate) fn new(tid: pid_t) -> Stopped {
        Stopped {
            tid,
            registers: Cell::new(None),
            rseq: Cell::new(None),
            inner_id: Cell::new(None),
            status: Cell::default(),
            mappings: Cell::default(),
            settled: None,
        }
    }

    /// The thread's id.
    pub fn tid(&self) -> pid_t {
        self.tid
    }

    /// Its id as it sees it itself, in its own namespace; none if it is gone.
    pub fn inner_id(&self) -> Option<u32> {
        if self.inner_id.get().is_none() {
            self.note_inner_id(self.status().ok()?.inner_id);
        }
        self.inner_id.get()
    }

    /// What the kernel says of it, as it was when this was asked first in this stop: other threads may have changed since what is their
    /// process's, as the handlers of signals.
    ///
    /// # Errors
    /// It is gone.
    pub fn status(&self) -> Result<Rc<Status>, Error> {
        let status = match self.status.take() {
            Some(known) => known,
            None => Rc::new(Status::read(self.tid)?),
        };
        self.status.set(Some(Rc::clone(&status)));
        Ok(status)
    }

    /// The mappings of its process, as they were when this was asked first in this stop, or after the last call that the thread has made for
    /// the tracer: other threads may have changed them since.
    ///
    /// # Errors
    /// It is gone.
    pub fn mappings(&self) -> Result<Rc<[Mapping]>, ModuleError> {
        let mappings = match self.mappings.take() {
            Some(known) => known,
            None => crate::maps(self.tid)?.into(),
        };
        self.mappings.set(Some(Rc::clone(&mappings)));
        Ok(mappings)
    }

    /// The same thread, which has stopped once more and done nothing of its own meanwhile: what was read stays known. Its mappings do
    /// unless it has made a call.
    pub(crate) fn known_as(self, before: &Stopped, mappings: bool) -> Stopped {
        self.inner_id.set(before.inner_id.get());
        self.status.set(before.status.take());
        if mappings {
            self.mappings.set(before.mappings.take());
        }
        self
    }

    /// Its id as it sees it itself is known already ([`Status::inner_id`]).
    pub fn note_inner_id(&self, id: i32) {
        self.inner_id.set(u32::try_from(id).ok());
    }

    /// Its registers.
    ///
    /// # Errors
    /// The thread has been killed.
    pub fn registers(&self) -> Result<Registers, Error> {
        let known = match self.registers.take() {
            Some(known) => known,
            None => Box::new(ptrace::registers(self.tid)?),
        };
        let registers = *known;
        self.registers.set(Some(known));
        Ok(registers)
    }

    /// The thread's registration for restartable sequences, or `None` where it has none or the kernel is older than 5.13.
    pub fn rseq_registration(&self) -> Option<RseqRegistration> {
        let known = self.rseq.get().unwrap_or_else(|| ptrace::rseq_registration(self.tid));
        self.rseq.set(Some(known));
        known
    }

    /// Its floating-point and SSE registers.
    ///
    /// # Errors
    /// The thread has been killed.
    pub fn float_registers(&self) -> Result<FloatRegisters, Error> {
        ptrace::float_registers(self.tid)
    }

    /// The linear address at which the segment begins that a selector names: one of the flat segments that every
    /// thread has, or one of the thread's own (`set_thread_area`). `None` where it names none of them; segments of a
    /// local descriptor table cannot be seen from outside.
    pub fn segment_base(&self, selector: u16) -> Option<u64> {
        // Bit 2: the local table. Numbers 4 to 6: code of 32 bits, data, code of 64 bits.
        match (selector >> 2 & 1, selector >> 3) {
            (0, 4..=6) => Some(0),
            (0, place) if place > 6 => {
                ptrace::own_segment(self.tid, place).map(|segment| segment.base.into())
            }
            _ => None,
        }
    }

    /// The segment of its own (`set_thread_area`) at a place of the global descriptor table: 12 to 14.
    pub fn own_segment(&self, place: u16) -> Option<OwnSegment> {
        ptrace::own_segment(self.tid, place)
    }

    /// Sets it, or takes it away. 64-bit code notices it only where it asks for it.
    ///
    /// # Errors
    /// The thread has been killed, or the kernel has no such segments (it was built without 32-bit programs).
    pub fn set_own_segment(&self, place: u16, segment: Option<OwnSegment>) -> Result<(), Error> {
        ptrace::set_own_segment(self.tid, place, segment)
    }

    /// Sets its registers.
    ///
    /// # Errors
    /// The thread has been killed, or a segment register's value is not valid.
    pub fn set_registers(&mut self, registers: &Registers) -> Result<(), Error> {
        // The kernel does not take all as it is given: what it has is asked for again.
        self.registers.set(None);
        ptrace::set_registers(self.tid, registers)
    }

    /// Its floating point and SSE registers, as `fxsave` lays them out and a core file's NT_PRFPREG note holds them.
    ///
    /// # Errors
    /// The thread has been killed.
    pub fn floating_point(&self) -> Result<Vec<u8>, Error> {
        ptrace::register_set(self.tid, libc::NT_PRFPREG)
    }

    /// The floating point and SSE registers of a thread that runs 32-bit code, as `fxsave` lays them out and a core
    /// file's NT_PRXFPREG note holds them. What [`Stopped::floating_point`] gives for it has no SSE registers.
    ///
    /// # Errors
    /// The thread has been killed, or runs 64-bit code.
    pub fn fxsave_registers(&self) -> Result<Vec<u8>, Error> {
        /// The note's type (include/uapi/linux/elf.h).
        const NT_PRXFPREG: c_int = 0x46e6_2b7f;
        ptrace::register_set(self.tid, NT_PRXFPREG)
    }

    /// The segments of its own (`set_thread_area`) that a thread of 32-bit code has, as a core file's NT_386_TLS note
    /// holds them.
    ///
    /// # Errors
    /// The thread has been killed, or runs 64-bit code.
    pub fn own_segments(&self) -> Result<Vec<u8>, Error> {
        /// The note's type (include/uapi/linux/elf.h).
        const NT_386_TLS: c_int = 0x200;
        ptrace::register_set(self.tid, NT_386_TLS)
    }

    /// Its extended registers, as `xsave` lays them out and a core file's NT_X86_XSTATE note holds them.
    ///
    /// # Errors
    /// The thread has been killed, or the processor has no such registers.
    pub fn extended_state(&self) -> Result<Vec<u8>, Error> {
        /// The note's type (include/uapi/linux/elf.h).
        const NT_X86_XSTATE: c_int = 0x202;
        ptrace::register_set(self.tid, NT_X86_XSTATE)
    }

    /// What the signal about to be delivered carries.
    ///
    /// # Errors
    /// The thread has been killed, or is not stopped by a signal.
    pub fn signal_info(&self) -> Result<siginfo_t, Error> {
        ptrace::signal_info(self.tid)
    }

    /// Changes what the signal about to be delivered carries.
    ///
    /// # Errors
    /// The thread has been killed, or is not stopped by a signal.
    pub fn set_signal_info(&mut self, info: &siginfo_t) -> Result<(), Error> {
        ptrace::set_signal_info(self.tid, info)
    }

    /// The address of its rseq area, which holds the number of the processor it ran on last.
    pub fn rseq_area(&self) -> Option<u64> {
        self.rseq_registration().map(|registration| registration.address)
    }

    /// Suspends the seccomp filters of the thread while it is traced.
    ///
    /// # Errors
    /// The caller lacks CAP_SYS_ADMIN, or is itself filtered.
    pub fn suspend_seccomp(&mut self) -> Result<(), Error> {
        ptrace::set_options(self.tid, OPTIONS | SUSPEND_SECCOMP)
    }

    /// Lets seccomp filter the thread again.
    ///
    /// # Errors
    /// The thread has been killed.
    pub fn restore_seccomp(&mut self) -> Result<(), Error> {
        ptrace::set_options(self.tid, OPTIONS)
    }

    /// Lets it run until it enters or leaves a system call, or stops before.
    pub fn resume_to_call(self) -> Running {
        // As in `resume`.
        let _ = ptrace::resume_to_syscall(self.tid);
        Running { tid: self.tid }
    }

    /// Lets it run, delivering `signal` (or none, with 0). A thread that has been killed meanwhile reports
    /// its end.
    pub fn resume(self, signal: c_int) -> Running {
        // The one failure is that the thread is gone; `wait` will say so.
        let _ = ptrace::resume(self.tid, signal);
        Running { tid: self.tid }
    }

    /// Leaves it in its job-control stop until that ends.
    pub fn listen(self) -> Running {
        // As in `resume`.
        let _ = ptrace::listen(self.tid);
        Running { tid: self.tid }
    }

    /// Ends the tracing of the thread, delivering `signal` (or none, with 0).
    pub fn detach(self, signal: c_int) {
        // A thread that is gone needs no detaching.
        let _ = ptrace::detach(self.tid, signal);
    }

    /// Moves a thread from any stop to [`Stop::Interrupt`] or [`Stop::Group`]: the place on its way back to the
    /// program at which the kernel, on leaving it, restarts an interrupted system call. A signal at whose
    /// delivery it was stopped is dropped.
    ///
    /// # Errors
    /// The thread has been killed; its end is still to be waited for.
    pub fn settle(self) -> Result<(Stopped, Stop), Error> {
        if let Some(stop) = self.settled {
            return Ok((self, stop));
        }
        loop {
            // Again after every other stop, which uses it up.
            ptrace::interrupt(self.tid)?;
            ptrace::resume(self.tid, 0)?;
            let (stopped, stop) = self.next_stop()?;
            let mut stopped = stopped.known_as(&self, true);
            if let Stop::Interrupt | Stop::Group(_) = stop {
                stopped.settled = Some(stop);
                return Ok((stopped, stop));
            }
        }
    }

    /// It stands where [`Stopped::settle`] would bring it.
    pub(crate) fn settled(mut self, stop: Stop) -> Stopped {
        self.settled = Some(stop);
        self
    }

    /// Waits for this thread's next stop. Its end is left for [`wait`] to report.
    pub(crate) fn next_stop(&self) -> Result<(Stopped, Stop), Error> {
        self.next_stop_while(&mut || ())
    }

    /// The same; `meanwhile` is called again and again as long as there is no news.
    pub(crate) fn next_stop_while(&self, meanwhile: &mut dyn FnMut()) -> Result<(Stopped, Stop), Error> {
        loop {
            if has_ended(self.tid, meanwhile) {
                return Err(Error::Gone { pid: self.tid });
            }
            let (tid, status) = take(self.tid, 0);
            if tid == -1 {
                match io::Error::last_os_error().raw_os_error() {
                    Some(libc::EINTR) => continue,
                    _ => return Err(Error::Gone { pid: self.tid }),
                }
            }
            return match event(tid, status)? {
                Event::Stopped(_, Stop::Exit) => {
                    // It is being killed: let it go on to its end, which `wait` reports.
                    ptrace::resume(tid, 0)?;
                    Err(Error::Gone { pid: tid })
                }
                Event::Stopped(stopped, stop) => Ok((stopped, stop)),
                Event::Ended { tid, .. } => Err(Error::Gone { pid: tid }),
            };
        }
    }
}

/// Takes news of a thread: its number, 0 where there is none, or -1; and its status.
fn take(tid: pid_t, flags: c_int) -> (pid_t, c_int) {
    let mut status = 0;
    // SAFETY: `status` is valid for the call. (nix takes a stop by a real-time signal for an error, and does not tell whose news waitid has.)
    let tid = unsafe { libc::waitpid(tid, &mut status, libc::__WALL | flags) };
    (tid, status)
}

/// Waits until there is news of a thread, which stays to be waited for, and says whether that is its end.
///
/// The kernel must not be asked to wait for it: the first thread of a process, if it is killed on its way out, ends
/// without a stop, and its end is not reported before the other threads have ended; these may be waiting for the tracer.
fn has_ended(tid: pid_t, meanwhile: &mut dyn FnMut()) -> bool {
    /// Looks before the first pause, and after which a pause is so long that a look into /proc is cheap.
    const BRISK: u32 = 64;
    let flags = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::WNOHANG | libc::__WALL;
    for look in 0u32.. {
        // SAFETY: all zeros are a siginfo_t, and it is valid for the call; with news, si_pid is filled.
        let (result, info, pid) = unsafe {
            let mut info: siginfo_t = std::mem::zeroed();
            let result = libc::waitid(libc::P_PID, tid as libc::id_t, &mut info, flags);
            (result, info, info.si_pid())
        };
        if result != 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return true;
        }
        if result == 0 && pid != 0 {
            return matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED);
        }
        meanwhile();
        if look < BRISK {
            std::thread::yield_now();
        } else {
            if Status::read(tid).is_ok_and(|status| status.has_ended()) {
                return true;
            }
            std::thread::sleep(Duration::from_micros(100 * u64::from((look / BRISK).min(20))));
        }
    }
    true
}

/// Waits for news of any traced thread. `None`: a signal to the caller has interrupted the wait, or, with
/// `block` false, there is no news.
///
/// # Errors
/// There are no traced threads ([`Error::Gone`] of -1).
pub fn wait(block: bool) -> Result<Option<Event>, Error> {
    wait_for(-1, if block { libc::__WALL } else { libc::__WALL | libc::WNOHANG })
}

/// Looks for news of one traced thread, without waiting.
///
/// # Errors
/// The thread is not traced by the caller ([`Error::Gone`]).
pub fn look_at(tid: pid_t) -> Result<Option<Event>, Error> {
    wait_for(tid, libc::__WALL | libc::WNOHANG)
}

/// The codes of stops from here on are of events, with the event in the second byte.
const EVENT: c_int = 1 << 8;

/// Takes the last stop by a signal from the kernel, if that is still to be done: from now on the signal is lost if the tracer dies. There is
/// news if the thread has been killed in its stop.
///
/// # Errors
/// The kernel does not say what became of it.
pub fn take_last_stop() -> Result<Option<Event>, Error> {
    let Some((tid, stop)) = ptrace::untaken() else { return Ok(None) };
    let (taken, status) = take(tid, libc::WNOHANG);
    if taken == tid && status != stop { event(tid, status).map(Some) } else { Ok(None) }
}

/// News of one traced thread, or with -1 of any.
///
/// A stop by a signal is not taken from the kernel before the thread goes on, or the next news is asked for: the signal is
/// delivered then if the tracer dies, where it would be lost.
fn wait_for(wanted: pid_t, flags: c_int) -> Result<Option<Event>, Error> {
    if let Some(event) = take_last_stop()? {
        return Ok(Some(event));
    }
    let (kind, id) = if wanted == -1 { (libc::P_ALL, 0) } else { (libc::P_PID, wanted as libc::id_t) };
    let flags = flags | libc::WEXITED | libc::WNOWAIT;
    // SAFETY: all zeros are a siginfo_t, and it is valid for the call; with news, the fields of a child are filled.
    let (result, what, tid, code) = unsafe {
        let mut info: siginfo_t = std::mem::zeroed();
        let result = libc::waitid(kind, id, &mut info, flags);
        (result, info.si_code, info.si_pid(), info.si_status())
    };
    if result != 0 {
        return match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => Ok(None),
            _ => Err(Error::Gone { pid: wanted }),
        };
    }
    match (tid, what) {
        (0, _) => Ok(None),
        // An event has no signal, and the kernel wants that of an exec to be taken before anything is asked of its thread.
        (tid, libc::CLD_TRAPPED | libc::CLD_STOPPED) if code < EVENT => {
            let status = code << 8 | 0x7f;
            ptrace::set_untaken(tid, status);
            event(tid, status).map(Some)
        }
        (tid, _) => match take(tid, libc::WNOHANG) {
            (0 | -1, _) => Ok(None),
            (tid, status) => event(tid, status).map(Some),
        },
    }
}

/// What a wait status says.
fn event(tid: pid_t, status: c_int) -> Result<Event, Error> {
    if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
        return Ok(Event::Ended { tid, status });
    }
    let signal = libc::WSTOPSIG(status);
    let message = || ptrace::event_message(tid).map(|message| message as pid_t);
    // Killed between the report and the question, it cannot say which child.
    let birth = |kind| match message() {
        Err(error) if error.is_gone() => Ok(Stop::Clone { child: 0, kind }),
        child => child.map(|child| Stop::Clone { child, kind }),
    };
    let stop = match status >> 16 {
        0 if signal == SYSCALL_STOP => Ok(Stop::SystemCall),
        0 => Ok(Stop::Signal(signal)),
        libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Ok(Stop::Interrupt),
        libc::PTRACE_EVENT_STOP => Ok(Stop::Group(signal)),
        libc::PTRACE_EVENT_FORK => birth(Birth::Fork),
        libc::PTRACE_EVENT_VFORK => birth(Birth::Vfork),
        libc::PTRACE_EVENT_CLONE => birth(Birth::Clone),
        libc::PTRACE_EVENT_EXEC => message().map(|former| Stop::Exec { former }),
        libc::PTRACE_EVENT_EXIT => Ok(Stop::Exit),
        _ => Ok(Stop::Other),
    };
    match stop {
        Ok(stop) => {
            let settled = matches!(stop, Stop::Interrupt).then_some(stop);
            Ok(Event::Stopped(Stopped { settled, ..Stopped::new(tid) }, stop))
        }
        // Killed between the report and the question: its end is reported next.
        Err(error) if error.is_gone() => Ok(Event::Stopped(Stopped::new(tid), Stop::Other)),
        Err(error) => Err(error),
    }
}
