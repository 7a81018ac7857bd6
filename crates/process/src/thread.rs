//! A traced thread is [`Running`] or [`Stopped`]; the types separate what may be done to each.
//!
//! A running thread can only be asked to stop. A stopped one can be read and changed; resuming it
//! consumes it. [`wait`] turns the kernel's reports into a [`Stopped`] thread with the reason of
//! its stop, or into the event that the thread has ended.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use libc::{c_int, pid_t, siginfo_t};

use crate::ptrace::{self, SYSCALL_STOP};
use crate::{Error, FloatRegisters, Mapping, ModuleError, Registers, RseqRegistration, Status};

/// The kernel reports, for every traced thread, its children, its exec and its end.
const OPTIONS: c_int = libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT
    | libc::PTRACE_O_TRACESYSGOOD;

/// Suspends the thread's seccomp filters while it is traced (needs CAP_SYS_ADMIN).
const SUSPEND_SECCOMP: c_int = 1 << 21;

/// A running traced thread.
#[derive(Debug)]
pub struct Running {
    pub(crate) tid: pid_t,
}

/// A stopped traced thread.
///
/// Its registers are read once per stop, since only this tracer changes them. Its status and its
/// process's mappings are read once, too; the status is kept while the thread makes calls for the
/// tracer.
pub struct Stopped {
    pub(crate) tid: pid_t,
    registers: Cell<Option<Box<Registers>>>,
    rseq: Cell<Option<Option<RseqRegistration>>>,
    inner_id: Cell<Option<u32>>,
    status: Cell<Option<Rc<Status>>>,
    mappings: Cell<Option<Rc<[Mapping]>>>,
    /// The stop at which [`Stopped::settle`] would leave it, if it is there already.
    settled: Option<Stop>,
}

impl std::fmt::Debug for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stopped").field("tid", &self.tid).finish_non_exhaustive()
    }
}

/// A thread's own segment, as in the kernel's `struct user_desc` (arch/x86/include/uapi/asm/ldt.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnSegment {
    /// The segment's start.
    pub base: u32,
    /// Its last byte, or page.
    pub limit: u32,
    /// The bits after the limit in the `user_desc`.
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
        /// The new thread; 0 if it was killed before its id could be read.
        child: pid_t,
        /// `Fork`, `Vfork` or `Clone`, as the kernel classes it.
        kind: Birth,
    },
    /// It has executed another program; its other threads are gone, and its id is now that of its
    /// process.
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

/// An event of a traced thread.
#[derive(Debug)]
pub enum Event {
    /// It has stopped.
    Stopped(Stopped, Stop),
    /// It has ended. For the last thread of a process the status is the process's.
    Ended {
        /// The thread.
        tid: pid_t,
        /// The wait status, as from waitpid.
        status: c_int,
    },
}

impl Running {
    /// Starts tracing a thread; it keeps running.
    ///
    /// # Errors
    /// The thread is gone, belongs to another user, or is traced already.
    pub fn seize(tid: pid_t) -> Result<Running, Error> {
        ptrace::seize(tid, OPTIONS)?;
        Ok(Running { tid })
    }

    /// Like [`Running::seize`], without events for its children, its exec and its end; its children
    /// are not traced.
    ///
    /// # Errors
    /// As of [`Running::seize`].
    pub fn seize_quietly(tid: pid_t) -> Result<Running, Error> {
        // So that system call stops can be told from a SIGTRAP.
        ptrace::seize(tid, libc::PTRACE_O_TRACESYSGOOD)?;
        Ok(Running { tid })
    }

    /// The thread's id.
    pub fn tid(&self) -> pid_t {
        self.tid
    }

    /// Asks it to stop. The stop comes as [`Stop::Interrupt`] or [`Stop::Group`], unless the thread
    /// stops for another reason first, which uses up the request.
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

    /// Its id as it sees it, in its own pid namespace; `None` if it is gone.
    pub fn inner_id(&self) -> Option<u32> {
        if self.inner_id.get().is_none() {
            self.note_inner_id(self.status().ok()?.inner_id);
        }
        self.inner_id.get()
    }

