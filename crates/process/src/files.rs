//! What files this process may have: how many open - each address space that is followed takes one - and how large.

use std::sync::OnceLock;

use libc::rlimit;

/// The limit that this process was started with.
static INHERITED: OnceLock<rlimit> = OnceLock::new();

/// Lets this process have as many files open as it may at all. Commands that it starts get the limit that it was
/// started with.
pub fn allow_many_files() {
    INHERITED.get_or_init(|| {
        let mut limit = rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the structure is valid for both calls. Where they fail, the limit stays as it is.
        unsafe {
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
            libc::setrlimit(libc::RLIMIT_NOFILE, &rlimit { rlim_cur: limit.rlim_max, ..limit });
        }
        limit
    });
}

/// The limit that commands get, if this process's own was changed.
pub(crate) fn inherited() -> Option<&'static rlimit> {
    INHERITED.get()
}

/// Whether this process was started with SIGXFSZ ignored, once it is ignored.
static IGNORED: OnceLock<bool> = OnceLock::new();

/// Has the kernel refuse a write that would make a file larger than the limit (`ulimit -f`), where it would end this process by
/// SIGXFSZ. Commands that it starts get the action that it was started with.
pub fn ignore_file_size_limit() {
    // SAFETY: a plain call; no handler is set.
    IGNORED.get_or_init(|| unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) == libc::SIG_IGN });
}

/// Whether commands get SIGXFSZ as it is in this process.
pub(crate) fn keeps_file_size_signal() -> bool {
    *IGNORED.get().unwrap_or(&true)
}
