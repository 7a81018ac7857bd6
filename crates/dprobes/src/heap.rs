//! Memory that was freed, and what the C library's allocator keeps of it.
//!
//! A program with thousands of sites leaves tens of megabytes in small pieces. The allocator keeps them, and finds no place among them for the next
//! large block, so that the heap of a long session grows by steps without anything being kept.

/// Free bytes in the heap that are worth giving back: the work takes some milliseconds.
#[cfg(target_env = "gnu")]
const WORTH: usize = 8 << 20;

/// Gives free memory back to the kernel, if there is much of it.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: neither takes a pointer; both lock what they look at.
    unsafe {
        if libc::mallinfo2().fordblks >= WORTH {
            libc::malloc_trim(0);
        }
    }
}
