//! A stopped thread that makes several system calls for the tracer, one after another.
//!
//! ```text
//!     Caller::begin --call--> Caller --call--> ... --end--> Stopped, Stop
//! ```
//!
//! Between two calls the thread stays in the kernel's hands, so that each costs two stops; the first sets out, and the end puts it back.
//! Each step either leaves the thread ready for the next one, whatever the system call's own result, or fails because the
//! thread has been killed; then nothing is left to put back.

use std::io;

use libc::{c_int, c_long};

use crate::remote::Away;
use crate::{Entrance, Error, Status, Stop, Stopped, memory};

/// A stopped thread of a 64-bit process, with a place to enter the kernel.
#[derive(Debug)]
pub struct Caller {
    thread: Stopped,
    stop: Stop,
    syscall: Entrance,
    /// Whether the thread's seccomp filters are suspended for it.
    suspended: bool,
    /// Where it was, once it has made a call.
    away: Option<Away>,
}

/// A caller that can go on, and what came of its step.
pub type Step<T> = (Caller, Result<T, Error>);

impl Caller {
    /// Takes a stopped thread to make calls by the instruction at `syscall` ([`crate::find_syscall`]). Where seccomp
    /// filters it, they are suspended until [`Caller::end`]: a filter may kill a process for a call that it did not expect.
    ///
    /// # Errors
    /// The thread runs 32-bit code, or is in a seccomp sandbox that the tracer may not suspend ([`Error::Unsuitable`]), or
    /// has been killed. The thread is given back as it was.
    pub fn begin(mut thread: Stopped, stop: Stop, syscall: Entrance) -> Result<Caller, (Stopped, Error)> {
        let pid = thread.tid();
        let look = thread.registers().and_then(|registers| Ok((registers, Status::read(pid)?)));
        let (registers, status) = match look {
            Ok(look) => look,
            Err(error) => return Err((thread, error)),
        };
        let unsuitable = |reason: &str| Error::Unsuitable { pid, reason: reason.to_owned() };
        if registers.is_32_bit() {
            return Err((thread, unsuitable("it runs 32-bit code")));
        }
        let suspended = status.seccomp != 0;
        if suspended && thread.suspend_seccomp().is_err() {
            let reason = "it is in a seccomp sandbox, in which no memory can be mapped for the probes without CAP_SYS_ADMIN";
            return Err((thread, unsuitable(reason)));
        }
        Ok(Caller { suspended, ..Caller::unfiltered(thread, stop, syscall) })
    }

    /// The same of a thread of any kind of code that no filter keeps from making the calls.
    pub fn unfiltered(thread: Stopped, stop: Stop, syscall: Entrance) -> Caller {
        Caller { thread, stop, syscall, suspended: false, away: None }
    }

    /// Gives the thread back, and why it is stopped now.
    ///
    /// # Errors
    /// The thread has been killed.
    pub fn end(mut self) -> Result<(Stopped, Stop), Error> {
        if let Some(away) = self.away {
            (self.thread, self.stop) = away.come_back(self.thread, &mut || ())?;
        }
        if self.suspended {
            self.thread.restore_seccomp()?;
        }
        Ok((self.thread, self.stop))
    }

    /// The thread.
    pub fn thread(&self) -> &Stopped {
        &self.thread
    }

    /// Makes one system call.
    ///
    /// # Errors
    /// The thread has been killed. An error of the call itself is in the result ([`Error::Remote`], under `name`).
    pub fn call(self, name: &'static str, number: c_long, arguments: [u64; 6]) -> Result<Step<u64>, Error> {
        let Caller { thread, stop, syscall, suspended, away } = self;
        let pid = thread.tid();
        let (thread, mut away) = match away {
            Some(away) => (thread, away),
            None => thread.set_out(syscall, &mut || ())?,
        };
        let (thread, result) = away.call(thread, number, arguments, &mut || ())?;
        let result = result.map_err(|cause| Error::Remote { call: name, pid, cause });
        Ok((Caller { thread, stop, syscall, suspended, away: Some(away) }, result))
    }

