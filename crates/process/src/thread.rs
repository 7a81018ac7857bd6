//! A traced thread is [`Running`] or [`Stopped`]; the types separate what may be done to each.
//!
//! A running thread can only be asked to stop. A stopped one can be read and changed; resuming it
//! consumes it. `events` waits for the next stop of a thread, or for its end.

use std::cell::Cell;
use std::rc::Rc;

use libc::{c_int, pid_t, siginfo_t};

pub(crate) mod events;

use crate::ptrace::{self, SUSPEND_SECCOMP};
use crate::{Error, FloatRegisters, Mapping, ModuleError, Registers, RseqRegistration, Status};

/// The kernel reports, for every traced thread, its children, its exec and its end.
const OPTIONS: c_int = libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT
    | libc::PTRACE_O_TRACESYSGOOD;

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
        // It fails only if the thread is gone; `crate::wait` reports that.
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

    /// Notes that it is where [`Stopped::settle`] would leave it.
    pub(crate) fn settled(mut self, stop: Stop) -> Stopped {
        self.settled = Some(stop);
        self
    }
}
