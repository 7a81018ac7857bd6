//! The interface of all tracers: they attach to the subject, see calls, and report what they saw.

use crate::cleanup::Started;
use crate::jump::Subject;
use nix::sys::signal::Signal;
use std::fmt::Debug;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The function to trace.
#[derive(Clone, Debug)]
pub(super) struct TracedFunction {
    /// The process id.
    pub(super) pid: u32,
    /// The program file.
    pub(super) program: PathBuf,
    /// The function.
    pub(super) function: &'static str,
    /// Its address in the process.
    pub(super) address: u64,
    /// Its offset in the program's file.
    pub(super) offset: u64,
    /// A directory for files.
    pub(super) directory: PathBuf,
}

/// What a tracer saw, by its own report and in its files.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Hits counted.
    pub(super) hits: u64,
    /// Records that have arrived; `None` if the tracer only counts.
    pub(super) records: Option<u64>,
    /// Records that the tracer reports as lost.
    pub(super) lost: u64,
    /// What is wrong with its report, if anything.
    pub(super) wrong: Option<String>,
    /// How it worked, if it reports that: an engine, a tactic.
    pub(super) how: Option<String>,
    /// The size of its files, if requested.
    pub(super) bytes: u64,
}

/// A way to trace calls.
pub(super) trait Tracer: Debug {
    /// Begins to trace the calls of a function. If [`Tracer::changes_code`], it is active once the
    /// function's first bytes have changed.
    ///
    /// # Errors
    /// If it does not start.
    fn attach(&self, place: &TracedFunction) -> io::Result<Box<dyn Attached>>;

    /// Whether it changes the function's first bytes when active.
    fn changes_code(&self) -> bool {
        true
    }

    /// Whether it is dprobes.
    fn is_ours(&self) -> bool {
        false
    }

    /// The processor time that its daemons have used so far.
    fn daemon_time(&self) -> Duration {
        Duration::ZERO
    }

    /// Starts a subject itself, for a tracer that cannot attach to a running one.
    ///
    /// # Errors
    /// If it does not start.
    fn launch(&self) -> io::Result<Option<Subject>> {
        Ok(None)
    }
}

/// An active tracer. Dropping it ends it without a report.
pub(super) trait Attached {
    /// Checks that it is still active.
    ///
    /// # Errors
    /// If it has ended, and why.
    fn check(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Ends the tracing and returns the report. A subject started by the tracer has ended before.
    ///
    /// # Errors
    /// If the tracer does not end, or reports nothing.
    fn stop(self: Box<Self>) -> io::Result<Seen>;
}

/// A tracer process with its output.
#[derive(Debug)]
pub(super) struct Process {
    /// The process.
    pub(super) started: Started,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> Option<JoinHandle<String>> {
    pipe.map(|mut pipe| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    })
}

fn text(handle: Option<JoinHandle<String>>) -> String {
    handle.and_then(|handle| handle.join().ok()).unwrap_or_default()
}

impl Process {
    /// Starts a command, with pipes.
    ///
    /// # Errors
    /// If it does not start.
    pub(super) fn start(command: &mut Command) -> io::Result<Process> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(
                |error| io::Error::other(format!("{}: {error}", command.get_program().to_string_lossy())),
            )?;
        let (stdout, stderr) = (reader(child.stdout.take()), reader(child.stderr.take()));
        Ok(Process { started: Started::new(child), stdout, stderr })
    }

    /// Checks that it is still running.
    ///
    /// # Errors
    /// If it has ended; with its output.
    pub(super) fn check(&mut self) -> io::Result<()> {
        match self.started.ended()? {
            None => Ok(()),
            Some(status) => {
                let said = text(self.stderr.take()) + &text(self.stdout.take());
                let last: Vec<&str> = said.lines().rev().take(3).collect();
                let last: Vec<&str> = last.into_iter().rev().collect();
                Err(io::Error::other(format!("ended early ({status}): {}", last.join(" / "))))
            }
        }
    }

    /// Sends SIGINT until it ends, and returns its standard output and standard error.
    ///
    /// # Errors
    /// If it has not ended after two minutes.
    pub(super) fn interrupt(self) -> io::Result<(String, String)> {
        self.wait(Duration::ZERO)
    }

    /// As [`Process::interrupt`], for a process that will end by itself: it gets ten seconds
    /// without a signal.
    ///
    /// # Errors
    /// If it has not ended after two minutes.
    pub(super) fn finish(self) -> io::Result<(String, String)> {
        self.wait(Duration::from_secs(10))
    }

    fn wait(mut self, mut next: Duration) -> io::Result<(String, String)> {
        let began = Instant::now();
        while self.started.ended()?.is_none() {
            if began.elapsed() > Duration::from_secs(120) {
                return Err(io::Error::other("does not end"));
            }
            if began.elapsed() >= next {
                self.started.signal(Signal::SIGINT);
                next = next * 2 + Duration::from_secs(2);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok((text(self.stdout.take()), text(self.stderr.take())))
    }
}
