//! Memory shared by one process and its tracer, created by the process.
//!
//! To share memory with nobody else, the process creates it and the tracer copies the descriptor.
//! That takes few calls, which matters since each new child needs it.
//!
//! ```text
//!     memfd_create            the process's; its name is written to a place that the tracer has mapped there
//!     pidfd_getfd             the tracer's copy
//!     ftruncate, F_ADD_SEALS  by the tracer: nobody can make it smaller, and what the tracer maps stays there
//!     mmap, close             the process's: shared
//!     madvise                 the process's: not there in a forked child, nor in a core dump
//! ```

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use libc::c_int;
use nix::fcntl::{FcntlArg::F_ADD_SEALS, SealFlag, fcntl};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;

use crate::caller::Step;
use crate::{Call, Caller, Error};

/// The name, as the process's list of mappings shows it.
const NAME: &[u8] = b"dprobes\0";

/// Sets the size of a memory file that a process has created, permanently: `size` bytes of zeros.
///
/// # Errors
/// The descriptor is of something else, or the kernel has no memory left.
pub fn fix_size(memory: BorrowedFd<'_>, size: u64) -> io::Result<()> {
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    ftruncate(memory, size as libc::off_t)?;
    fcntl(memory, F_ADD_SEALS(seals))?;
    let length = fstat(memory)?.st_size;
    // Another holder of the process's descriptors may have changed it first.
    if u64::try_from(length) == Ok(size) { Ok(()) } else { Err(io::Error::other("its size was changed")) }
}

impl Caller {
    /// Closes a memory file of the process that is not needed.
    ///
    /// # Errors
    /// The thread has been killed.
    pub fn drop_memory(self, made: c_int) -> Result<Caller, Error> {
        self.close(made)
    }

    /// Makes the process create an empty memory file. Returns its descriptor in the process, and a
    /// copy. `scratch` is the address of 8 unused bytes that the process can write.
    ///
    /// # Errors
    /// The thread has been killed; or, in the result, the process has no descriptors left or may
    /// not make the call.
    pub fn make_memory(self, scratch: u64) -> Result<Step<(c_int, OwnedFd)>, Error> {
        if let Err(error) = self.write(scratch, NAME) {
            return Ok((self, Err(error)));
        }
        let flags = u64::from(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        let arguments = [scratch, flags, 0, 0, 0, 0];
        let (caller, made) = self.call("memfd_create", libc::SYS_memfd_create, arguments)?;
        let made = match made {
            Ok(made) => made as c_int,
            Err(error) => return Ok((caller, Err(error))),
        };
        match caller.copy_of(made) {
            Ok(copy) => Ok((caller, Ok((made, copy)))),
            Err(error) => Ok((caller.close(made)?, Err(error))),
        }
    }

    /// Maps a memory file of the process ([`Caller::make_memory`]) shared, readable and writable,
    /// where the kernel chooses; forked children and core dumps do not get it. The process's
    /// descriptor is closed in any case.
    ///
    /// # Errors
    /// The thread has been killed; or, in the result, the process has no addresses left.
    pub fn map_memory(self, made: c_int, size: u64) -> Result<Step<u64>, Error> {
        let flags = (libc::MAP_SHARED | libc::MAP_NORESERVE) as u64;
        let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let mmap = Call::new("mmap", libc::SYS_mmap, [0, size, protection, flags, made as u64, 0]);
        let (mut caller, results) = self.calls(&[mmap, Call::close(made)])?;
        let mut result = caller.first(results);
        if let Ok(place) = result {
            let keep = Call::new("madvise", libc::SYS_madvise, [place, size, libc::MADV_DONTFORK as u64]);
            let (next, results) = caller.calls(&[keep, Call::leave_out_of_dumps(place, size)])?;
            caller = next;
            if let Err(error) = caller.first(results) {
                caller = caller.unmap(place, size)?.0;
                result = Err(error);
            }
        }
        Ok((caller, result))
    }
}
