//! A copy of a process ([`crate::Caller::copy_process`]): its memory at one moment, to be read.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

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
}

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
        Ok(Copied { pid, handle })
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
