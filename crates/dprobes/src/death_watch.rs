//! How the front learns of the death of the tracer's thread as early as possible.
//!
//! The tracing thread holds a robust mutex in memory that both processes share. When it dies, for
//! whatever reason, the kernel passes the mutex on before it closes the thread's files and releases
//! the threads that it traces (`do_exit`: `exit_mm`, `exit_files`, `exit_notify`). A pipe is closed
//! only with the last thread of the tracer's process.

use std::io;
use std::ptr::NonNull;

/// A mutex that the tracer's thread holds as long as it lives.
pub(crate) struct DeathMutex(NonNull<libc::pthread_mutex_t>);

impl DeathMutex {
    /// A free mutex, in memory shared with processes forked later.
    ///
    /// # Errors
    /// There is no memory, or the libc has no robust shared mutexes.
    pub(crate) fn new() -> io::Result<DeathMutex> {
        let size = size_of::<libc::pthread_mutex_t>();
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping, zeroed by the kernel.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0) };
        let mutex = NonNull::new(memory.cast::<libc::pthread_mutex_t>());
        let Some(mutex) = mutex.filter(|_| memory != libc::MAP_FAILED) else {
            return Err(io::Error::last_os_error());
        };
        let life = DeathMutex(mutex);
        // SAFETY: both are valid for the calls, and no other thread knows the mutex yet.
        let failed = unsafe {
            let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
            libc::pthread_mutexattr_init(&mut attributes);
            let set = [
                libc::pthread_mutexattr_setpshared(&mut attributes, libc::PTHREAD_PROCESS_SHARED),
                libc::pthread_mutexattr_setrobust(&mut attributes, libc::PTHREAD_MUTEX_ROBUST),
                libc::pthread_mutex_init(life.0.as_ptr(), &attributes),
            ];
            libc::pthread_mutexattr_destroy(&mut attributes);
            set.into_iter().find(|&error| error != 0)
        };
        failed.map_or(Ok(life), |error| Err(io::Error::from_raw_os_error(error)))
    }

    /// Locks the mutex: the calling thread holds it until it dies.
    pub(crate) fn begin(&self) -> bool {
        // SAFETY: the mutex was made by `new`, and its memory lives as long as this.
        unsafe { libc::pthread_mutex_lock(self.0.as_ptr()) == 0 }
    }

    /// Waits until the thread that has called [`DeathMutex::begin`] dies.
    pub(crate) fn wait(&self) {
        // SAFETY: as in `begin`. Whatever the result, there is nothing more to wait for.
        unsafe { libc::pthread_mutex_lock(self.0.as_ptr()) };
    }
}

impl Drop for DeathMutex {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`. A held mutex stays mapped: the kernel accesses it
        // when its holder dies.
        unsafe {
            if libc::pthread_mutex_trylock(self.0.as_ptr()) != libc::EBUSY {
                libc::munmap(self.0.as_ptr().cast(), size_of::<libc::pthread_mutex_t>());
            }
        }
    }
}

/// Gives this process real-time priority until dropped, if it is permitted.
pub(crate) struct RealtimePriority(bool);

impl RealtimePriority {
    pub(crate) fn new() -> RealtimePriority {
        RealtimePriority(schedule(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1))
    }
}

impl Drop for RealtimePriority {
    fn drop(&mut self) {
        if self.0 {
            schedule(libc::SCHED_OTHER, 0);
        }
    }
}

fn schedule(policy: libc::c_int, priority: libc::c_int) -> bool {
    // The kernel's `struct sched_param` is this number. (musl has the call refused without asking.)
    // SAFETY: the number is valid for the call.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    /// Lets a test's thread use it.
    struct Shared(DeathMutex);
    // SAFETY: a mutex is for many threads.
    unsafe impl Send for Shared {}
    // SAFETY: as above.
    unsafe impl Sync for Shared {}

    #[test]
    fn the_end_of_the_thread_that_holds_it_is_noticed_while_its_process_lives() {
        let life = Arc::new(Shared(DeathMutex::new().expect("memory")));
        let (begun, was_begun) = std::sync::mpsc::channel();
        let over = Arc::new(AtomicBool::new(false));
        let (held, told) = (Arc::clone(&life), Arc::clone(&over));
        let holder = std::thread::spawn(move || {
            begun.send(held.0.begin()).expect("somebody waits");
            std::thread::sleep(Duration::from_millis(50));
            told.store(true, Ordering::SeqCst);
        });
        assert_eq!(was_begun.recv(), Ok(true));
        life.0.wait();
        assert!(over.load(Ordering::SeqCst), "not before the thread has ended");
        holder.join().expect("it does not panic");
    }
}
