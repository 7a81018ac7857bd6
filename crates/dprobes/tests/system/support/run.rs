//! Runs of the real command: `dprobes run` and others, with a time limit.

use super::{Scratch, Stats};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time limit for a command.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(240);

/// The command under test.
pub(crate) fn dprobes() -> Command {
    Command::new(env!("CARGO_BIN_EXE_dprobes"))
}

/// The option that names the engine to be tested: `DPROBES_TEST_ENGINE`, or none.
pub(crate) fn engine() -> Option<String> {
    std::env::var("DPROBES_TEST_ENGINE").ok().map(|engine| format!("--engine={engine}"))
}

/// The results of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The contents of the file given with `-o`.
    pub(crate) records: String,
    /// The contents of the file given with `--stats`; empty without one.
    pub(crate) stats: Stats,
}

impl Outcome {
    /// The header lines of the records, one per record, without the rows of bytes.
    pub(crate) fn headers(&self) -> Vec<&str> {
        self.records.lines().filter(|line| line.starts_with("DProbes(") && line.contains(" cpu=")).collect()
    }

    /// Panics unless the traced program ended with this status.
    #[track_caller]
    pub(crate) fn ended_with(self, status: i32) -> Self {
        assert_eq!(self.status.code(), Some(status), "{self:#?}");
        self
    }
}

/// Builder for a `dprobes run`.
pub(crate) struct Run {
    scratch: Scratch,
    command: Command,
}

impl Run {
    /// With this program.
    pub(crate) fn new(program: &str) -> Self {
        let scratch = Scratch::new();
        let file = scratch.file("program.rpn", program);
        Self::with(scratch, &file)
    }

    /// With the program in this file.
    pub(crate) fn file(file: &Path) -> Self {
        Self::with(Scratch::new(), file)
    }

    fn with(scratch: Scratch, file: &Path) -> Self {
        let run = Self::bare(scratch);
        run.option(file)
    }

    /// With points of functions, in the form of `--at`.
    pub(crate) fn at<'a>(points: impl IntoIterator<Item = &'a str>) -> Self {
        points.into_iter().fold(Self::bare(Scratch::new()), |run, point| run.option("--at").option(point))
    }

    fn bare(scratch: Scratch) -> Self {
        let mut command = dprobes();
        command.args(["run", "--log-format=klog"]);
        command.arg("--stats").arg(scratch.path().join("stats")).args(engine()).current_dir(scratch.path());
        Run { scratch, command }
    }

    /// Adds an option.
    pub(crate) fn option(mut self, option: impl AsRef<OsStr>) -> Self {
        self.command.arg(option);
        self
    }

    /// Runs the program and waits for its end.
    #[track_caller]
    pub(crate) fn on<I: IntoIterator<Item: AsRef<OsStr>>>(self, words: I) -> Outcome {
        self.start(words).end()
    }

    /// Starts the program.
    #[track_caller]
    pub(crate) fn start<I: IntoIterator<Item: AsRef<OsStr>>>(mut self, words: I) -> Running {
        // Without a handler, `--at` records only where records are to go.
        let words_so_far: Vec<_> = self.command.get_args().collect();
        let only_counts = words_so_far.iter().any(|word| *word == "--at")
            && !words_so_far.iter().any(|word| *word == "--do");
        if !only_counts {
            self.command.arg("-o").arg(self.scratch.path().join("records"));
        }
        self.command.arg("--").args(words);
        let said = format!("{:?}", self.command);
        Running { child: spawn(&mut self.command), scratch: self.scratch, said }
    }
}

/// A `dprobes run` that has not ended yet.
pub(crate) struct Running {
    child: Child,
    scratch: Scratch,
    said: String,
}

impl Running {
    /// The process of dprobes itself.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn end(self) -> Outcome {
        let (status, stdout, stderr) = finish(self.child, &self.said);
        outcome(&self.scratch, status, stdout, stderr)
    }
}

thread_local! {
    /// Whether a process of this test forges records.
    pub(crate) static FORGED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Collects the files of a run.
pub(crate) fn outcome(scratch: &Scratch, status: ExitStatus, stdout: String, stderr: String) -> Outcome {
    let records = std::fs::read(scratch.path().join("records")).unwrap_or_default();
    let records = String::from_utf8_lossy(&records).into_owned();
    let stats = scratch.path().join("stats");
    let Some(stats) = Stats::read(&stats) else {
        panic!("no stats were written; {status}; standard error:\n{stderr}\nstandard output:\n{stdout}");
    };
    Outcome { status, stdout, stderr, records, stats }
}

/// Runs a command with empty standard input; returns its status, standard output and standard
/// error.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> (ExitStatus, String, String) {
    let said = format!("{command:?}");
    finish(spawn(command), &said)
}

#[track_caller]
fn spawn(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Waits for a child in its own process group, and reads its output.
///
/// # Panics
/// It takes too long; the group is killed first.
#[track_caller]
pub(crate) fn finish(mut child: Child, said: &str) -> (ExitStatus, String, String) {
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let start = Instant::now();
    let mut pause = Duration::from_micros(200);
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break status;
        }
        if start.elapsed() > COMMAND_TIMEOUT {
            // SAFETY: kill takes no pointers; the group is that of a child not yet reaped, so the
            // number is still its.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            let _ = child.wait();
            panic!("{said} did not end in {COMMAND_TIMEOUT:?}");
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    };
    let text = |thread: Option<JoinHandle<Vec<u8>>>| {
        let bytes = thread.map(|thread| thread.join().expect("a reader does not panic")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    (status, text(stdout), text(stderr))
}

fn drain(stream: Option<impl Read + Send + 'static>) -> Option<JoinHandle<Vec<u8>>> {
    stream.map(|mut stream| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stream.read_to_end(&mut bytes);
            bytes
        })
    })
}
