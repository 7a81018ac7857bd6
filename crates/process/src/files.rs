//! This process's file limits: how many files it may have open (each followed address space takes
//! one), and how large they may get.

use std::sync::OnceLock;

use libc::rlim_t;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The soft and hard limit that this process was started with.
static INHERITED: OnceLock<Option<(rlim_t, rlim_t)>> = OnceLock::new();

/// Raises this process's limit of open files to the hard limit. Commands that it starts get the
/// limit that it was started with.
pub fn allow_many_files() {
    INHERITED.get_or_init(|| {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
        // If it fails, the limit stays as it is.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        Some((soft, hard))
    });
}

/// The soft and hard limit for commands, if this process has changed its own.
pub(crate) fn inherited() -> Option<(rlim_t, rlim_t)> {
    *INHERITED.get()?
}

/// Whether SIGXFSZ was ignored when this process was started. Set when this process ignores it.
static IGNORED: OnceLock<bool> = OnceLock::new();

/// Makes the kernel refuse a write that would make a file larger than the limit (`ulimit -f`)
/// instead of ending this process with SIGXFSZ. Commands that it starts get the action that it was
/// started with.
pub fn ignore_file_size_limit() {
    // SAFETY: a plain call; no handler is set.
    IGNORED.get_or_init(|| unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) == libc::SIG_IGN });
}

/// Whether commands inherit this process's action for SIGXFSZ unchanged.
pub(crate) fn keeps_file_size_signal() -> bool {
    *IGNORED.get().unwrap_or(&true)
}
