//! What a command takes.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::{Figures, other};

/// What a process has taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    wall: Duration,
    processor: Duration,
    /// Bytes of memory, at the most.
    memory: u64,
}

/// Millions of records a second.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    pub(super) wall: Figures,
    /// Of all threads together: what is more than one processor does at a time counts against it.
    pub(super) processor: Figures,
    /// Bytes of memory, at the most.
    pub(super) memory: u64,
}

impl Rates {
    /// Adds a round.
    pub(super) fn add(&mut self, records: u64, taken: &Taken) {
        let rate = |time: Duration| records as f64 / time.as_secs_f64().max(1e-9) / 1e6;
        self.wall.add(rate(taken.wall));
        self.processor.add(rate(taken.processor));
        self.memory = self.memory.max(taken.memory);
    }
}

/// Runs a command to its end. What it says on standard error is shown if it fails.
pub(super) fn measure(command: &mut Command) -> io::Result<Taken> {
    let start = Instant::now();
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut said = String::new();
    // Its end is the end of what it says.
    if let Some(mut stderr) = child.stderr.take() {
        io::Read::read_to_string(&mut stderr, &mut said)?;
    }
    let (process, mut status) = (child.id().cast_signed(), 0);
    // SAFETY: all zeros is a value of the structure, which the call fills; the child has not been waited for, nor will it be again.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::wait4(process, &mut status, 0, &mut usage) < 0 {
            return Err(io::Error::last_os_error());
        }
        usage
    };
    let wall = start.elapsed();
    if !ExitStatus::from_raw(status).success() {
        return Err(other(format!("{command:?} has failed: {said}")));
    }
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    Ok(Taken {
        wall,
        processor: time(usage.ru_utime) + time(usage.ru_stime),
        memory: usage.ru_maxrss as u64 * 1024,
    })
}
