//! Memory that a process makes and its tracer has, too.
//!
//! Where nobody but one process and its tracer is to have memory, the process makes it, and the tracer takes a copy of the descriptor: four
//! calls in all, for each child that is born.
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

/// Gives memory that a process has made its size, for good: `size` bytes of zeros.
///
/// # Errors
/// It is something else, or the kernel has no memory left.
pub fn fix_size(memory: BorrowedFd<'_>, size: u64) -> io::Result<()> {
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    ftruncate(memory, size as libc::off_t)?;
    fcntl(memory, F_ADD_SEALS(seals))?;
    let length = fstat(memory)?.st_size;
    // Somebody else who has the process's descriptors may have been faster.
    if u64::try_from(length) == Ok(size) { Ok(()) } else { Err(io::Error::other("its size was changed")) }
}

impl Caller {
    /// Closes a memory file of the process that is not wanted.
    ///
    /// # Errors
    /// The thread has been killed.
    pub fn drop_memory(self, made: c_int) -> Result<Caller, Error> {
        self.close(made)
    }

    /// Has the process make a memory file of no size: its descriptor in the process, and a copy. `scratch` is the address of 8 bytes
    /// that the process may write and that mean nothing.
    ///
    /// # Errors
    /// The thread has been killed; or, in the result, the process has no descriptors left or may not make the call.
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

    /// Maps a memory file of the process ([`Caller::make_memory`]), shared, to be read and written, and not in forked children or core dumps:
    /// where the kernel chooses. Then closes the process's descriptor, in any case.
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
