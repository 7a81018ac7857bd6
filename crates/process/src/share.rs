//! Gives a process memory of the tracer's, without a path, file system or namespace that both can
//! access.
//!
//! The process creates a socket pair; the tracer copies one end (`pidfd_getfd`) and sends the
//! memory's descriptor through it (`SCM_RIGHTS`); the process receives it, maps it and closes all
//! three. Meanwhile its other threads should be held: they could close or use these descriptors. A
//! child that they fork meanwhile would inherit them; one that executes another program would not.
//!
//! The calls' structures are at the address of the mapping itself, before the memory is mapped over
//! them: no byte of the process's own is touched.

use std::fs;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use libc::c_int;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg::F_ADD_SEALS, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::ftruncate;

use crate::caller::Step;
use crate::{Call, Caller, Error};

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Creates memory that can be shared: `size` bytes of zeros. Its size cannot be changed.
///
/// # Errors
/// The kernel has no memory or no descriptor left.
pub fn shared_memory(size: u64) -> io::Result<OwnedFd> {
    let fd = memory_file(size)?;
    seal(&fd, SIZE | SEAL)?;
    Ok(fd)
}

/// Creates memory that other processes can only read: `size` bytes of zeros. `map` maps it in this
/// process; later mappings cannot be writable, whoever has the descriptor.
///
/// # Errors
/// The kernel has no memory or no descriptor left; or `map` fails.
pub fn read_only_for_others<T>(
    size: u64,
    map: impl FnOnce(&OwnedFd) -> io::Result<T>,
) -> io::Result<(OwnedFd, T)> {
    let fd = memory_file(size)?;
    let mapped = map(&fd)?;
    seal(&fd, SIZE | SealFlag::F_SEAL_FUTURE_WRITE | SEAL)?;
    Ok((fd, mapped))
}

/// Creates memory that can never be changed: `size` bytes of zeros with what `write` puts there.
///
/// # Errors
/// The kernel has no memory or no descriptor left; or `write` fails.
pub fn sealed_memory(size: u64, write: impl FnOnce(&fs::File) -> io::Result<()>) -> io::Result<OwnedFd> {
    let file = fs::File::from(memory_file(size)?);
    write(&file)?;
    let fd = OwnedFd::from(file);
    seal(&fd, SIZE | SealFlag::F_SEAL_WRITE | SEAL)?;
    Ok(fd)
}

/// The size cannot change.
const SIZE: SealFlag = SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW);
/// No seals can be added.
const SEAL: SealFlag = SealFlag::F_SEAL_SEAL;

fn seal(fd: &OwnedFd, seals: SealFlag) -> io::Result<()> {
    fcntl(fd, F_ADD_SEALS(seals))?;
    Ok(())
}

