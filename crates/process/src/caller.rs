//! A stopped thread that makes several system calls for the tracer, one after another.
//!
//! ```text
//!     Caller::begin --call--> Caller --call--> ... --end--> Stopped, Stop
//! ```
//!
//! Between two calls the thread stays in the kernel's hands; the first sets out, and the end puts it back. What does not depend on one
//! another is made together ([`Caller::calls`]), which as a rule costs one stop.
//! Each step either leaves the thread ready for the next one, whatever the system call's own result, or fails because the
//! thread has been killed; then nothing is left to put back.

use std::io;
use std::ops::Range;

use libc::{c_int, c_long};

use crate::remote::{Away, Numbers};
use crate::{Entrance, Error, Stop, Stopped, memory};

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

/// A system call that a thread is to make.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// What it is called in messages.
    pub name: &'static str,
    /// Its number on x86-64.
    pub number: c_long,
    /// Its arguments.
    pub arguments: [u64; 6],
}

impl Call {
    /// A call with up to six arguments; the others are 0.
    pub fn new<const N: usize>(name: &'static str, number: c_long, arguments: [u64; N]) -> Call {
        let mut all = [0; 6];
        all[..N].copy_from_slice(&arguments);
        Call { name, number, arguments: all }
    }

    /// Maps private anonymous memory at exactly `place`, where nothing is mapped. `size` is in bytes, `protection` as of mmap(2).
    pub fn map(place: u64, size: u64, protection: c_int) -> Call {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        Call::new("mmap", libc::SYS_mmap, [place, size, protection as u64, flags as u64, !0, 0])
    }

    /// Unmaps memory: `size` bytes from `place` on.
    pub fn unmap(place: u64, size: u64) -> Call {
        Call::new("munmap", libc::SYS_munmap, [place, size])
    }

    /// Changes the protection of memory.
    pub fn protect(place: u64, size: u64, protection: c_int) -> Call {
        Call::new("mprotect", libc::SYS_mprotect, [place, size, protection as u64])
    }

    /// Has the kernel zero private anonymous memory in every forked child (MADV_WIPEONFORK).
    pub fn wipe_on_fork(place: u64, size: u64) -> Call {
        Call::new("madvise", libc::SYS_madvise, [place, size, libc::MADV_WIPEONFORK as u64])
    }

    /// Closes a descriptor.
    pub(crate) fn close(descriptor: c_int) -> Call {
        Call::new("close", libc::SYS_close, [descriptor as u64])
    }