    /// Its status as first read in this stop. Other threads may since have changed what belongs to
    /// the process, such as signal handlers.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn status(&self) -> Result<Rc<Status>, Error> {
        let status = match self.status.take() {
            Some(known) => known,
            None => Rc::new(Status::read(self.tid)?),
        };
        self.status.set(Some(Rc::clone(&status)));
        Ok(status)
    }

    /// The mappings of its process, as first read in this stop or after the last call that the
    /// thread has made for the tracer. Other threads may have changed them since.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn mappings(&self) -> Result<Rc<[Mapping]>, ModuleError> {
        let mappings = match self.mappings.take() {
            Some(known) => known,
            None => crate::maps(self.tid)?.into(),
        };
        self.mappings.set(Some(Rc::clone(&mappings)));
        Ok(mappings)
    }

    /// Carries what was read over to the next stop of the same thread, which has executed nothing
    /// of its own in between. `mappings`: it has made no call, so its mappings carry over, too.
    pub(crate) fn known_as(self, before: &Stopped, mappings: bool) -> Stopped {
        self.inner_id.set(before.inner_id.get());
        self.status.set(before.status.take());
        if mappings {
            self.mappings.set(before.mappings.take());
        }
        self
    }

    /// Notes its id in its own pid namespace, which the caller has read already
    /// ([`Status::inner_id`]).
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

    /// Its rseq registration, or `None` if it has none or the kernel is older than 5.13.
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

    /// The linear base address of the segment that a selector names: one of the flat segments that
    /// every thread has, or one of the thread's own (`set_thread_area`). `None` for any other;
    /// segments of a local descriptor table are not visible to a tracer.
    pub fn segment_base(&self, selector: u16) -> Option<u64> {
        // Bit 2: the local table. Indices 4 to 6: 32-bit code, data, 64-bit code.
        match (selector >> 2 & 1, selector >> 3) {
            (0, 4..=6) => Some(0),
            (0, place) if place > 6 => {
                ptrace::own_segment(self.tid, place).map(|segment| segment.base.into())
            }
            _ => None,
        }
    }

    /// Its own segment (`set_thread_area`) at an index of the global descriptor table: 12 to 14.
    pub fn own_segment(&self, place: u16) -> Option<OwnSegment> {
        ptrace::own_segment(self.tid, place)
    }

    /// Sets or removes that segment. 64-bit code notices it only if it looks for it.
    ///
    /// # Errors
    /// The thread has been killed, or the kernel has no such segments (it was built without support
    /// for 32-bit programs).
    pub fn set_own_segment(&self, place: u16, segment: Option<OwnSegment>) -> Result<(), Error> {
        ptrace::set_own_segment(self.tid, place, segment)
    }

    /// Sets its registers.
    ///
    /// # Errors
    /// The thread has been killed, or a segment register's value is not valid.
    pub fn set_registers(&mut self, registers: &Registers) -> Result<(), Error> {
        // The kernel may store other values than it was given, so they are read again.
        self.registers.set(None);
        ptrace::set_registers(self.tid, registers)
    }

    /// Its floating-point and SSE registers, in the layout of `fxsave` and of a core file's
    /// NT_PRFPREG note.
    ///
    /// # Errors
    /// The thread has been killed.
    pub fn floating_point(&self) -> Result<Vec<u8>, Error> {
        ptrace::register_set(self.tid, libc::NT_PRFPREG)
    }

    /// The floating-point and SSE registers of a thread that runs 32-bit code, in the layout of
    /// `fxsave` and of a core file's NT_PRXFPREG note. [`Stopped::floating_point`] has no SSE
    /// registers for such a thread.
    ///
    /// # Errors
    /// The thread has been killed, or runs 64-bit code.
    pub fn fxsave_registers(&self) -> Result<Vec<u8>, Error> {
        /// The note's type (include/uapi/linux/elf.h).
        const NT_PRXFPREG: c_int = 0x46e6_2b7f;
        ptrace::register_set(self.tid, NT_PRXFPREG)
    }

    /// The own segments (`set_thread_area`) of a thread that runs 32-bit code, in the layout of a
    /// core file's NT_386_TLS note.
    ///
    /// # Errors
    /// The thread has been killed, or runs 64-bit code.
    pub fn own_segments(&self) -> Result<Vec<u8>, Error> {
        /// The note's type (include/uapi/linux/elf.h).
        const NT_386_TLS: c_int = 0x200;
        ptrace::register_set(self.tid, NT_386_TLS)
    }

    /// Its extended registers, in the layout of `xsave` and of a core file's NT_X86_XSTATE note.
    ///
    /// # Errors
    /// The thread has been killed, or the processor has no such registers.
    pub fn extended_state(&self) -> Result<Vec<u8>, Error> {
        /// The note's type (include/uapi/linux/elf.h).
        const NT_X86_XSTATE: c_int = 0x202;
        ptrace::register_set(self.tid, NT_X86_XSTATE)
    }

    /// The siginfo of the signal about to be delivered.
    ///
    /// # Errors
    /// The thread has been killed, or is not stopped by a signal.
    pub fn signal_info(&self) -> Result<siginfo_t, Error> {
        ptrace::signal_info(self.tid)
    }

    /// Changes the siginfo of the signal about to be delivered.
    ///
    /// # Errors
    /// The thread has been killed, or is not stopped by a signal.
    pub fn set_signal_info(&mut self, info: &siginfo_t) -> Result<(), Error> {
        ptrace::set_signal_info(self.tid, info)
    }

    /// The address of its rseq area, which has the number of its current processor.
    pub fn rseq_area(&self) -> Option<u64> {
        self.rseq_registration().map(|registration| registration.address)
    }

    /// Suspends the thread's seccomp filters while it is traced.
    ///
    /// # Errors
    /// The caller lacks CAP_SYS_ADMIN, or is itself filtered.
    pub fn suspend_seccomp(&mut self) -> Result<(), Error> {
        ptrace::set_options(self.tid, OPTIONS | SUSPEND_SECCOMP)
    }

    /// Reactivates the thread's seccomp filters.
    ///
    /// # Errors
    /// The thread has been killed.
    pub fn restore_seccomp(&mut self) -> Result<(), Error> {
        ptrace::set_options(self.tid, OPTIONS)
    }

    /// Resumes it until it enters or leaves a system call, or stops for another reason.
    pub fn resume_to_call(self) -> Running {
        // As in `resume`.
        let _ = ptrace::resume_to_syscall(self.tid);
        Running { tid: self.tid }
    }

    /// Resumes it, delivering `signal` (or none, with 0). A thread that has been killed meanwhile
    /// reports its end.
    pub fn resume(self, signal: c_int) -> Running {
        // It fails only if the thread is gone; `wait` reports that.
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

    /// Moves a thread from any stop to [`Stop::Interrupt`] or [`Stop::Group`]: the point on its way
    /// back to user space from which the kernel, when resumed, restarts an interrupted system call.
    /// A signal at whose delivery it was stopped is dropped.
    ///
    /// # Errors
    /// The thread has been killed; its end is still to be waited for.
    pub fn settle(self) -> Result<(Stopped, Stop), Error> {
        if let Some(stop) = self.settled {
            return Ok((self, stop));
        }
        loop {
            // Repeated after any other stop, which uses up the request.
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

    /// Notes that it is where [`Stopped::settle`] would leave it.
    pub(crate) fn settled(mut self, stop: Stop) -> Stopped {
        self.settled = Some(stop);
        self
    }

    /// Waits for this thread's next stop. Its end is left for [`wait`] to report.
    pub(crate) fn next_stop(&self) -> Result<(Stopped, Stop), Error> {
        self.next_stop_while(&mut || ())
    }

    /// Like [`Stopped::next_stop`]; calls `meanwhile` repeatedly until there is an event.
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
                    // It is being killed: resume it to its end, which `wait` reports.
                    ptrace::resume(tid, 0)?;
                    Err(Error::Gone { pid: tid })
                }
                Event::Stopped(stopped, stop) => Ok((stopped, stop)),
                Event::Ended { tid, .. } => Err(Error::Gone { pid: tid }),
            };
        }
    }
}