/// A memory file of `size` bytes.
fn memory_file(size: u64) -> io::Result<OwnedFd> {
    let fd = memfd_create(c"dprobes", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    ftruncate(&fd, size as libc::off_t)?;
    Ok(fd)
}

/// The offsets of the calls' structures in the page that the process and the kernel use for them.
mod scratch {
    /// Two descriptors: the ends of the socket pair.
    pub(super) const ENDS: u64 = 0;
    /// A `struct msghdr` of 56 bytes.
    pub(super) const MESSAGE: u64 = 64;
    /// A `struct iovec`.
    pub(super) const VECTOR: u64 = 128;
    /// The byte that the message carries.
    pub(super) const BYTE: u64 = 160;
    /// A `struct cmsghdr` with one descriptor: 16 bytes and 4.
    pub(super) const CONTROL: u64 = 192;
    /// Bytes of the control data, padded.
    pub(super) const CONTROL_LENGTH: u64 = 24;
    /// Bytes of all structures.
    pub(super) const BYTES: usize = 256;
}

impl Caller {
    /// Maps memory of the tracer's ([`shared_memory`]) into the process, shared, at exactly
    /// `place`, where nothing must be mapped: `size` bytes from its start, with `protection` (as of
    /// mmap(2)). `scratch` is the address of 256 unused zero bytes that the process can write; they
    /// are zeros again afterwards.
    ///
    /// # Errors
    /// The thread has been killed; or, in the result, the process has no descriptors left or may
    /// not make one of the calls, or something is mapped there (EEXIST). The process is then
    /// unchanged.
    pub fn share(
        self,
        memory: BorrowedFd<'_>,
        place: u64,
        size: u64,
        protection: c_int,
        scratch: u64,
    ) -> Result<Step<()>, Error> {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
        let (caller, shared) = self.share_by(memory, (place, size), protection, flags, scratch)?;
        // It fails only if the process is gone.
        let _ = caller.write(scratch, &[0; scratch::BYTES]);
        match shared {
            Ok(got) if got == place => Ok((caller, Ok(()))),
            Ok(elsewhere) => {
                // A kernel older than 4.17 does not know MAP_FIXED_NOREPLACE and takes the address
                // as a hint.
                let (caller, _) = caller.unmap(elsewhere, size)?;
                let cause = io::Error::from_raw_os_error(libc::EEXIST);
                let error = Error::Remote { call: "mmap", pid: caller.thread().tid(), cause };
                Ok((caller, Err(error)))
            }
            Err(error) => Ok((caller, Err(error))),
        }
    }

    /// Replaces memory by shared memory of the same size, atomically: each thread sees either the
    /// one or the other.
    ///
    /// # Errors
    /// As of [`Caller::call`].
    pub fn share_instead(
        self,
        memory: BorrowedFd<'_>,
        place: u64,
        size: u64,
        protection: c_int,
    ) -> Result<Step<()>, Error> {
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let arguments = [0, size, libc::PROT_NONE as u64, flags, !0, 0];
        let (caller, reserved) = self.call("mmap", libc::SYS_mmap, arguments)?;
        let beside = match reserved {
            Ok(beside) => beside,
            Err(error) => return Ok((caller, Err(error))),
        };
        let (caller, shared) = caller.share_over(memory, beside, size, protection)?;
        let (caller, moved) = match shared {
            Ok(()) => {
                let how = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
                let arguments = [beside, size, size, how, place, 0];
                let (caller, moved) = caller.call("mremap", libc::SYS_mremap, arguments)?;
                (caller, moved.map(drop))
            }
            Err(error) => (caller, Err(error)),
        };
        match moved {
            Ok(()) => Ok((caller, Ok(()))),
            Err(error) => Ok((caller.unmap(beside, size)?.0, Err(error))),
        }
    }

    /// Maps the memory over addresses reserved for it, a page or more.
    ///
    /// # Errors
    /// As of [`Caller::call`].
    pub fn share_over(
        self,
        memory: BorrowedFd<'_>,
        place: u64,
        size: u64,
        protection: c_int,
    ) -> Result<Step<()>, Error> {
        let (caller, opened) = self.open_page(place, PAGE.min(size))?;
        if opened.is_err() {
            return Ok((caller, opened));
        }
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let (caller, shared) = caller.share_by(memory, (place, size), protection, flags, place)?;
        Ok((caller, shared.map(drop)))
    }

    /// Maps the memory with these arguments of mmap(2), with the calls' structures at `scratch`.
    /// Returns its address.
    fn share_by(
        self,
        memory: BorrowedFd<'_>,
        (place, size): (u64, u64),
        protection: c_int,
        flags: c_int,
        scratch: u64,
    ) -> Result<Step<u64>, Error> {
        let (caller, received) = self.take_in(memory, scratch)?;
        match received {
            Ok(opened) => {
                let received = opened.memory as u64;
                let arguments = [place, size, protection as u64, flags as u64, received, 0];
                let map = Call::new("mmap", libc::SYS_mmap, arguments);
                let (caller, results) = caller.close_all(&[map], opened.all(), None)?;
                let result = caller.first(results);
                Ok((caller, result))
            }
            Err(error) => Ok((caller, Err(error))),
        }
    }

    /// Gives the process a descriptor of memory, with the calls' structures at `scratch`. Returns
    /// the process's opened descriptors.
    pub(crate) fn take_in(self, memory: BorrowedFd<'_>, scratch: u64) -> Result<Step<Opened>, Error> {
        let kind = (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as u64;
        let arguments = [libc::AF_UNIX as u64, kind, 0, scratch + scratch::ENDS, 0, 0];
        let (mut caller, made) = self.call("socketpair", libc::SYS_socketpair, arguments)?;
        if let Err(error) = made {
            return Ok((caller, Err(error)));
        }
        let ends = match caller.read::<8>(scratch + scratch::ENDS) {
            Ok([a, b, c, d, e, f, g, h]) => {
                [i32::from_le_bytes([a, b, c, d]), i32::from_le_bytes([e, f, g, h])]
            }
            Err(error) => return Ok((caller, Err(error))),
        };
        let received = match caller.send(memory, ends[0], scratch) {
            Ok(()) => {
                let (next, received) = caller.receive(ends[1], scratch)?;
                caller = next;
                received
            }
            Err(error) => Err(error),
        };
        match received {
            Ok(memory) => Ok((caller, Ok(Opened { ends, memory }))),
            Err(error) => Ok((caller.close_all(&[], ends.to_vec(), None)?.0, Err(error))),
        }
    }

    /// Sends a descriptor through one end of the process's socket pair, and writes the structures
    /// for receiving it at the other end.
    fn send(&self, memory: BorrowedFd<'_>, end: c_int, place: u64) -> Result<(), Error> {
        let socket = self.copy_of(end)?;
        let failed = |cause| Error::Refused { what: "sending memory", pid: self.thread().tid(), cause };
        send_descriptor(&socket, memory).map_err(failed)?;
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        // No name; one vector; the control data; no flags.
        let message =
            [0, 0, place + scratch::VECTOR, 1, place + scratch::CONTROL, scratch::CONTROL_LENGTH, 0];
        self.write(place + scratch::MESSAGE, &words(&message))?;
        self.write(place + scratch::VECTOR, &words(&[place + scratch::BYTE, 1]))
    }

    /// Receives the descriptor, and returns its number in the process.
    fn receive(self, end: c_int, place: u64) -> Result<Step<c_int>, Error> {
        let flags = (libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) as u64;
        let arguments = [end as u64, place + scratch::MESSAGE, flags, 0, 0, 0];
        let (caller, received) = self.call("recvmsg", libc::SYS_recvmsg, arguments)?;
        let result = received.and_then(|_| caller.read::<20>(place + scratch::CONTROL)).and_then(|control| {
            let number = |at: usize| {
                i32::from_le_bytes([control[at], control[at + 1], control[at + 2], control[at + 3]])
            };
            // Length, level, type, descriptor. If the process may not receive a descriptor or has
            // none left, it is missing.
            match (number(0), number(8), number(12)) {
                (20, libc::SOL_SOCKET, libc::SCM_RIGHTS) => Ok(number(16)),
                _ => Err(Error::Remote {
                    call: "recvmsg",
                    pid: caller.thread().tid(),
                    cause: io::Error::from_raw_os_error(libc::EMFILE),
                }),
            }
        });
        Ok((caller, result))
    }

    /// Closes a descriptor of the process.
    pub(crate) fn close(self, descriptor: c_int) -> Result<Caller, Error> {
        Ok(self.calls(&[Call::close(descriptor)])?.0)
    }

    /// Makes calls, then closes descriptors of the process, and returns the calls' results.
    /// Consecutive descriptors are closed by one call, if the kernel has it (since Linux 5.9).
    /// `room` as of [`Caller::calls_in`].
    pub(crate) fn close_all(
        self,
        first: &[Call],
        descriptors: Vec<c_int>,
        room: Option<Range<u64>>,
    ) -> Result<(Caller, Vec<Result<u64, Error>>), Error> {
        let at_once = close_at_once(&descriptors);
        let calls: Vec<Call> = first.iter().copied().chain(at_once).collect();
        let (mut caller, mut results) = self.calls_in(&calls, room)?;
        if at_once.is_none() || results.pop().is_none_or(|closed| closed.is_err()) {
            let calls: Vec<Call> = descriptors.into_iter().map(Call::close).collect();
            caller = caller.calls(&calls)?.0;
        }
        Ok((caller, results))
    }

    /// Copies a descriptor that this thread has just opened.
    pub(crate) fn copy_of(&self, descriptor: c_int) -> Result<OwnedFd, Error> {
        /// The handle is of a thread, not of its process; since Linux 6.9.
        const PIDFD_THREAD: c_int = libc::O_EXCL;
        let tid = self.thread().tid();
        let refused = |cause| Error::Refused { what: "copying a descriptor", pid: tid, cause };
        let process = self.thread().status()?.tgid;
        let handle = pidfd(tid, PIDFD_THREAD).or_else(|_| pidfd(process, 0)).map_err(refused)?;
        let handle = i64::from(handle.as_raw_fd());
        let copied = opened(libc::SYS_pidfd_getfd, [handle, descriptor.into(), 0]).map_err(refused)?;
        // A thread may have its own descriptor table: check that the copy is of what the thread
        // opened.
        let path = format!("/proc/{process}/task/{tid}/fd/{descriptor}");
        let copied = fs::File::from(copied);
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let copy = copied.metadata().map(identity).map_err(refused)?;
        if fs::metadata(path).map(identity).map_err(refused)? != copy {
            return Err(refused(io::Error::other("the thread does not share its process's descriptors")));
        }
        Ok(copied.into())
    }
}

/// The descriptors that a process has opened to receive memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    ends: [c_int; 2],
    /// The memory's descriptor.
    pub(crate) memory: c_int,
}

impl Opened {
    /// All descriptors.
    pub(crate) fn all(self) -> Vec<c_int> {
        vec![self.ends[0], self.ends[1], self.memory]
    }
}

/// The call that closes all descriptors at once, if they are consecutive.
fn close_at_once(descriptors: &[c_int]) -> Option<Call> {
    let mut sorted = descriptors.to_vec();
    sorted.sort_unstable();
    match sorted[..] {
        [from, .., to] if sorted.windows(2).all(|pair| pair[0] + 1 == pair[1]) => {
            Some(Call::new("close_range", libc::SYS_close_range, [from as u64, to as u64, 0]))
        }
        _ => None,
    }
}

/// A handle (pidfd) of a process. It can be polled, and is readable once the process has ended.
///
/// # Errors
/// There is no such process.
pub fn handle(pid: i32) -> io::Result<OwnedFd> {
    pidfd(pid, 0)
}

/// A handle (pidfd) of a process or thread.
fn pidfd(pid: i32, flags: c_int) -> io::Result<OwnedFd> {
    opened(libc::SYS_pidfd_open, [pid.into(), flags.into(), 0])
}

/// The descriptor that a system call without a nix wrapper returns: `pidfd_open`, `pidfd_getfd`.
fn opened(call: libc::c_long, [first, second, third]: [libc::c_long; 3]) -> io::Result<OwnedFd> {
    // SAFETY: both are system calls on integers.
    let descriptor = Errno::result(unsafe { libc::syscall(call, first, second, third) })?;
    // SAFETY: the kernel has just opened it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as c_int) })
}

/// Sends one byte and a descriptor.
fn send_descriptor(socket: &OwnedFd, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let rights = [ControlMessage::ScmRights(&[descriptor.as_raw_fd()])];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    match sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(&[0])], &rights, flags, None)? {
        1 => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}
