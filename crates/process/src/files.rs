//! How many files this process may have open: each address space that is followed takes one.

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
