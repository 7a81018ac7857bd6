//! A copy of a process ([`crate::Caller::copy_process`]): its memory at one moment, to be read.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

use libc::pid_t;

use crate::thread::{Stopped, events};

/// A process that has the memory of another one as it was at the moment of the copy. It is traced
/// and stopped, and never executes an instruction. It is killed when this is dropped, when the
/// tracer dies, and by the kernel before other processes if memory runs out.
///
/// Its end is an [`crate::Event`] of the thread that traces it.
#[derive(Debug)]
pub struct Copied {
    pid: pid_t,
    handle: OwnedFd,
    /// Its `stat` in /proc: of this process alone, whoever gets its id later. None without /proc.
    status: Option<File>,
}

/// The flag of a thread that has begun to end (PF_EXITING of the kernel's sched.h), in the ninth
/// field of `stat` (proc(5)).
const EXITING: u64 = 0x4;

impl Copied {
    /// A traced process that has just been created; waits for its first stop.
    ///
    /// # Errors
    /// It was killed, or the kernel gives no handle on it. It is gone then.
    pub(crate) fn born(pid: pid_t) -> io::Result<Copied> {
        let handle = Stopped::new(pid).next_stop().map_err(io::Error::other).and_then(|_| handle_of(pid));
        let handle = handle.inspect_err(|_| {
            // SAFETY: a system call on integers; the process has not been waited for.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            events::reap(pid);
        })?;
        // The copy only costs memory; the process that it was made of does its work. Without /proc
        // the kernel chooses as it likes.
        let _ = OpenOptions::new()
            .write(true)
            .open(format!("/proc/{pid}/oom_score_adj"))
            .and_then(|mut file| file.write_all(b"1000"));
        let status = File::open(format!("/proc/{pid}/stat")).ok();
        Ok(Copied { pid, handle, status })
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it has not ended.
    pub fn lives(&self) -> bool {
        let mut asked = libc::pollfd { fd: self.handle.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `asked` is valid for the call, which does not wait.
        unsafe { libc::poll(&mut asked, 1, 0) == 0 }
    }

    /// Whether all that was read of its memory until now was its memory. A process that is killed
    /// loses its memory, which then reads as zeros or not at all, a while before it has ended.
    pub fn has_memory(&self) -> bool {
        let ending = || {
            let mut stat = [0; 512];
            let length = self.status.as_ref()?.read_at(&mut stat, 0).unwrap_or(0);
            // Its name, in parentheses, may have any character.
            let fields = stat[..length].rsplit(|byte| *byte == b')').next()?;
            let flags = std::str::from_utf8(fields).ok()?.split_ascii_whitespace().nth(6);
            Some(flags.is_none_or(|flags| flags.parse().is_ok_and(|flags: u64| flags & EXITING != 0)))
        };
        self.lives() && !ending().unwrap_or(false)
    }

    /// Kills it. Any thread may do that, at any time.
    pub fn kill(&self) {
        // It fails only if it has ended.
        // SAFETY: a system call on integers and a null pointer.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.handle.as_raw_fd(),
                libc::SIGKILL,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A descriptor of a process, which stays that process's when the id is used again.
fn handle_of(pid: pid_t) -> io::Result<OwnedFd> {
    // SAFETY: a system call on integers.
    let handle = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if handle < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(handle as RawFd) })
}
