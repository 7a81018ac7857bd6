//! The classic breakpoint: restore the byte, single-step, put the breakpoint back.
//!
//! The debugger tutorial's method, with no symbols and no handlers, only a count. It needs two
//! stops per hit and three writes of registers or memory, and other threads pass unnoticed while
//! the byte is restored. As the baseline it is written as fast as possible: one open file for
//! memory, no needless calls.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn interrupt(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Waits for a traced thread, or for any. `None` if a signal came first.
fn wait(thread: Option<Pid>) -> nix::Result<Option<WaitStatus>> {
    match waitpid(thread, Some(WaitPidFlag::__WALL)) {
        Err(Errno::EINTR) => Ok(None),
        status => status.map(Some),
    }
}

/// Counts how often the instruction at an address of a process runs, until SIGINT or the end of the
/// process.
///
/// The process may start threads meanwhile, but must have only one at the start.
///
/// # Errors
/// If the process cannot be traced.
pub fn classic(pid: i32, address: u64) -> io::Result<u64> {
    let pid = Pid::from_raw(pid);
    let action = SigAction::new(SigHandler::Handler(interrupt), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler only stores to an atomic.
    unsafe { sigaction(Signal::SIGINT, &action)? };

    let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
    let mut original = [0];
    memory.read_exact_at(&mut original, address)?;
    let breakpoint = [0xcc];
    let mut hits = 0;
    let mut threads = vec![pid];

    ptrace::seize(pid, Options::PTRACE_O_TRACECLONE)?;
    ptrace::interrupt(pid)?;
    while wait(Some(pid))?.is_none() {}
    memory.write_all_at(&breakpoint, address)?;
    ptrace::cont(pid, None)?;

    while !INTERRUPTED.load(Ordering::Relaxed) {
        let Some(status) = wait(None)? else { continue };
        let (thread, signal) = match status {
            WaitStatus::Stopped(thread, signal) => (thread, Some(signal)),
            WaitStatus::PtraceEvent(thread, _, _) => (thread, None),
            ended => {
                threads.retain(|each| Some(*each) != ended.pid());
                if ended.pid() == Some(pid) {
                    return Ok(hits);
                }
                continue;
            }
        };
        if !threads.contains(&thread) {
            threads.push(thread);
        }
        if signal == Some(Signal::SIGTRAP) {
            let mut at = ptrace::getregs(thread)?;
            if at.rip == address + 1 {
                hits += 1;
                at.rip = address;
                ptrace::setregs(thread, at)?;
                memory.write_all_at(&original, address)?;
                ptrace::step(thread, None)?;
                while wait(Some(thread))?.is_none() {}
                memory.write_all_at(&breakpoint, address)?;
            }
            ptrace::cont(thread, None)?;
        } else {
            ptrace::cont(thread, signal)?;
        }
    }
    memory.write_all_at(&original, address)?;
    for thread in threads {
        if ptrace::interrupt(thread).is_ok() {
            while wait(Some(thread))?.is_none() {}
            let _ = ptrace::detach(thread, None);
        }
    }
    Ok(hits)
}
