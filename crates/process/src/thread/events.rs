//! Events of traced threads: waits for them, and decodes the kernel's wait statuses.
//!
//! In: wait statuses (`waitid`, `waitpid`) of any traced thread ([`wait`]) or of one. Out: a
//! [`Stopped`] thread with the reason of its stop, or the end of the thread ([`Event`]).
//!
//! A signal stop is looked at first and taken from the kernel later ([`take_last_stop`]), so that
//! the kernel still delivers the signal if the tracer dies.

use std::io;
use std::time::Duration;

use libc::{c_int, pid_t, siginfo_t};

use super::{Birth, Stop, Stopped};
use crate::ptrace::{self, SYSCALL_STOP};
use crate::{Error, Status};

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

impl Stopped {
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

/// Waits for the end of a traced process that ends now, and returns its wait status; 0 if it was
/// waited for before.
pub(crate) fn reap(pid: pid_t) -> c_int {
    loop {
        let (taken, status) = take(pid, 0);
        let interrupted = taken == -1 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        if taken == -1 && !interrupted {
            return 0;
        }
        if taken == pid && (libc::WIFEXITED(status) || libc::WIFSIGNALED(status)) {
            return status;
        }
    }
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

/// Waits for an event of any thread that the calling thread traces: other threads of this process
/// may trace, too. `None`: a signal to the caller has interrupted the wait, or, with `block` false,
/// there is no event.
///
/// # Errors
/// There are no traced threads ([`Error::Gone`] of -1).
pub fn wait(block: bool) -> Result<Option<Event>, Error> {
    wait_for(-1, libc::__WALL | libc::__WNOTHREAD | if block { 0 } else { libc::WNOHANG })
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
