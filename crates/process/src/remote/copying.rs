//! A thread has its process copied: memory as of one moment, in a process that runs nothing.
//!
//! The copy must not be a child of the process, which may wait for any child
//! (`waitpid(-1, __WALL)`). So the thread does not fork it. It creates a *helper*, which has the
//! same memory and no signal for its end; the helper forks the copy and ends, and the thread waits
//! for the helper. The copy is then a child of whoever adopts orphans.
//!
//! ```text
//!   thread    clone(helper) --------- wait4(helper) ------------> rt_sigreturn, or back by the tracer
//!   helper       close_range, clone(copy), exit
//!   copy             stopped from its first moment on; killed at last
//! ```
//!
//! All three execute [`COPY_CODE`](super::COPY_CODE). If the tracer dies at any moment of this,
//! each ends by itself: the copy and the helper by `exit_group`, the thread as after any call. The
//! helper and the copy are killed then, too (PTRACE_O_EXITKILL).
//!
//! The helper's descriptors are the process's until it lets go of them; it keeps none, and neither
//! does the copy. So a file, pipe or socket that the program closes is closed. Nothing here uses a
//! stack.

use std::io;

use libc::{c_int, pid_t};

use super::CallDetour;
use super::copy_code::{CREATED, WAITED};
use crate::copied::Copied;
use crate::thread::{Stop, Stopped, events};
use crate::{Error, ptrace};

/// The helper shares the process's memory and descriptors. Without a signal in the low byte, its
/// end is signalled to nobody.
const HELPER: c_int = libc::CLONE_VM | libc::CLONE_FILES;
/// Both are reported by their first stop, and killed if the tracer dies.
const OPTIONS: c_int = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACESYSGOOD;

impl CallDetour {
    /// Has the thread copy its process, by the [`COPY_CODE`](super::COPY_CODE) at an address.
    /// `step` is called after each change of a thread's state.
    ///
    /// # Errors
    /// The thread has been killed. Why there is no copy is in the result: the kernel's reason, or
    /// that the thread could not return from there without its tracer.
    pub(crate) fn copy_process(
        &mut self,
        mut thread: Stopped,
        code: u64,
        step: &mut dyn FnMut(),
    ) -> Result<(Stopped, io::Result<Copied>), Error> {
        let Some(rsp) = self.way_back.as_ref().map(|way| way.rsp) else {
            return Ok((thread, Err(io::ErrorKind::Unsupported.into())));
        };
        let is_filtered = thread.status().is_ok_and(|status| status.seccomp != 0);
        self.settled = Stop::Other;
        let mut registers = self.for_call(libc::SYS_clone, [HELPER as u64, 0, 0, 0, 0, 0], rsp);
        registers.set_rip(code);
        self.send(&mut thread, &registers, step)?;
        let mut copied = Err(io::Error::other("the helper has not begun"));
        let mut entered = false;
        loop {
            ptrace::resume_to_syscall(thread.tid())?;
            let (stopped, stop) = thread.next_stop()?;
            thread = stopped.known_as(&thread, false);
            step();
            match stop {
                Stop::Clone { child, .. } if child != 0 => {
                    copied = Helper { pid: child, is_filtered }.copy(step);
                }
                Stop::SystemCall => {
                    entered = !entered;
                    let now = thread.registers()?;
                    // A call that a stop has interrupted begins again.
                    let again = (-516..=-512).contains(&now.result());
                    if entered || again {
                        continue;
                    }
                    match now.rip().wrapping_sub(code) {
                        CREATED if now.result() >= 0 => {}
                        CREATED => {
                            copied = Err(io::Error::from_raw_os_error(-now.result() as i32));
                            break;
                        }
                        WAITED => break,
                        _ => {
                            copied = Err(io::ErrorKind::InvalidData.into());
                            break;
                        }
                    }
                }
                Stop::Signal(libc::SIGSTOP) => self.held_stop = true,
                // SIGSEGV is blocked, so this is a fault: the process has changed or unmapped the
                // code.
                Stop::Signal(libc::SIGSEGV) => {
                    copied = Err(io::Error::from_raw_os_error(libc::EFAULT));
                    break;
                }
                _ => {}
            }
        }
        Ok((thread, copied))
    }
}

/// The process that forks the copy, before it has executed anything.
struct Helper {
    pid: pid_t,
    /// It has the thread's seccomp filters, which are suspended.
    is_filtered: bool,
}

impl Helper {
    /// Lets it fork the copy and end.
    fn copy(self, step: &mut dyn FnMut()) -> io::Result<Copied> {
        let mut copied = None;
        let failed = self.run(&mut copied, step).err();
        let status = events::reap(self.pid);
        step();
        match (copied, failed) {
            (Some(copied), _) => copied,
            (None, Some(error)) if !error.is_gone() => Err(io::Error::other(error)),
            _ if libc::WIFEXITED(status) => Err(io::Error::from_raw_os_error(libc::WEXITSTATUS(status))),
            _ => Err(io::Error::other("the helper was killed")),
        }
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// [`Error::Gone`]: it has ended. Otherwise the kernel has refused a request, and it is killed.
    fn run(&self, copied: &mut Option<io::Result<Copied>>, step: &mut dyn FnMut()) -> Result<(), Error> {
        let (mut thread, _) = Stopped::new(self.pid).next_stop()?;
        step();
        let prepared = match self.is_filtered {
            true => ptrace::set_options(self.pid, OPTIONS | ptrace::SUSPEND_SECCOMP),
            false => ptrace::set_options(self.pid, OPTIONS),
        };
        if let Err(error) = prepared {
            // SAFETY: a system call on integers; the helper has not been waited for.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            return Err(error);
        }
        step();
        loop {
            ptrace::resume(self.pid, 0)?;
            let (stopped, stop) = thread.next_stop()?;
            thread = stopped;
            step();
            match stop {
                Stop::Clone { child, .. } if child != 0 => *copied = Some(Copied::born(child)),
                Stop::Signal(libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGSYS) => {
                    // SAFETY: as above.
                    unsafe { libc::kill(self.pid, libc::SIGKILL) };
                }
                _ => {}
            }
        }
    }
}
