//! A file that is written at once, and waited for as long as it takes something now and then.
//!
//! A session writes on its only thread. A pipe that is read slowly is waited for; one that is not read any more is not: what is
//! written to it fails after a while, and from then on without a wait until it has taken something again.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use trace::sink::Tail;

/// How long a file may take nothing.
const PATIENCE: Duration = Duration::from_secs(3);

/// A file that does not block.
#[derive(Debug)]
pub(super) struct Patient {
    file: File,
    /// Whether it has been waited for in vain since it took something.
    is_stuck: bool,
}

impl Patient {
    /// For a file that was opened with O_NONBLOCK.
    pub(super) fn new(file: File) -> Patient {
        Patient { file, is_stuck: false }
    }

    /// Waits until something may be written. False: not for so long.
    fn wait(&self) -> bool {
        let mut wanted = libc::pollfd { fd: self.file.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            // SAFETY: `wanted` is one valid structure, and its file is open as long as it is borrowed.
            let ready = unsafe { libc::poll(&raw mut wanted, 1, left.as_millis() as i32) };
            // A signal is no reason not to wait for the rest of the time.
            if ready > 0 || left.is_zero() {
                return ready > 0;
            }
        }
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.file.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.is_stuck || !self.wait() {
                        self.is_stuck = true;
                        return Err(io::Error::new(io::ErrorKind::TimedOut, "it takes nothing any more"));
                    }
                }
                written => {
                    self.is_stuck = false;
                    return written;
                }
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Tail for Patient {
    fn take_back(&mut self, bytes: u64) -> bool {
        self.file.take_back(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use super::*;

    /// A pipe that is full, and how much it holds.
    fn full() -> (io::PipeReader, Patient, usize) {
        let (reader, writer) = io::pipe().expect("a pipe");
        // SAFETY: plain calls on a descriptor that `writer` owns.
        unsafe {
            let flags = libc::fcntl(writer.as_raw_fd(), libc::F_GETFL);
            assert_eq!(libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK), 0);
        }
        let mut file = File::from(OwnedFd::from(writer));
        let mut size = 0;
        while let Ok(more) = file.write(&[0; 4096]) {
            size += more;
        }
        (reader, Patient::new(file), size)
    }

    #[test]
    fn a_reader_that_is_slow_is_waited_for() {
        let (mut reader, mut file, size) = full();
        let read = std::thread::spawn(move || {
            std::thread::sleep(PATIENCE / 3);
            let mut all = Vec::new();
            reader.read_to_end(&mut all).expect("it is read");
            all.len()
        });
        file.write_all(&[1; 100_000]).expect("it is waited for");
        drop(file);
        assert_eq!(read.join().expect("it reads"), size + 100_000);
    }

    #[test]
    fn a_reader_that_has_stopped_is_waited_for_once_until_it_reads_again() {
        let (mut reader, mut file, size) = full();
        let begin = Instant::now();
        for _ in 0..10 {
            assert_eq!(file.write(b"x").map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
        }
        assert!((PATIENCE..2 * PATIENCE).contains(&begin.elapsed()), "{:?}", begin.elapsed());
        reader.read_exact(&mut vec![0; size]).expect("it is there");
        assert_eq!(file.write(b"x").expect("there is room"), 1);
    }
}
