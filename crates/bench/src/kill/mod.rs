//! Kills the tracer at a random moment, and checks that the program lives, computes correctly, and
//! keeps its signals.
//!
//! One *kill*: `tests/targets/mortal.c` is started in one of its ways, `dprobes attach` puts a
//! logging probe at every function of it and of libc, the tracer is killed (SIGKILL) a random time
//! after a phase began, and the front ends. Then the program is checked: it must live, every thread
//! must block the signals that it blocked before, and when asked to end it must report that all its
//! results were right.

mod program;

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::cleanup::Started;
use crate::family::send;
use crate::other;
pub use program::{Found, Program, look};

/// What the program does.
pub const WAYS: [&str; 6] = ["loop", "threads", "forks", "modules", "signals", "storm"];

/// When the tracer is killed.
pub const PHASES: [&str; 3] = ["arming", "running", "disarming"];

/// The time after which anything counts as hung.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);

/// Pseudo-random numbers (xorshift64*), determined by the seed.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// A sequence for a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number, less than `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % bound
    }
}

/// The result of one kill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The program is unharmed.
    Well {
        /// Bytes of the program's code that differ from the file: probes that continue to work.
        changed: usize,
    },
    /// The tracer had ended before it was killed.
    TooLate,
    /// The program died, hung, computed a wrong result, or blocks other signals.
    Harmed(String),
}

/// One kill.
#[derive(Clone, Copy, Debug)]
pub struct Kill<'a> {
    /// The command.
    pub dprobes: &'a Path,
    /// The program.
    pub program: &'a Path,
    /// `trap`, `jump`.
    pub engine: &'a str,
    /// One of [`WAYS`].
    pub way: &'a str,
    /// One of [`PHASES`].
    pub phase: &'a str,
    /// The delay after the start of the phase.
    pub delay: Duration,
    /// A directory to create for the program's core, kept if the program is harmed.
    pub core: Option<&'a Path>,
}

impl Kill<'_> {
    /// Performs the kill.
    ///
    /// # Errors
    /// If something cannot be started.
    pub fn run(&self) -> io::Result<Outcome> {
        let outcome = self.run_once()?;
        if let Some(directory) = self.core.filter(|_| !matches!(outcome, Outcome::Harmed(_))) {
            std::fs::remove_dir_all(directory)?;
        }
        Ok(outcome)
    }

    fn run_once(&self) -> io::Result<Outcome> {
        let program = Program::begin(self.program, self.way, self.core)?;
        let pid = program.pid();
        let mut front = self.attach(pid)?;
        let began = Instant::now();
        while !is_traced(pid) && began.elapsed() < HANG_TIMEOUT {
            std::thread::sleep(Duration::from_micros(200));
        }
        match self.phase {
            "arming" => {}
            "running" => std::thread::sleep(Duration::from_millis(700)),
            _ => {
                std::thread::sleep(Duration::from_millis(700));
                send(front.pid(), Signal::SIGTERM);
            }
        }
        std::thread::sleep(self.delay);
        let tracer = child_of(front.pid());
        if let Some(tracer) = tracer {
            send(tracer, Signal::SIGKILL);
        }
        let ended = Instant::now();
        while front.child().try_wait()?.is_none() {
            if ended.elapsed() > HANG_TIMEOUT {
                return Ok(Outcome::Harmed("dprobes does not end".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // It runs for a while, so that faults show.
        std::thread::sleep(Duration::from_millis(50));
        let found = look(pid, self.program);
        let said = program.end()?;
        Ok(match (said, found) {
            (Err(harm), _) => Outcome::Harmed(harm),
            (Ok(()), Err(harm)) => Outcome::Harmed(harm),
            (Ok(()), Ok(_)) if tracer.is_none() => Outcome::TooLate,
            (Ok(()), Ok(Found { changed })) => Outcome::Well { changed },
        })
    }

    fn attach(&self, pid: u32) -> io::Result<Started> {
        let file = self.program.file_name().ok_or_else(|| other("the program has no name"))?;
        let mut command = Command::new(self.dprobes);
        command.args(["attach", "--engine", self.engine, "-p", &pid.to_string(), "-o", "/dev/null"]);
        for module in [&*file.to_string_lossy(), "libc.so.6"] {
            command.arg("--at").arg(format!("{module}:*:entry"));
        }
        command.args(["--do", "push r, rdi; log 1"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Started::new(command.spawn()?))
    }
}

/// Whether a process is traced.
fn is_traced(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.contains("TracerPid:\t0\n")
}

/// The only child of a process.
fn child_of(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_are_bounded_and_differ() {
        let mut random = Random::new(7);
        let numbers: Vec<u64> = (0..100).map(|_| random.below(10)).collect();
        assert!(numbers.iter().all(|&number| number < 10));
        assert!((0..10).all(|number| numbers.contains(&number)));
        assert_eq!(Random::new(7).below(1000), Random::new(7).below(1000));
    }
}
