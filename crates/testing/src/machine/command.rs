//! What is run in a machine, and what became of it.

use std::time::Duration;

/// A command's time limit, by the machine's clock. An emulated machine is slow.
const LIMIT: Duration = Duration::from_secs(120);

/// A command to run in a machine.
#[derive(Clone, Debug)]
pub struct Command {
    pub(super) words: Vec<String>,
    pub(super) limit: Duration,
}

impl Command {
    /// A program with its arguments. It is found in `/bin` if its name has no `/`.
    pub fn new<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Command {
        Command { words: words.into_iter().map(W::into).collect(), limit: LIMIT }
    }

    /// Lines for the shell. The first one that fails ends it with its status, and each is shown in
    /// standard error before it runs.
    pub fn shell(lines: &str) -> Command {
        Command::new(["sh", "-e", "-x", "-c", lines])
    }

    /// Changes the time limit, which is two minutes of the machine's clock.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Command {
        self.limit = limit;
        self
    }
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With an exit status; 127 if there is no such program.
    Exited(i32),
    /// By a signal.
    Signalled(i32),
    /// It was killed at its time limit.
    TimedOut,
    /// The kernel panicked meanwhile: its message, without "Kernel panic - not syncing: ".
    Panicked(String),
    /// The machine ended or hung, and the kernel said nothing of a panic.
    Lost,
}

/// The outcome of a command.
#[derive(Clone, Debug)]
pub struct Output {
    /// How it ended.
    pub end: End,
    /// What it wrote to standard output; bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// What the kernel wrote to its console meanwhile.
    pub console: String,
}

impl Output {
    /// Returns standard output.
    ///
    /// # Panics
    /// Unless it ended with status 0, and the kernel has not warned of a mistake in itself.
    #[track_caller]
    pub fn success(&self) -> &str {
        assert_eq!(self.end, End::Exited(0), "{self:#?}");
        assert!(!self.console.contains("] WARNING: "), "{self:#?}");
        &self.stdout
    }
}
