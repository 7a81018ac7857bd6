//! Whether anybody writes to a file.

use std::fs::File;
use std::os::fd::AsRawFd;

use nix::sys::signal::{SigHandler, Signal, signal};

/// Whether no process of this machine has the file open for writing. `None`: the kernel does not
/// tell, since the file is another user's, or on a file system that does not know.
///
/// The kernel grants a read lease on a file only while nobody has it open for writing
/// (fcntl(2)). It is given back at once: who opens the file meanwhile waits for that long.
pub(super) fn nobody_writes(file: &File) -> Option<bool> {
    // Sent when somebody opens the file before the lease is given back; it would end this process.
    // SAFETY: no handler is set, the signal is ignored.
    unsafe { signal(Signal::SIGIO, SigHandler::SigIgn) }.ok()?;
    let lease = |kind: libc::c_int| {
        // SAFETY: the descriptor is open as long as `file` is borrowed, and no memory is passed.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) }
    };
    if lease(libc::F_RDLCK) == 0 {
        lease(libc::F_UNLCK);
        return Some(true);
    }
    (std::io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)).then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_is_seen_as_long_as_it_has_the_file() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("file");
        let writer = File::create(&path).expect("a file");
        let reader = File::open(&path).expect("it is there");
        assert_eq!(nobody_writes(&reader), Some(false));
        // As a forked process has it.
        let copy = writer.try_clone().expect("a descriptor");
        drop(writer);
        assert_eq!(nobody_writes(&reader), Some(false));
        drop(copy);
        assert_eq!(nobody_writes(&reader), Some(true));
        assert_eq!(nobody_writes(&File::open("/dev/null").expect("it is there")), None);
    }
}
