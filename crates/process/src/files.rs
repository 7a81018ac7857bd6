//! What files this process may have: how many open - each address space that is followed takes one - and how large.

use std::sync::OnceLock;

use libc::rlim_t;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The limit that this process was started with, soft and hard.
static INHERITED: OnceLock<Option<(rlim_t, rlim_t)>> = OnceLock::new();

/// Lets this process have as many files open as it may at all. Commands that it starts get the limit that it was
/// started with.
pub fn allow_many_files() {
    INHERITED.get_or_init(|| {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
        // Where it fails, the limit stays as it is.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        Some((soft, hard))
    });
}

/// The limit that commands get, soft and hard, if this process's own was changed.
pub(crate) fn inherited() -> Option<(rlim_t, rlim_t)> {
    *INHERITED.get()?
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
