//! Two processes: the front, which the user started and sees, and the tracer.
//!
//! In: the command, with its targets open. Out: in the child, which traces, `Front` with the
//! ledger that both share. The parent does not return.
//!
//! A traced program depends on its tracer at every hit: a tracer that is stopped or killed would
//! hang or kill the program. So the tracer is a child in its own process group, which the
//! terminal's signals do not reach. Ctrl-Z stops only the front. If the front dies, even by
//! SIGKILL, the kernel signals the tracer, which removes the probes. If the tracer is killed, the
//! front restores the bytes from the ledger that both share, as a rule before the kernel releases
//! the traced threads ([`DeathMutex`]).

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
use crate::death_watch::{self, DeathMutex};

/// The tracer writes this into the pipe once it holds the [`DeathMutex`] mutex, so the front can
/// wait for its death on that.
const BEGUN: u8 = b'b';

/// The signals that end a session.
const ENDS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// The tracer's process id, in the front.
static TRACER: AtomicI32 = AtomicI32::new(0);

/// What the tracer knows about the front.
#[derive(Debug)]
pub(crate) struct Front {
    pid: u32,
    /// The front's process group, which a started command joins.
    pub(crate) group: i32,
    /// The changes that the tracer makes, shared with the front.
    pub(crate) ledger: Rc<Ledger>,
    /// The kernel closes it when the tracer's process has died with all its threads.
    _alive: io::PipeWriter,
}

impl Front {
    /// Whether the front has died.
    pub(crate) fn is_gone(&self) -> bool {
        parent_id() != self.pid
    }
}

/// Splits this process, which must have one thread. Returns in the tracer; the front lives until
/// the tracer ends, and exits with the tracer's status.
pub(crate) fn split() -> Result<Front, Failure> {
    Ok(split_beside((), |(), _| Box::new(|| {}))?.0)
}

/// Like [`split`], but the front does something besides waiting: it calls `beside` with the
/// tracer's process id, and calls the returned function when the tracer has ended. Both processes
/// get their own copy of `parts`.
pub(crate) fn split_beside<T>(
    parts: T,
    beside: impl FnOnce(T, i32) -> Box<dyn FnOnce()>,
) -> Result<(Front, T), Failure> {
    let failed = |what: &str, error: io::Error| Failure::new(format!("{what}: {error}"));
    process::check_proc().map_err(Failure::new)?;
    let ledger = Rc::new(Ledger::new().map_err(|error| failed("memory for the ledger", error))?);
    let (death, mut alive) = io::pipe().map_err(|error| failed("pipe", error))?;
    // Without it the front learns of the tracer's death from the pipe.
    let life = DeathMutex::new().ok();
    // Signals that come before the front can forward them stay blocked until it can.
    let held: SigSet = ENDS.into_iter().collect();
    let mask =
        held.thread_swap_mask(SigmaskHow::SIG_BLOCK).map_err(|error| failed("signals", error.into()))?;
    let let_through = || {
        let _ = mask.thread_set_mask();
    };
    let (pid, group) = (std::process::id(), getpgrp().as_raw());
    // SAFETY: the process has one thread, so the child may do anything.
    match unsafe { fork() } {
        Err(error) => {
            let_through();
            Err(failed("fork", error.into()))
        }
        Ok(ForkResult::Child) => {
            let_through();
            drop(death);
            if life.as_ref().is_some_and(DeathMutex::begin) {
                alive.write_all(&[BEGUN]).map_err(|error| failed("pipe", error))?;
            }
            let front = Front { pid, group, ledger, _alive: alive };
            let _ = prctl::set_pdeathsig(Signal::SIGTERM);
            if front.is_gone() {
                // SAFETY: a call that does not return.
                unsafe { libc::_exit(1) };
            }
            let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
            // Writing to the terminal must not stop a background process.
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
            (1..64).filter(|signal| control::is_expected(*signal)).for_each(|signal| {
                control::handle(signal, forward, false);
            });
            let_through();
            drop(alive);
            let ending = beside(parts, tracer);
            wait_for(tracer, death, life.as_ref(), &ledger, ending)
        }
    }
}

/// Whether the Yama security module lets this user trace only descendants.
fn only_descendants_are_traced() -> bool {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    is_restricted(scope.ok().as_deref(), geteuid().as_raw())
}

fn is_restricted(scope: Option<&str>, user: u32) -> bool {
    user != 0 && scope.and_then(|scope| scope.trim().parse::<u32>().ok()).is_some_and(|scope| scope > 0)
}

/// When the tracer dies, the processes that it started become children of the front, so the front
/// may restore their bytes. The started command's orphans then become the front's children, not
/// init's; the front reaps those that end.
fn adopt_orphans() {
    // If it fails, the started programs cannot be restored.
    let _ = prctl::set_child_subreaper(true);
    control::handle(libc::SIGCHLD, reap_orphans, false);
}

/// Reaps all children that have ended, except the tracer.
extern "C" fn reap_orphans(_signal: i32, _info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    let tracer = TRACER.load(Ordering::Relaxed);
    // SAFETY: system calls on local variables, which are async-signal-safe; `errno` is restored.
    // (nix reports an end by a real-time signal as an error.)
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

/// Forwards a signal to the tracer.
extern "C" fn forward(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to a handler with SA_SIGINFO; sigqueue is a plain
    // system call.
    unsafe {
        let value = if (*info).si_code > 0 { control::FROM_TERMINAL } else { 0 };
        let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(value) };
        libc::sigqueue(TRACER.load(Ordering::Relaxed), signal, value);
    }
}

/// Waits for the tracer's end, restores what it left if it was killed, and exits as it did.
fn wait_for(
    tracer: i32,
    mut death: io::PipeReader,
    life: Option<&DeathMutex>,
    ledger: &Ledger,
    ending: Box<dyn FnOnce()>,
) -> ! {
    let hurry = death_watch::RealtimePriority::new();
    // The waits go on after a signal.
    match life {
        Some(life) if death.read_exact(&mut [0]).is_ok() => life.wait(),
        // Nothing more is written to the pipe: this returns when the tracer is dead or dying.
        _ => drop(death.read_to_end(&mut Vec::new())),
    }
    let mut restored = ledger.restore();
    drop(hurry);
    let mut status = 0;
    loop {
        // SAFETY: `status` is valid for the call. (nix reports an end by a real-time signal as an
        // error.)
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
            "warning: the tracer was killed; unused bytes behind the code of process {pid} could not be zeroed again ({reason})"
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

/// Ends this process as another has ended: with its exit status, or by the signal that killed it.
pub(crate) fn end_as(status: i32) -> ! {
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
        // SAFETY: no handler is set; the process has nothing left to do. (nix has no real-time
        // signals.)
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
        // The signal did not kill this process after all.
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
