//! The classic breakpoint: restore the byte, single-step, put the breakpoint back.
//!
//! What every debugger's tutorial teaches, with nothing around it: no symbols, no handlers, a count. Two stops per
//! hit, three writes of registers or memory, and other threads slip through while the byte is restored. It is the
//! baseline, so it is written as well as it can be: one open file for memory, no needless calls.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn interrupt(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// A ptrace request without pointers to this process' memory.
fn request(what: libc::c_uint, thread: i32, address: u64, data: u64) -> io::Result<()> {
    // SAFETY: none of the requests made here (see the callers) reads or writes memory of this process through its
    // arguments: SEIZE, INTERRUPT, CONT, SINGLESTEP and DETACH take numbers.
    match unsafe { libc::ptrace(what, thread, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Waits for a traced thread, or for any (`-1`): its number and its status; `None` when a signal came first.
fn wait(thread: i32) -> io::Result<Option<(i32, i32)>> {
    let mut status = 0;
    // SAFETY: status is a live i32, which is what waitpid writes.
    match unsafe { libc::waitpid(thread, &mut status, libc::__WALL) } {
        -1 => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            error => Err(error),
        },
        stopped => Ok(Some((stopped, status))),
    }
}

fn registers(thread: i32) -> io::Result<libc::user_regs_struct> {
    // SAFETY: an all-zero user_regs_struct is a valid one: it holds numbers only.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    // SAFETY: registers is a live user_regs_struct, which is what GETREGS writes.
    match unsafe { libc::ptrace(libc::PTRACE_GETREGS, thread, 0, &mut registers) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(registers),
    }
}

fn set_registers(thread: i32, registers: &libc::user_regs_struct) -> io::Result<()> {
    // SAFETY: registers is a live user_regs_struct, which is what SETREGS reads.
    match unsafe { libc::ptrace(libc::PTRACE_SETREGS, thread, 0, registers) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Counts how often the instruction at an address of a process runs, until SIGINT or the process' end.
///
/// The process may start threads meanwhile, but must have one only when this begins.
///
/// # Errors
/// The process cannot be traced.
pub fn classic(pid: i32, address: u64) -> io::Result<u64> {
    // SAFETY: an all-zero sigaction is a valid one: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = interrupt as *const () as usize;
    // SAFETY: action is a live sigaction whose handler only stores to an atomic.
    unsafe { libc::sigaction(libc::SIGINT, &action, std::ptr::null_mut()) };

    let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
    let mut original = [0];
    memory.read_exact_at(&mut original, address)?;
    let breakpoint = [0xcc];
    let mut hits = 0;
    let mut threads = vec![pid];

    request(libc::PTRACE_SEIZE, pid, 0, libc::PTRACE_O_TRACECLONE as u64)?;
    request(libc::PTRACE_INTERRUPT, pid, 0, 0)?;
    while wait(pid)?.is_none() {}
    memory.write_all_at(&breakpoint, address)?;
    request(libc::PTRACE_CONT, pid, 0, 0)?;

    while !INTERRUPTED.load(Ordering::Relaxed) {
        let Some((thread, status)) = wait(-1)? else { continue };
        if !libc::WIFSTOPPED(status) {
            threads.retain(|each| *each != thread);
            if thread == pid {
                return Ok(hits);
            }
            continue;
        }
        if !threads.contains(&thread) {
            threads.push(thread);
        }
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        if signal == libc::SIGTRAP && event == 0 {
            let mut at = registers(thread)?;
            if at.rip == address + 1 {
                hits += 1;
                at.rip = address;
                set_registers(thread, &at)?;
                memory.write_all_at(&original, address)?;
                request(libc::PTRACE_SINGLESTEP, thread, 0, 0)?;
                while wait(thread)?.is_none() {}
                memory.write_all_at(&breakpoint, address)?;
            }
            request(libc::PTRACE_CONT, thread, 0, 0)?;
        } else {
            let deliver = if event != 0 { 0 } else { signal };
            request(libc::PTRACE_CONT, thread, 0, deliver as u64)?;
        }
    }
    memory.write_all_at(&original, address)?;
    for thread in threads {
        if request(libc::PTRACE_INTERRUPT, thread, 0, 0).is_ok() {
            while wait(thread)?.is_none() {}
            let _ = request(libc::PTRACE_DETACH, thread, 0, 0);
        }
    }
    Ok(hits)
}