    /// Has the kernel leave memory out of core dumps (MADV_DONTDUMP). Where it cannot, they are larger, and that is all.
    pub fn leave_out_of_dumps(place: u64, size: u64) -> Call {
        Call::new("madvise", libc::SYS_madvise, [place, size, libc::MADV_DONTDUMP as u64])
    }
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
        let look = thread.registers().and_then(|registers| Ok((registers, thread.status()?)));
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
        self.call_one(Call { name, number, arguments })
    }

    /// The same.
    ///
    /// # Errors
    /// As of [`Caller::call`].
    pub fn call_one(self, call: Call) -> Result<Step<u64>, Error> {
        let (caller, results) = self.calls(&[call])?;
        let result = caller.first(results);
        Ok((caller, result))
    }

    /// What came of the first of several calls.
    pub fn first(&self, results: Vec<Result<u64, Error>>) -> Result<u64, Error> {
        results.into_iter().next().unwrap_or_else(|| Err(self.unreachable("making a system call")))
    }

    /// Makes several system calls, one behind the other, each whatever has come of those before: what came of each. They must do no
    /// harm where one before them has failed.
    ///
    /// # Errors
    /// As of [`Caller::call`].
    pub fn calls(self, calls: &[Call]) -> Result<(Caller, Vec<Result<u64, Error>>), Error> {
        self.calls_in(calls, None)
    }

    /// The same, with memory of the process in which what leads from call to call may be, if there is some for it.
    pub(crate) fn calls_in(
        self,
        calls: &[Call],
        room: Option<Range<u64>>,
    ) -> Result<(Caller, Vec<Result<u64, Error>>), Error> {
        let Caller { thread, stop, syscall, suspended, away } = self;
        let pid = thread.tid();
        let (thread, mut away) = match away {
            Some(away) => (thread, away),
            None => thread.set_out(syscall, &mut || ())?,
        };
        let numbers: Vec<Numbers> = calls.iter().map(|call| (call.number, call.arguments)).collect();
        let (thread, results) = away.calls(thread, &numbers, room, &mut || ())?;
        let named = |(call, result): (&Call, io::Result<u64>)| {
            result.map_err(|cause| Error::Remote { call: call.name, pid, cause })
        };
        let results = calls.iter().zip(results).map(named).collect();
        Ok((Caller { thread, stop, syscall, suspended, away: Some(away) }, results))
    }

    /// Maps several pieces of private anonymous memory, each exactly where it is to be and nothing is mapped: addresses, sizes, protections as
    /// of mmap(2). All of them, or none.
    ///
    /// # Errors
    /// As of [`Caller::call`]; where something is mapped in one place, the result is EEXIST.
    pub fn map_all(self, pieces: &[(u64, u64, c_int)]) -> Result<Step<()>, Error> {
        let calls: Vec<Call> = pieces.iter().map(|&(place, size, how)| Call::map(place, size, how)).collect();
        let (caller, results) = self.calls(&calls)?;
        let places: Vec<(u64, u64)> = pieces.iter().map(|&(place, size, _)| (place, size)).collect();
        caller.all_or_none(&places, results)
    }

    /// What came of mapping several pieces: addresses and sizes. If one could not be mapped, or was mapped elsewhere, the others are unmapped.
    pub(crate) fn all_or_none(
        self,
        places: &[(u64, u64)],
        results: Vec<Result<u64, Error>>,
    ) -> Result<Step<()>, Error> {
        let (mut failed, mut mapped) = (None, Vec::new());
        for (&(place, size), result) in places.iter().zip(results) {
            match result {
                Ok(got) => {
                    mapped.push(Call::unmap(got, size));
                    // A kernel older than 4.17 does not know MAP_FIXED_NOREPLACE and takes the address as a hint.
                    let cause = io::Error::from_raw_os_error(libc::EEXIST);
                    let pid = self.thread.tid();
                    failed = failed.or((got != place).then_some(Error::Remote { call: "mmap", pid, cause }));
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            None => Ok((self, Ok(()))),
            Some(error) => Ok((self.calls(&mapped)?.0, Err(error))),
        }
    }

    /// Maps private anonymous memory at exactly `place`, where nothing is mapped ([`Call::map`]).
    ///
    /// # Errors
    /// As of [`Caller::map_all`].
    pub fn map(self, place: u64, size: u64, protection: c_int) -> Result<Step<()>, Error> {
        self.map_all(&[(place, size, protection)])
    }

    /// Unmaps memory ([`Call::unmap`]).
    ///
    /// # Errors
    /// As of [`Caller::call`].
    pub fn unmap(self, place: u64, size: u64) -> Result<Step<()>, Error> {
        let (caller, result) = self.call_one(Call::unmap(place, size))?;
        Ok((caller, result.map(drop)))
    }

    /// Changes the protection of memory ([`Call::protect`]).
    ///
    /// # Errors
    /// As of [`Caller::call`].
    pub fn protect(self, place: u64, size: u64, protection: c_int) -> Result<Step<()>, Error> {
        let (caller, result) = self.call_one(Call::protect(place, size, protection))?;
        Ok((caller, result.map(drop)))
    }

    /// Has the kernel zero memory in every forked child ([`Call::wipe_on_fork`]).
    ///
    /// # Errors
    /// As of [`Caller::call`].
    pub fn wipe_on_fork(self, place: u64, size: u64) -> Result<Step<()>, Error> {
        let (caller, result) = self.call_one(Call::wipe_on_fork(place, size))?;
        Ok((caller, result.map(drop)))
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
