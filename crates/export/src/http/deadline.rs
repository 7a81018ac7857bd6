//! A connection whose reads and writes end in time, all together: who sends a byte now and then
//! does not hold a thread.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A connection with a deadline.
#[derive(Debug)]
pub(crate) struct Timed {
    stream: TcpStream,
    end: Instant,
}

impl Timed {
    /// The connection ends after this time.
    pub(crate) fn new(stream: TcpStream, limit: Duration) -> Timed {
        Timed { stream, end: Instant::now() + limit }
    }

    /// Nothing more is written: the other side sees the end of what it reads.
    pub(crate) fn end_writing(&self) -> io::Result<()> {
        self.stream.shutdown(std::net::Shutdown::Write)
    }

    /// No more than this time is left from now on.
    pub(crate) fn shorten(&mut self, limit: Duration) {
        self.end = self.end.min(Instant::now() + limit);
    }

    /// What is left of the time.
    fn left(&self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(ErrorKind::TimedOut.into()),
            false => Ok(left),
        }
    }
}

/// The kernel says that there was nothing yet, which is the end of the time.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(bytes).map_err(timed_out)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
