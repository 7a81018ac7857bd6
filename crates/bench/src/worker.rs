//! A program that says when it is ready, works when it is told to, and says how long it took.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cleanup::Started;

/// The running program.
#[derive(Debug)]
pub struct Worker {
    process: Started,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a program, which writes a line that begins with `ready`.
    ///
    /// # Errors
    /// It cannot be started, or says something else.
    pub fn start(program: &Path, words: &[String]) -> io::Result<Worker> {
        let mut child =
            Command::new(program).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let none = || io::Error::other("the subject has no pipes");
        let input = child.stdin.take().ok_or_else(none)?;
        let mut output = BufReader::new(child.stdout.take().ok_or_else(none)?);
        let process = Started::new(child);
        let mut line = String::new();
        output.read_line(&mut line)?;
        if !line.starts_with("ready") {
            return Err(io::Error::other(format!("the subject says: {line}")));
        }
        Ok(Worker { process, input, output })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Lets it do its work, and returns the nanoseconds of one call.
    ///
    /// # Errors
    /// It says no number.
    pub fn go(&mut self) -> io::Result<f64> {
        self.input.write_all(b"\n")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        line.trim().parse().map_err(|_| io::Error::other(format!("the subject says: {line}")))
    }
}

/// Waits for the end of a tracer.
///
/// # Errors
/// It does not end in that time.
pub fn wait(child: &mut Child, patience: Duration) -> io::Result<()> {
    let begin = Instant::now();
    while child.try_wait()?.is_none() {
        if begin.elapsed() > patience {
            return Err(io::Error::other("a tracer does not end"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
