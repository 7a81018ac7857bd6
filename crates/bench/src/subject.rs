//! The measured process: `tight -i`, which calls `work` a given number of times and times the calls
//! itself.

use crate::{build, other};
use object::{Object, ObjectSymbol};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// One round of calls.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// The number of calls of all threads.
    pub calls: u64,
    /// Nanoseconds per call.
    pub nanoseconds: f64,
}

/// The running process. It ends when dropped.
#[derive(Debug)]
pub struct Subject {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    program: PathBuf,
}

impl Subject {
    /// Builds the program with gcc into a directory and starts it.
    ///
    /// # Errors
    /// If there is no gcc, or the program does not build or start.
    pub fn start(directory: &Path) -> io::Result<Self> {
        let program = directory.join("bench-tight");
        let source = build::repository().join("tests/targets/tight.c");
        build::c_program(&[source], &["-no-pie", "-fno-pie"], &[], &program)?;
        let mut command = Command::new(&program);
        let mut child = command.arg("-i").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().ok_or_else(|| other("no pipe to the subject"))?;
        let stdout = BufReader::new(child.stdout.take().ok_or_else(|| other("no pipe from the subject"))?);
        let mut subject = Subject { child, stdin, stdout, program };
        subject.line()?;
        Ok(subject)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.stdout.read_line(&mut line)? {
            0 => Err(other("the subject has ended")),
            _ => Ok(line),
        }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The program it runs.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Runs a round.
    ///
    /// # Errors
    /// If the process has ended, or answers incorrectly.
    pub fn round(&mut self, calls: u64, threads: u32) -> io::Result<Round> {
        writeln!(self.stdin, "{calls} {threads}")?;
        let line = self.line()?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |place: usize| words.get(place).and_then(|word| word.parse::<f64>().ok());
        match (number(1), number(3)) {
            (Some(calls), Some(nanoseconds)) => Ok(Round { calls: calls as u64, nanoseconds }),
            _ => Err(other(format!("the subject says {line:?}"))),
        }
    }

    /// The address of a symbol: the one in the file, since the program is not position-independent.
    ///
    /// # Errors
    /// If the program has no such symbol.
    pub fn address(&self, symbol: &str) -> io::Result<u64> {
        let bytes = std::fs::read(&self.program)?;
        let file = object::File::parse(&*bytes).map_err(|error| other(error.to_string()))?;
        let found = file.symbols().find(|each| each.name() == Ok(symbol));
        found.map(|each| each.address()).ok_or_else(|| other(format!("no symbol {symbol}")))
    }

    /// The byte at an address of the process.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn byte(&self, address: u64) -> io::Result<u8> {
        let mut byte = [0];
        File::open(format!("/proc/{}/mem", self.pid()))?.read_exact_at(&mut byte, address)?;
        Ok(byte[0])
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
