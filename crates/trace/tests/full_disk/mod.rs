//! A full disk, simulated by a limit of the whole process, so a test that uses it is alone in its
//! file.

/// Limits the size of the files of this process.
pub(crate) fn limit_file_size(size: libc::rlim_t) {
    let limit = libc::rlimit { rlim_cur: size, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: plain system calls; `limit` is valid for the second. The first ignores a signal that
    // the test does not need.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
}
