//! Memory at low addresses, where the agent and its data are.

use std::ptr::null_mut;

use layout::LOW_END;
use libc::{c_int, c_void};

/// Maps fresh memory below 2 GiB, at a multiple of `align`.
pub fn low(size: u64, align: u64) -> u64 {
    // SAFETY: fresh anonymous memory; the excess stays unused.
    let place = unsafe {
        libc::mmap(
            null_mut(),
            (size + align) as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT,
            -1,
            0,
        )
    };
    assert_ne!(place, libc::MAP_FAILED, "there is room below 2 GiB");
    let place = (place as u64).next_multiple_of(align);
    assert!(place + size <= LOW_END);
    place
}

/// Changes the protection of memory that [`low`] gave.
pub fn protect(address: u64, size: u64, protection: c_int) {
    // SAFETY: the memory is the test's own.
    let result = unsafe { libc::mprotect(address as *mut c_void, size as usize, protection) };
    assert_eq!(result, 0);
}
