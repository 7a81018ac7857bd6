//! Two processes: the front, which the user started and sees, and the tracer.
//!
//! A traced program depends on its tracer at every hit: one that is stopped or killed would hang or kill the program.
//! So the tracer is a child in a process group of its own, out of reach of the terminal's signals. Ctrl-Z stops the
//! front only; and if the front dies, by SIGKILL too, the kernel tells the tracer, which takes the probes out. If it
//! is the tracer that is killed, the front puts the bytes back, from the ledger that both share: before the kernel lets the traced threads go, as
//! a rule ([`Life`]).

use std::io::{self, Read, Write};
use std::os::unix::process::parent_id;
use std::rc::Rc;
use std::sync::atomic::{AtomicI32, Ordering};

use engine::Ledger;
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::{ForkResult, Pid, fork, geteuid, getpgrp, setpgid};

use crate::Failure;
use crate::control;
use crate::life::{self, Life};

/// What the tracer writes into the pipe when the front can wait for its end by its life.
const BEGUN: u8 = b'b';

/// The signals that end a session.
const ENDS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// The tracer's process id, in the front.
static TRACER: AtomicI32 = AtomicI32::new(0);

/// What the tracer knows of the front.
#[derive(Debug)]
pub(crate) struct Front {
    pid: u32,
    /// The front's process group, which a started command joins.
    pub(crate) group: i32,
    /// What the tracer changes, for the front to know.
    pub(crate) ledger: Rc<Ledger>,
    /// Closed by the kernel when the tracer dies, with all its threads.
    _alive: io::PipeWriter,
}

impl Front {
    /// Whether the front has died.
    pub(crate) fn is_gone(&self) -> bool {
        parent_id() != self.pid
    }
}

/// Splits this process, which must have one thread. Returns in the tracer; the front lives until the tracer has
/// ended, and ends as it did.
pub(crate) fn split() -> Result<Front, Failure> {
    Ok(split_beside((), |(), _| Box::new(|| {}))?.0)
}

/// The same, with something that the front does beside waiting: `beside` is called in it, with the tracer's process id, and what it gives when
/// the tracer has ended. `parts` are for both: each process has its own.
pub(crate) fn split_beside<T>(
    parts: T,
    beside: impl FnOnce(T, i32) -> Box<dyn FnOnce()>,
) -> Result<(Front, T), Failure> {
    let failed = |what: &str, error: io::Error| Failure::new(format!("{what}: {error}"));
    process::check_proc().map_err(Failure::new)?;
    let ledger = Rc::new(Ledger::new().map_err(|error| failed("memory for the ledger", error))?);
    let (death, mut alive) = io::pipe().map_err(|error| failed("pipe", error))?;
    // Without it the front learns of the tracer's death by the pipe.
    let life = Life::new().ok();
    // One that comes before the front can pass it on waits until it can.
    let held: SigSet = ENDS.into_iter().collect();
    let mask =
        held.thread_swap_mask(SigmaskHow::SIG_BLOCK).map_err(|error| failed("signals", error.into()))?;
    let let_through = || {
        let _ = mask.thread_set_mask();
    };
    let (pid, group) = (std::process::id(), getpgrp().as_raw());
    // SAFETY: the process has one thread, so that the child may do anything.
    match unsafe { fork() } {
        Err(error) => {
            let_through();
            Err(failed("fork", error.into()))
        }
        Ok(ForkResult::Child) => {
            let_through();
            drop(death);
            if life.as_ref().is_some_and(Life::begin) {
                alive.write_all(&[BEGUN]).map_err(|error| failed("pipe", error))?;
            }
            let front = Front { pid, group, ledger, _alive: alive };
            let _ = prctl::set_pdeathsig(Signal::SIGTERM);
            if front.is_gone() {
                // SAFETY: a call that does not return.
                unsafe { libc::_exit(1) };
            }
            let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
            // A background process that writes to the terminal is not to be stopped for it.
            // SAFETY: no handler is set.
            unsafe { libc::signal(libc::SIGTTOU, libc::SIG_IGN) };
            Ok((front, parts))
        }
        Ok(ForkResult::Parent { child }) => {
            let tracer = child.as_raw();
            TRACER.store(tracer, Ordering::Relaxed);
            if only_descendants_are_traced() {
                adopt_orphans();
            }
            for signal in ENDS {
                control::handle(signal as i32, forward, true);
            }
            let_through();
            drop(alive);
            let ending = beside(parts, tracer);
            wait_for(tracer, death, life.as_ref(), &ledger, ending)
        }
    }
}

