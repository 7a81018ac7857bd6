//! Measures a command's time and memory.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::{Figures, other};

/// The resources that a process has used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    wall: Duration,
    processor: Duration,
    /// Peak memory in bytes.
    memory: u64,
}

/// Figures in millions of records a second.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    pub(super) wall: Figures,
    /// Of all threads together, so parallel work counts fully.
    pub(super) processor: Figures,
    /// Peak memory in bytes.
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

/// Runs a command to its end. Shows its standard error if it fails.
pub(super) fn measure(command: &mut Command) -> io::Result<Taken> {
    let start = Instant::now();
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut said = String::new();
    // Its standard error is closed when it ends.
    if let Some(mut stderr) = child.stderr.take() {
        io::Read::read_to_string(&mut stderr, &mut said)?;
    }
    let (process, mut status) = (child.id().cast_signed(), 0);
    // SAFETY: all zeros is a valid value of the structure, which the call fills; the child has not
    // been waited for, and is not waited for again.
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
