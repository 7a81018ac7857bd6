//! A file that a thread writes without blocking: even when given up, it knows how much was written.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use super::Retractable;
use crate::queue::{Progress, stuck};

/// A file in non-blocking mode. Where a pipe or a terminal has no room, `write` waits for it.
#[derive(Debug)]
pub struct NonblockingFile {
    file: File,
    progress: Progress,
    /// How long it may take nothing.
    patience: Duration,
    /// Whether the last wait was in vain and nothing was taken since. Then `write` does not wait
    /// again.
    is_stuck: bool,
}

impl NonblockingFile {
    /// An outlet for a file whose open file description no other process uses. Waits until given
    /// up.
    pub fn new(file: File, progress: Progress) -> NonblockingFile {
        // SAFETY: plain calls on a descriptor that `file` owns. If they fail, the file blocks as
        // before.
        unsafe {
            let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
            if flags >= 0 {
                libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK);
            }
        }
        NonblockingFile { file, progress, patience: Duration::MAX, is_stuck: false }
    }

    /// The same, but each wait is limited. After a wait in vain, `write` fails at once until the
    /// file takes something.
    pub fn with_patience(self, patience: Duration) -> NonblockingFile {
        NonblockingFile { patience, ..self }
    }
}

impl Write for NonblockingFile {
    /// Fails once the output is given up.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            if self.progress.is_given_up() {
                return Err(stuck());
            }
            match self.file.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.is_stuck {
                        return Err(stuck());
                    }
                    self.is_stuck = true;
                    self.progress.wait_for(self.file.as_fd(), self.patience)?;
                    self.is_stuck = false;
                }
                written => {
                    self.progress.step();
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

impl Retractable for NonblockingFile {
    fn retract(&mut self, bytes: u64) -> bool {
        self.file.retract(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::time::Instant;

    use super::*;

    /// How long these tests wait for their files.
    const SHORT_TIME_OUT: Duration = Duration::from_secs(1);

    /// A full pipe, and how many bytes it holds.
    fn full() -> (io::PipeReader, NonblockingFile, usize) {
        let (reader, writer) = io::pipe().expect("a pipe");
        let file = File::from(OwnedFd::from(writer));
        let mut outlet = NonblockingFile::new(file, Progress::default()).with_patience(SHORT_TIME_OUT);
        let mut size = 0;
        while let Ok(more) = outlet.file.write(&[0; 4096]) {
            size += more;
        }
        (reader, outlet, size)
    }

    #[test]
    fn a_reader_that_is_slow_is_waited_for() {
        let (mut reader, mut file, size) = full();
        let read = std::thread::spawn(move || {
            std::thread::sleep(SHORT_TIME_OUT / 3);
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
        assert!((SHORT_TIME_OUT..2 * SHORT_TIME_OUT).contains(&begin.elapsed()), "{:?}", begin.elapsed());
        reader.read_exact(&mut vec![0; size]).expect("it is there");
        assert_eq!(file.write(b"x").expect("there is room"), 1);
    }
}
