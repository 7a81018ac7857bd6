//! Output on standard output.

use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsRawFd, RawFd};

use crate::Failure;

/// Writes a text to standard output. A reader that closes the pipe early is no error.
///
/// # Errors
/// The text cannot be written: a full disk, for example.
pub(crate) fn show(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Whether standard output is a pipe or a socket that nobody reads any more.
pub(crate) fn is_abandoned() -> bool {
    has_no_reader(io::stdout().as_raw_fd())
}

fn has_no_reader(fd: RawFd) -> bool {
    let mut polled = libc::pollfd { fd, events: 0, revents: 0 };
    // SAFETY: one valid structure; the call does not wait.
    let ready = unsafe { libc::poll(&mut polled, 1, 0) };
    ready == 1 && polled.revents & libc::POLLERR != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_has_no_reader_once_its_other_end_is_closed() {
        let (reader, writer) = io::pipe().expect("a pipe");
        assert!(!has_no_reader(writer.as_raw_fd()));
        drop(reader);
        assert!(has_no_reader(writer.as_raw_fd()));
        let file = std::fs::File::open("/dev/null").expect("it is there");
        assert!(!has_no_reader(file.as_raw_fd()));
    }
}
