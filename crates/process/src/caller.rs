//! A stopped thread that makes several system calls for the tracer, one after another.
//!
//! ```text
//!     Caller::begin --call--> Caller --call--> ... --end--> Stopped, Stop
//! ```
//!
//! Between two calls the thread stays stopped inside its detour: the first call begins it, and the
//! end restores the thread. Independent calls are made together ([`Caller::calls`]), which usually
//! costs one stop. Each step either leaves the thread ready for the next one, whatever the system
//! call's result, or fails because the thread has been killed; then there is nothing to restore.

use std::io;
use std::ops::Range;

use libc::{c_int, c_long};

use crate::remote::{CallDetour, Numbers};
use crate::{Copied, Entrance, Error, Stop, Stopped, StubMemory, memory};

/// A stopped thread of a 64-bit process, with the address of a `syscall` instruction.
#[derive(Debug)]
pub struct Caller {
    thread: Stopped,
    stop: Stop,
    syscall: Entrance,
    /// Whether the thread's seccomp filters are suspended for the calls.
    suspended: bool,
    /// The thread's state from before its first call, once it has made one.
    away: Option<CallDetour>,
}

/// A system call to be made by a thread.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Its name in messages.
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

    /// Maps private anonymous memory at exactly `place`, where nothing must be mapped. `size` is in
    /// bytes, `protection` as of mmap(2).
    pub fn map(place: u64, size: u64, protection: c_int) -> Call {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        Call::new("mmap", libc::SYS_mmap, [place, size, protection as u64, flags as u64, !0, 0])
    }

    /// Unmaps `size` bytes at `place`.
    pub fn unmap(place: u64, size: u64) -> Call {
        Call::new("munmap", libc::SYS_munmap, [place, size])
    }

    /// Changes the protection of memory.
    pub fn protect(place: u64, size: u64, protection: c_int) -> Call {
        Call::new("mprotect", libc::SYS_mprotect, [place, size, protection as u64])
    }

    /// Makes the kernel zero private anonymous memory in every forked child (MADV_WIPEONFORK).
    pub fn wipe_on_fork(place: u64, size: u64) -> Call {
        Call::new("madvise", libc::SYS_madvise, [place, size, libc::MADV_WIPEONFORK as u64])
    }

    /// Closes a descriptor.
    pub(crate) fn close(descriptor: c_int) -> Call {
        Call::new("close", libc::SYS_close, [descriptor as u64])
    }

    /// Makes the kernel leave memory out of core dumps (MADV_DONTDUMP). If it fails, dumps are
    /// larger, nothing more.
    pub fn leave_out_of_dumps(place: u64, size: u64) -> Call {
        Call::new("madvise", libc::SYS_madvise, [place, size, libc::MADV_DONTDUMP as u64])
    }
}

/// The caller after a step, ready for the next one, and the step's result.
pub type Step<T> = (Caller, Result<T, Error>);

