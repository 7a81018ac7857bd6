//! A disk that is full: a limit of the whole process stands for it, so a test that uses it is alone in its file.

/// Lets files of this process grow no more than to so many bytes.
pub(crate) fn limit_file_size(size: libc::rlim_t) {
    let limit = libc::rlimit { rlim_cur: size, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: plain system calls; `limit` is valid for the second, and the signal of the first is one that the test does without.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
}
