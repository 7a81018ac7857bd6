//! Two processes: the front, which the user started and sees, and the tracer.
//!
//! A traced program depends on its tracer at every hit: one that is stopped or killed would hang or kill the program.
//! So the tracer is a child in a process group of its own, out of reach of the terminal's signals. Ctrl-Z stops the
//! front only; and if the front dies, by SIGKILL too, the kernel tells the tracer, which takes the probes out. What
//! a killed tracer cannot do is told in docs/trap-engine.md.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::Failure;

/// The value that a forwarded signal carries if it came from the terminal, whose whole process group has had it.
pub(crate) const FROM_TERMINAL: usize = 1;

/// The tracer's process id, in the front.
static TRACER: AtomicI32 = AtomicI32::new(0);

/// What the tracer knows of the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Front {
    pid: i32,
    /// The front's process group, which a started command joins.
    pub(crate) group: i32,
}

impl Front {
    /// Whether the front has died.
    pub(crate) fn is_gone(self) -> bool {
        // SAFETY: a call without arguments that cannot fail.
        unsafe { libc::getppid() != self.pid }
    }
}

/// Splits this process, which must have one thread. Returns in the tracer; the front lives until the tracer has
/// ended, and ends as it did.
pub(crate) fn split() -> Result<Front, Failure> {
    // SAFETY: plain system calls; the process has one thread, so that the child may do anything.
    unsafe {
        let front = Front { pid: libc::getpid(), group: libc::getpgrp() };
        // What is written now must not be written twice.
        match libc::fork() {
            -1 => Err(Failure::new(format!("fork: {}", io::Error::last_os_error()))),
            0 => {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                if front.is_gone() {
                    libc::_exit(1);
                }
                libc::setpgid(0, 0);
                // A background process that writes to the terminal is not to be stopped for it.
                libc::signal(libc::SIGTTOU, libc::SIG_IGN);
                Ok(front)
            }
            tracer => {
                TRACER.store(tracer, Ordering::Relaxed);
                for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                    crate::control::handle(signal, forward, true);
                }
                wait_for(tracer)
            }
        }
    }
}

/// Passes a signal on to the tracer.
extern "C" fn forward(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to a handler with SA_SIGINFO; sigqueue is a plain system call.
    unsafe {
        let value = if (*info).si_code > 0 { FROM_TERMINAL } else { 0 };
        let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(value) };
        libc::sigqueue(TRACER.load(Ordering::Relaxed), signal, value);
    }
}

/// Waits for the tracer and ends as it does.
fn wait_for(tracer: i32) -> ! {
    let mut status = 0;
    loop {
        // SAFETY: `status` is valid for the call.
        let ended = unsafe { libc::waitpid(tracer, &mut status, 0) };
        if ended == tracer {
            break;
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            std::process::exit(1);
        }
    }
    crate::session::end_as(status)
}
