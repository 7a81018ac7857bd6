//! Returns freed heap memory to the kernel.
//!
//! A program with thousands of sites frees tens of megabytes in small pieces. The C library's
//! allocator keeps them but cannot fit the next large block among them, so the heap of a long
//! session would grow in steps although nothing is leaked.

/// Trim the heap only if at least so many bytes are free: trimming takes some milliseconds.
#[cfg(target_env = "gnu")]
const TRIM_THRESHOLD: usize = 8 << 20;

/// Returns free memory to the kernel, if there is much of it.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: neither takes a pointer; both lock the heap that they look at.
    unsafe {
        if libc::mallinfo2().fordblks >= TRIM_THRESHOLD {
            libc::malloc_trim(0);
        }
    }
}