/// Whether this user may trace descendants only, by the rules of the Yama security module.
fn only_descendants_are_traced() -> bool {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    is_restricted(scope.ok().as_deref(), geteuid().as_raw())
}

fn is_restricted(scope: Option<&str>, user: u32) -> bool {
    user != 0 && scope.and_then(|scope| scope.trim().parse::<u32>().ok()).is_some_and(|scope| scope > 0)
}

/// What the tracer has started becomes this process's when the tracer dies: so its bytes may be put back. Orphans of the started command
/// have this process for a parent then, not the system's first; those that end are waited for.
fn adopt_orphans() {
    // Where it fails, programs that were started cannot be helped.
    let _ = prctl::set_child_subreaper(true);
    control::handle(libc::SIGCHLD, reap_orphans, false);
}

/// Waits for all children that have ended, but for the tracer.
extern "C" fn reap_orphans(_signal: i32, _info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    let tracer = TRACER.load(Ordering::Relaxed);
    // SAFETY: system calls on local variables, which are async-signal-safe; the error number is put back. (nix takes an end by a real-time
    // signal for an error.)
    unsafe {
        let before = *libc::__errno_location();
        loop {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            if libc::waitid(libc::P_ALL, 0, &mut info, flags) != 0
                || info.si_pid() == 0
                || info.si_pid() == tracer
            {
                break;
            }
            libc::waitpid(info.si_pid(), std::ptr::null_mut(), libc::WNOHANG);
        }
        *libc::__errno_location() = before;
    }
}

/// Passes a signal on to the tracer.
extern "C" fn forward(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to a handler with SA_SIGINFO; sigqueue is a plain system call.
    unsafe {
        let value = if (*info).si_code > 0 { control::FROM_TERMINAL } else { 0 };
        let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(value) };
        libc::sigqueue(TRACER.load(Ordering::Relaxed), signal, value);
    }
}

/// Waits for the tracer and ends as it does.
fn wait_for(
    tracer: i32,
    mut death: io::PipeReader,
    life: Option<&Life>,
    ledger: &Ledger,
    ending: Box<dyn FnOnce()>,
) -> ! {
    let hurry = life::Hurry::new();
    // They go on after a signal.
    match life {
        Some(life) if death.read_exact(&mut [0]).is_ok() => life.wait(),
        // Nothing more is written: this returns when the tracer is dead or dying.
        _ => drop(death.read_to_end(&mut Vec::new())),
    }
    let mut restored = ledger.restore();
    drop(hurry);
    let mut status = 0;
    loop {
        // SAFETY: `status` is valid for the call. (nix takes an end by a real-time signal for an error.)
        let ended = unsafe { libc::waitpid(tracer, &mut status, 0) };
        if ended == tracer {
            break;
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            ending();
            std::process::exit(1);
        }
    }
    ledger.give_back(&mut restored);
    ending();
    if restored.restored > 0 {
        crate::messages::tell(&format!(
            "warning: the tracer was killed; the bytes of {} put back",
            crate::messages::count(restored.restored as u64, "site")
        ));
    }
    for left in &restored.left {
        crate::messages::tell(&format!(
            "warning: the tracer was killed; {} stay in process {} ({}); jumps work on, and traps are answered in the process",
            crate::messages::count(left.changes as u64, "change"),
            left.pid,
            left.reason
        ));
    }
    for (pid, reason) in &restored.lent {
        crate::messages::tell(&format!(
            "warning: the tracer was killed; nine bytes that process {pid} does not use, behind its code, are not zeros again ({reason})"
        ));
    }
    for (pid, reason) in &restored.kept {
        crate::messages::tell(&format!(
            "warning: the tracer was killed; memory that was mapped for the probes stays in process {pid} ({reason})"
        ));
    }
    if restored.unknown > 0 {
        crate::messages::tell(&format!(
            "warning: the tracer was killed; {} may stay in children of the process, which were not noted for want of \
             room",
            crate::messages::count(restored.unknown, "change")
        ));
    }
    end_as(status)
}

/// Ends this process as another has ended: with its status, or by the signal that killed it.
pub(crate) fn end_as(status: i32) -> ! {
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
        // SAFETY: no handler is set; the process has nothing left to do. (nix has no real-time signals.)
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
        // A signal that does not kill after all.
        std::process::exit(128 + signal);
    }
    std::process::exit(libc::WEXITSTATUS(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_users_that_the_security_module_restricts_adopt_orphans() {
        assert!(is_restricted(Some("1\n"), 1000) && is_restricted(Some("2"), 1000));
        assert!(!is_restricted(Some("1\n"), 0));
        assert!(!is_restricted(Some("0\n"), 1000) && !is_restricted(None, 1000));
    }
}
