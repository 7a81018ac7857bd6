//! A thread that sleeps in a system call, and how another of its process interrupts it.

use nix::unistd::{Pid, getpid, gettid};

/// A thread of this process. It must not end before what holds this, or another thread may get its
/// number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sleeper(Pid);

impl Sleeper {
    /// The calling thread.
    pub(crate) fn this() -> Sleeper {
        Sleeper(gettid())
    }

    /// Interrupts the thread's system call by a signal, SIGURG, which has to have a handler.
    pub(crate) fn interrupt(self) {
        // SAFETY: the call takes three numbers. (The C library's `pthread_t` is a pointer in some
        // libraries, which Rust does not let another thread have.)
        unsafe { libc::syscall(libc::SYS_tgkill, getpid().as_raw(), self.0.as_raw(), libc::SIGURG) };
    }
}