    /// Maps private anonymous memory at exactly `place`, where nothing is mapped. `size` is in bytes, `protection` as of
    /// mmap(2).
    ///
    /// # Errors
    /// As of [`Caller::call`]; where something is mapped there, the result is EEXIST.
    pub fn map(self, place: u64, size: u64, protection: c_int) -> Result<Step<()>, Error> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let arguments = [place, size, protection as u64, flags as u64, !0, 0];
        let (caller, result) = self.call("mmap", libc::SYS_mmap, arguments)?;
        match result {
            Ok(got) if got == place => Ok((caller, Ok(()))),
            Ok(elsewhere) => {
                // A kernel older than 4.17 does not know MAP_FIXED_NOREPLACE and takes the address as a hint.
                let (caller, _) = caller.unmap(elsewhere, size)?;
                let cause = io::Error::from_raw_os_error(libc::EEXIST);
                let error = Error::Remote { call: "mmap", pid: caller.thread.tid(), cause };
                Ok((caller, Err(error)))
            }
            Err(error) => Ok((caller, Err(error))),
        }
    }

    /// Unmaps memory: `size` bytes from `place` on.
    ///
    /// # Errors
    /// As of [`Caller::call`].
    pub fn unmap(self, place: u64, size: u64) -> Result<Step<()>, Error> {
        let (caller, result) = self.call("munmap", libc::SYS_munmap, [place, size, 0, 0, 0, 0])?;
        Ok((caller, result.map(drop)))
    }

    /// Changes the protection of memory.
    ///
    /// # Errors
    /// As of [`Caller::call`].
    pub fn protect(self, place: u64, size: u64, protection: c_int) -> Result<Step<()>, Error> {
        let arguments = [place, size, protection as u64, 0, 0, 0];
        let (caller, result) = self.call("mprotect", libc::SYS_mprotect, arguments)?;
        Ok((caller, result.map(drop)))
    }

    /// Has the kernel zero private anonymous memory in every forked child (MADV_WIPEONFORK).
    ///
    /// # Errors
    /// As of [`Caller::call`].
    pub fn wipe_on_fork(self, place: u64, size: u64) -> Result<Step<()>, Error> {
        let arguments = [place, size, libc::MADV_WIPEONFORK as u64, 0, 0, 0];
        let (caller, result) = self.call("madvise", libc::SYS_madvise, arguments)?;
        Ok((caller, result.map(drop)))
    }

    /// Has the kernel leave memory out of core dumps (MADV_DONTDUMP). Where it cannot, they are larger, and that is all.
    ///
    /// # Errors
    /// The thread has been killed.
    pub fn leave_out_of_dumps(self, place: u64, size: u64) -> Result<Caller, Error> {
        let arguments = [place, size, libc::MADV_DONTDUMP as u64, 0, 0, 0];
        Ok(self.call("madvise", libc::SYS_madvise, arguments)?.0)
    }

    /// Maps a page for the process to read and write at `place`, where this tracer has reserved memory.
    pub(crate) fn open_page(self, place: u64, size: u64) -> Result<Step<()>, Error> {
        self.protect(place, size, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Writes memory of the process that it can write itself.
    pub(crate) fn write(&self, place: u64, bytes: &[u8]) -> Result<(), Error> {
        memory::write(self.thread.tid(), place, bytes).map_err(|_| self.unreachable("writing its memory"))
    }

    /// Reads memory of the process that it can read itself.
    pub(crate) fn read<const N: usize>(&self, place: u64) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        let read = memory::read(self.thread.tid(), place, &mut bytes);
        read.map(|()| bytes).map_err(|_| self.unreachable("reading its memory"))
    }

    fn unreachable(&self, what: &'static str) -> Error {
        Error::Refused { what, pid: self.thread.tid(), cause: io::Error::from_raw_os_error(libc::EFAULT) }
    }
}
