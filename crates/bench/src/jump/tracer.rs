//! What all tracers have in common: they attach to the subject, see calls, and tell in the end what they saw.

use crate::cleanup::Started;
use crate::jump::Subject;
use nix::sys::signal::Signal;
use std::fmt::Debug;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Where a tracer works.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The process.
    pub(super) pid: u32,
    /// The program it runs.
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

/// What a tracer saw, by its own account and in its files.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Hits counted.
    pub(super) hits: u64,
    /// Records that have arrived where they are wanted; `None` where the tracer only counts.
    pub(super) records: Option<u64>,
    /// Records that the tracer says it has lost.
    pub(super) lost: u64,
    /// What is wrong with what it says, if anything.
    pub(super) wrong: Option<String>,
    /// How it worked, if it tells: an engine, a tactic.
    pub(super) how: Option<String>,
    /// Bytes of its files, where that is asked.
    pub(super) bytes: u64,
}

/// A way to see calls.
pub(super) trait Tracer: Debug {
    /// Starts to see the calls of a function. They are seen once the function's first bytes have changed, if
    /// [`Tracer::changes_code`].
    ///
    /// # Errors
    /// It does not start.
    fn attach(&self, place: &Place) -> io::Result<Box<dyn Attached>>;

    /// Whether it changes the function's first bytes when it is in place.
    fn changes_code(&self) -> bool {
        true
    }

    /// Whether it is dprobes.
    fn is_ours(&self) -> bool {
        false
    }

    /// The processor time that its daemons have used so far, if it has some.
    fn daemon_time(&self) -> Duration {
        Duration::ZERO
    }

    /// A subject of its own, for a tracer that cannot attach to one that runs.
    ///
    /// # Errors
    /// It does not start.
    fn launch(&self) -> io::Result<Option<Subject>> {
        Ok(None)
    }
}

/// A tracer at work. Dropped, it ends without an account.
pub(super) trait Attached {
    /// Whether it is still there.
    ///
    /// # Errors
    /// It has ended, and why.
    fn check(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Ends the tracing and gives the account. A subject of the tracer's own has ended before.
    ///
    /// # Errors
    /// The tracer does not end, or gives no account.
    fn stop(self: Box<Self>) -> io::Result<Seen>;
}

/// A tracer that is a process, with what it writes.
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
    /// It does not start.
    pub(super) fn start(command: &mut Command) -> io::Result<Process> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(
                |error| io::Error::other(format!("{}: {error}", command.get_program().to_string_lossy())),
            )?;
        let (stdout, stderr) = (reader(child.stdout.take()), reader(child.stderr.take()));
        Ok(Process { started: Started::new(child), stdout, stderr })
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// It has ended; with what it said.
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

    /// Sends SIGINT until it ends, and gives what it wrote on standard output and standard error.
    ///
    /// # Errors
    /// It has not ended after two minutes.
    pub(super) fn interrupt(self) -> io::Result<(String, String)> {
        self.wait(Duration::ZERO)
    }

    /// As [`Process::interrupt`], for a process that is about to end: it gets ten seconds without a signal.
    ///
    /// # Errors
    /// It has not ended after two minutes.
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
