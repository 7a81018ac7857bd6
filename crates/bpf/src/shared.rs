//! The values of an array map, mapped into this process.

use std::fmt;
use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use nix::errno::Errno;

/// Memory that a descriptor offers, unmapped when this is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory belongs to no thread; `Mapping` itself hands out only its address.
unsafe impl Send for Mapping {}
// SAFETY: as above; whoever uses the address answers for how.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` bytes, shared with the kernel.
    pub(crate) fn new(
        descriptor: BorrowedFd<'_>,
        offset: usize,
        length: usize,
        writable: bool,
    ) -> Result<Self, Errno> {
        let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        let offset = libc::off_t::try_from(offset).map_err(|_| Errno::EINVAL)?;
        // SAFETY: the kernel chooses a free place, so no memory in use is replaced.
        let start = unsafe {
            let shared = libc::MAP_SHARED;
            libc::mmap(std::ptr::null_mut(), length, protection, shared, descriptor.as_raw_fd(), offset)
        };
        if start == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let start = NonNull::new(start.cast()).expect("the kernel maps nothing at address zero unasked");
        Ok(Self { start, length })
    }

    /// The address of the first byte.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `new` has made, and those who use it borrow it.
        let result = unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
        debug_assert_eq!(result, 0, "a whole mapping can be unmapped");
    }
}

/// The values of a mappable array map as words. Programs and other holders of the map read and
/// write them at the same time, hence the atomics.
pub struct Shared {
    mapping: Mapping,
    words: usize,
}

impl Shared {
    /// Maps `bytes` bytes, a multiple of 8, of an array's values.
    pub(crate) fn new(descriptor: BorrowedFd<'_>, bytes: usize) -> Result<Self, Errno> {
        let mapping = Mapping::new(descriptor, 0, bytes, true)?;
        Ok(Self { mapping, words: bytes / 8 })
    }
}

impl Deref for Shared {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        let start = self.mapping.start().cast_const().cast::<AtomicU64>();
        // SAFETY: the mapping begins at a page, is at least this long, readable and writable, and
        // lives as long as `self`; every bit pattern is a valid `AtomicU64`.
        unsafe { std::slice::from_raw_parts(start, self.words) }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("words", &self.words).finish_non_exhaustive()
    }
}