impl Caller {
    /// Prepares a stopped thread to make calls through the instruction at `syscall`
    /// ([`crate::find_syscall`]). Seccomp filters of the thread are suspended until
    /// [`Caller::end`], since a filter may kill a process for a call that it does not expect.
    ///
    /// # Errors
    /// The thread runs 32-bit code, is in a seccomp sandbox that the tracer may not suspend
    /// ([`Error::Unsuitable`]), or has been killed. The thread is returned unchanged.
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
            let reason = "it is in a seccomp sandbox; mapping memory for the probes there needs CAP_SYS_ADMIN \
                          (run as root)";
            return Err((thread, unsuitable(reason)));
        }
        Ok(Caller { suspended, ..Caller::unfiltered(thread, stop, syscall) })
    }

    /// Like [`Caller::begin`], for a thread of 32-bit or 64-bit code that no filter keeps from
    /// making the calls.
    pub fn unfiltered(thread: Stopped, stop: Stop, syscall: Entrance) -> Caller {
        Caller { thread, stop, syscall, suspended: false, away: None }
    }

    /// Restores the thread and returns it, with the reason why it is stopped now.
    ///
    /// # Errors
    /// The thread has been killed.
    pub fn end(mut self) -> Result<(Stopped, Stop), Error> {
        if let Some(away) = self.away {
            (self.thread, self.stop) = away.end_detour(self.thread, &mut || ())?;
        }
        if self.suspended {
            self.thread.restore_seccomp()?;
        }
        Ok((self.thread, self.stop))
    }

    /// The stopped thread.
    pub fn thread(&self) -> &Stopped {
        &self.thread
    }

    /// Makes one system call.
    ///
    /// # Errors
    /// The thread has been killed. An error of the call itself is in the result ([`Error::Remote`],
    /// under `name`).
    pub fn call(self, name: &'static str, number: c_long, arguments: [u64; 6]) -> Result<Step<u64>, Error> {
        self.call_one(Call { name, number, arguments })
    }

    /// Like [`Caller::call`].
    ///
    /// # Errors
    /// As of [`Caller::call`].
    pub fn call_one(self, call: Call) -> Result<Step<u64>, Error> {
        let (caller, results) = self.calls(&[call])?;
        let result = caller.first(results);
        Ok((caller, result))
    }

    /// The result of the first of several calls.
    pub fn first(&self, results: Vec<Result<u64, Error>>) -> Result<u64, Error> {
        results.into_iter().next().unwrap_or_else(|| Err(self.unreachable("making a system call")))
    }

    /// Makes several system calls in order, each one even if an earlier one has failed, and returns
    /// all results. A call must do no harm if an earlier one has failed.
    ///
    /// # Errors
    /// As of [`Caller::call`].
    pub fn calls(self, calls: &[Call]) -> Result<(Caller, Vec<Result<u64, Error>>), Error> {
        self.calls_in(calls, None)
    }

    /// Like [`Caller::calls`]. `room`, if given, is memory of the process for the frames that lead
    /// from one call to the next.
    pub(crate) fn calls_in(
        self,
        calls: &[Call],
        room: Option<Range<u64>>,
    ) -> Result<(Caller, Vec<Result<u64, Error>>), Error> {
        let Caller { thread, stop, syscall, suspended, away } = self;
        let pid = thread.tid();
        let (thread, mut away) = match away {
            Some(away) => (thread, away),
            None => thread.begin_detour(syscall, &mut || ())?,
        };
        let numbers: Vec<Numbers> = calls.iter().map(|call| (call.number, call.arguments)).collect();
        let (thread, results) = away.calls(thread, &numbers, room, &mut || ())?;
        let named = |(call, result): (&Call, io::Result<u64>)| {
            result.map_err(|cause| Error::Remote { call: call.name, pid, cause })
        };
        let results = calls.iter().zip(results).map(named).collect();
        Ok((Caller { thread, stop, syscall, suspended, away: Some(away) }, results))
    }

    /// Has the thread copy its process, with all memory as it is now (`remote/copying.rs`). The
    /// other threads must be stopped. The copy is a child of whoever adopts orphans, so the
    /// thread's process must not do that.
    ///
    /// # Errors
    /// The thread has been killed. Why there is no copy is in the result.
    pub fn copy_process(self) -> Result<Step<Copied>, Error> {
        let Caller { thread, stop, syscall, suspended, away } = self;
        let pid = thread.tid();
        let (thread, mut away) = match away {
            Some(away) => (thread, away),
            None => thread.begin_detour(syscall, &mut || ())?,
        };
        let (thread, copied) = match syscall.refuge {
            Some(refuge) => away.copy_process(thread, refuge.stub + StubMemory::COPY, &mut || ())?,
            None => (thread, Err(io::ErrorKind::Unsupported.into())),
        };
        let copied = copied.map_err(|cause| Error::Remote { call: "clone", pid, cause });
        Ok((Caller { thread, stop, syscall, suspended, away: Some(away) }, copied))
    }

    /// Whether the process adopts orphans of its descendants (PR_SET_CHILD_SUBREAPER).
    ///
    /// # Errors
    /// As of [`Caller::call`].
    pub fn adopts_orphans(self) -> Result<Step<bool>, Error> {
        let Some(refuge) = self.syscall.refuge else {
            let error = self.unreachable("asking whether it adopts orphans");
            return Ok((self, Err(error)));
        };
        // The frames are at the other end of that memory.
        let answer = refuge.end - StubMemory::ROOM;
        let arguments = [libc::PR_GET_CHILD_SUBREAPER as u64, answer, 0, 0, 0, 0];
        let (caller, called) = self.call("prctl", libc::SYS_prctl, arguments)?;
        let said = called.and_then(|_| caller.read(answer));
        let _ = caller.write(answer, &[0; 4]);
        Ok((caller, said.map(|word| u32::from_le_bytes(word) != 0)))
    }

    /// Maps several pieces of private anonymous memory, given as addresses, sizes and protections
    /// as of mmap(2). Each is mapped exactly at its address, where nothing must be mapped. Either
    /// all are mapped or none.
    ///
    /// # Errors
    /// As of [`Caller::call`]; the result is EEXIST if something is mapped at one of the addresses.
    pub fn map_all(self, pieces: &[(u64, u64, c_int)]) -> Result<Step<()>, Error> {
        let calls: Vec<Call> = pieces.iter().map(|&(place, size, how)| Call::map(place, size, how)).collect();
        let (caller, results) = self.calls(&calls)?;
        let places: Vec<(u64, u64)> = pieces.iter().map(|&(place, size, _)| (place, size)).collect();
        caller.all_or_none(&places, results)
    }

    /// The result of mapping several pieces, given as addresses and sizes. If one was not mapped,
    /// or elsewhere, the others are unmapped.
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
                    // A kernel older than 4.17 does not know MAP_FIXED_NOREPLACE and takes the
                    // address as a hint.
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

    /// Maps private anonymous memory at exactly `place`, where nothing must be mapped
    /// ([`Call::map`]).
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

    /// Makes the kernel zero memory in every forked child ([`Call::wipe_on_fork`]).
    ///
    /// # Errors
    /// As of [`Caller::call`].
    pub fn wipe_on_fork(self, place: u64, size: u64) -> Result<Step<()>, Error> {
        let (caller, result) = self.call_one(Call::wipe_on_fork(place, size))?;
        Ok((caller, result.map(drop)))
    }

    /// Makes reserved memory of the tracer's at `place` readable and writable for the process.
    pub(crate) fn open_page(self, place: u64, size: u64) -> Result<Step<()>, Error> {
        self.protect(place, size, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Writes memory that the process itself can write.
    pub(crate) fn write(&self, place: u64, bytes: &[u8]) -> Result<(), Error> {
        memory::write(self.thread.tid(), place, bytes).map_err(|_| self.unreachable("writing memory"))
    }

    /// Reads memory that the process itself can read.
    pub fn read<const N: usize>(&self, place: u64) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        let read = memory::read(self.thread.tid(), place, &mut bytes);
        read.map(|()| bytes).map_err(|_| self.unreachable("reading memory"))
    }

    fn unreachable(&self, what: &'static str) -> Error {
        Error::Refused { what, pid: self.thread.tid(), cause: io::Error::from_raw_os_error(libc::EFAULT) }
    }
}