/// Takes an event of a thread from the kernel: its id, 0 if there is none, or -1; and its wait
/// status.
fn take(tid: pid_t, flags: c_int) -> (pid_t, c_int) {
    let mut status = 0;
    // SAFETY: `status` is valid for the call. (nix reports a stop by a real-time signal as an
    // error, and its waitid does not tell which thread an event is of.)
    let tid = unsafe { libc::waitpid(tid, &mut status, libc::__WALL | flags) };
    (tid, status)
}

/// Waits for an event of a thread without taking it from the kernel. Returns whether it is the
/// thread's end.
///
/// A blocking wait could deadlock: if the first thread of a process is killed while exiting, it
/// ends without a stop, and its end is reported only after the other threads have ended, which may
/// be waiting for the tracer.
fn has_ended(tid: pid_t, meanwhile: &mut dyn FnMut()) -> bool {
    /// Looks before the first pause, and per step in the pause's length. With pauses, also reading
    /// /proc is cheap.
    const BRISK: u32 = 64;
    let flags = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::WNOHANG | libc::__WALL;
    for look in 0u32.. {
        // SAFETY: all zeros are a siginfo_t, and it is valid for the call; with news, si_pid is
        // filled.
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

/// Waits for an event of any traced thread. `None`: a signal to the caller has interrupted the
/// wait, or, with `block` false, there is no event.
///
/// # Errors
/// There are no traced threads ([`Error::Gone`] of -1).
pub fn wait(block: bool) -> Result<Option<Event>, Error> {
    wait_for(-1, if block { libc::__WALL } else { libc::__WALL | libc::WNOHANG })
}

/// Looks for an event of one traced thread, without waiting.
///
/// # Errors
/// The thread is not traced by the caller ([`Error::Gone`]).
pub fn look_at(tid: pid_t) -> Result<Option<Event>, Error> {
    wait_for(tid, libc::__WALL | libc::WNOHANG)
}

/// Wait codes from here on are of ptrace events, with the event in the second byte.
const EVENT: c_int = 1 << 8;

/// Takes the last signal stop from the kernel, if that is still to be done. From then on the signal
/// is lost if the tracer dies. Returns an event if the thread has been killed in its stop.
///
/// # Errors
/// The kernel does not say what became of the thread.
pub fn take_last_stop() -> Result<Option<Event>, Error> {
    let Some((tid, stop)) = ptrace::untaken() else { return Ok(None) };
    let (taken, status) = take(tid, libc::WNOHANG);
    if taken == tid && status != stop { event(tid, status).map(Some) } else { Ok(None) }
}

/// An event of one traced thread, or with -1 of any.
///
/// A signal stop is not taken from the kernel until the thread is resumed or the next event is
/// requested: until then the kernel still delivers the signal if the tracer dies.
fn wait_for(wanted: pid_t, flags: c_int) -> Result<Option<Event>, Error> {
    if let Some(event) = take_last_stop()? {
        return Ok(Some(event));
    }
    let (kind, id) = if wanted == -1 { (libc::P_ALL, 0) } else { (libc::P_PID, wanted as libc::id_t) };
    let flags = flags | libc::WEXITED | libc::WNOWAIT;
    // SAFETY: all zeros are a siginfo_t, and it is valid for the call; with news, the fields of a
    // child are filled.
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
        // A ptrace event carries no signal; and after an exec the kernel requires the event to be
        // taken before any request to its thread.
        (tid, libc::CLD_TRAPPED | libc::CLD_STOPPED) if code < EVENT => {
            let status = code << 8 | 0x7f;
            ptrace::set_pending_stop(tid, status);
            event(tid, status).map(Some)
        }
        (tid, _) => match take(tid, libc::WNOHANG) {
            (0 | -1, _) => Ok(None),
            (tid, status) => event(tid, status).map(Some),
        },
    }
}

/// Decodes a wait status.
fn event(tid: pid_t, status: c_int) -> Result<Event, Error> {
    if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
        return Ok(Event::Ended { tid, status });
    }
    let signal = libc::WSTOPSIG(status);
    let message = || ptrace::event_message(tid).map(|message| message as pid_t);
    // The thread was killed between report and request: it cannot say which child.
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
        // The thread was killed between report and request: its end is reported next.
        Err(error) if error.is_gone() => Ok(Event::Stopped(Stopped::new(tid), Stop::Other)),
        Err(error) => Err(error),
    }
}
