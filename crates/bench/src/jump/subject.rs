//! The measured process: `subject/hits.c`, which calls a function a given number of times and times
//! the calls itself.

use crate::build;
use crate::cleanup::Started;
use object::{Object, ObjectSegment, ObjectSymbol};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

/// The bytes at the start of a function that a tracer may change.
const WATCHED: usize = 16;

/// How to call a function.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The number of calling threads.
    pub threads: u32,
    /// Nanoseconds from one call to the next; 0: as fast as possible.
    pub gap: u64,
    /// The number of calls after which a thread sleeps; 0: never.
    pub burst: u64,
    /// How long it sleeps, in microseconds.
    pub pause: u64,
}

impl Shape {
    /// As fast as possible, on this many threads.
    pub const fn flat(threads: u32) -> Shape {
        Shape { threads, gap: 0, burst: 0, pause: 0 }
    }
}

/// The results of one round.
#[derive(Clone, Copy, Debug, Default)]
pub struct Round {
    /// Calls of all threads.
    pub calls: u64,
    /// Wall clock time of the calls in nanoseconds; of the slowest thread, if there are several.
    pub wall: u64,
    /// Processor time of all threads in nanoseconds.
    pub cpu: u64,
    /// The function's own count.
    pub counted: u64,
}

impl Round {
    /// Wall clock time per call in nanoseconds, of one of the threads that can run in parallel.
    pub fn wall_per_call(&self, threads: u32) -> f64 {
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        self.wall as f64 * f64::from(threads).min(processors) / self.calls.max(1) as f64
    }

    /// Processor time per call in nanoseconds.
    pub fn cpu_per_call(&self) -> f64 {
        self.cpu as f64 / self.calls.max(1) as f64
    }
}

/// The built program.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
}

impl Program {
    /// Builds the program into a directory; `flags` and `libraries` are for variants, under another
    /// `name`.
    ///
    /// # Errors
    /// If there is no gcc, or the program does not build.
    pub fn build(directory: &Path, name: &str, flags: &[&str], libraries: &[&str]) -> io::Result<Program> {
        let path = directory.join(name);
        let sources = ["hits.c", "floors.S"]
            .map(|each| Path::new(env!("CARGO_MANIFEST_DIR")).join("subject").join(each));
        build::c_program(&sources, flags, libraries, &path)?;
        Ok(Program { path })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Address and file offset of a function, from the file.
    ///
    /// # Errors
    /// If the program has no such function.
    pub fn function(&self, name: &str) -> io::Result<(u64, u64)> {
        let bytes = std::fs::read(&self.path)?;
        let file = object::File::parse(&*bytes).map_err(io::Error::other)?;
        let symbol = file.symbols().find(|each| each.name() == Ok(name));
        let address = symbol
            .map(|each| each.address())
            .ok_or_else(|| io::Error::other(format!("no function {name}")))?;
        let offset = file.segments().find_map(|segment| {
            let into = address.checked_sub(segment.address())?;
            let (offset, size) = segment.file_range();
            (into < size).then_some(offset + into)
        });
        Ok((address, offset.ok_or_else(|| io::Error::other(format!("{name} is not in the file")))?))
    }

    /// Starts the program.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(&self) -> io::Result<Subject> {
        self.start_by(&mut Command::new(&self.path))
    }

    /// Starts the program by a command that ends with it.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start_by(&self, command: &mut Command) -> io::Result<Subject> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let started = Started::new(child);
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(io::Error::other("no pipes to the subject"));
        };
        let mut subject = Subject {
            started,
            stdin,
            stdout: BufReader::new(stdout),
            program: self.clone(),
            pid: 0,
            bias: 0,
        };
        let line = subject.line()?;
        let pid = line.trim().strip_prefix("pid ").and_then(|number| number.parse().ok());
        subject.pid = pid.ok_or_else(|| io::Error::other(format!("the subject says {line:?}")))?;
        subject.bias = subject.read_bias()?;
        Ok(subject)
    }
}

/// The running program. It ends when dropped.
#[derive(Debug)]
pub struct Subject {
    started: Started,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    program: Program,
    pid: u32,
    bias: u64,
}

impl Subject {
    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.stdout.read_line(&mut line)? {
            0 => Err(io::Error::other("the subject has ended")),
            _ => Ok(line),
        }
    }

    fn read_bias(&self) -> io::Result<u64> {
        let program = self.program.path.canonicalize()?;
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid))?;
        let first = maps.lines().find(|line| line.ends_with(&*program.to_string_lossy()));
        let start = first.and_then(|line| u64::from_str_radix(line.split('-').next()?, 16).ok());
        // The program is position-independent: its first page is the file's first.
        start.ok_or_else(|| io::Error::other("the subject does not map its program"))
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The program it runs.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Runs a round: `calls` on each thread.
    ///
    /// # Errors
    /// If the process has ended, or cannot do it.
    pub fn round(&mut self, function: &str, calls: u64, shape: Shape) -> io::Result<Round> {
        let Shape { threads, gap, burst, pause } = shape;
        writeln!(self.stdin, "{function} {calls} {threads} {gap} {burst} {pause}")?;
        let line = self.line()?;
        let mut words = line.split_whitespace();
        let mut number = |name: &str| match (words.next(), words.next()) {
            (Some(word), Some(value)) if word == name => value.parse::<u64>().ok(),
            _ => None,
        };
        match (number("calls"), number("wall"), number("cpu"), number("counted")) {
            (Some(calls), Some(wall), Some(cpu), Some(counted)) => Ok(Round { calls, wall, cpu, counted }),
            _ => Err(io::Error::other(format!("the subject says: {}", line.trim()))),
        }
    }

    /// The address of a function in the process.
    ///
    /// # Errors
    /// If the program has no such function.
    pub fn address(&self, function: &str) -> io::Result<u64> {
        Ok(self.bias + self.program.function(function)?.0)
    }

    /// The current first bytes of a function in the process.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn bytes(&self, function: &str) -> io::Result<[u8; WATCHED]> {
        let mut bytes = [0; WATCHED];
        File::open(format!("/proc/{}/mem", self.pid))?.read_exact_at(&mut bytes, self.address(function)?)?;
        Ok(bytes)
    }

    /// Ends the process regularly by closing its input, and waits for it.
    ///
    /// # Errors
    /// If it does not end within ten seconds.
    pub fn end(self) -> io::Result<()> {
        let Subject { mut started, stdin, .. } = self;
        drop(stdin);
        let began = std::time::Instant::now();
        while started.ended()?.is_none() {
            if began.elapsed() > std::time::Duration::from_secs(10) {
                return Err(io::Error::other("the subject does not end"));
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Ok(())
    }
}
