//! The program whose tracer is killed: starts it, checks it and ends it.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use libc::RLIM_INFINITY;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;

use crate::cleanup::Started;
use crate::family::send;
use crate::other;

/// The signal mask of the program's threads: SIGUSR2.
const BLOCKED: u64 = 1 << (libc::SIGUSR2 - 1);

/// The state of a living program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Bytes of its code that differ from the file.
    pub changed: usize,
}

/// The running program.
#[derive(Debug)]
pub struct Program {
    started: Started,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Starts it in one of its ways, and waits until it works. Its core, if any, goes to the named
    /// directory.
    ///
    /// # Errors
    /// If it does not start, or the directory cannot be created.
    pub fn begin(program: &Path, way: &str, core: Option<&Path>) -> io::Result<Program> {
        let mut command = Command::new(program);
        if let Some(directory) = core {
            fs::create_dir_all(directory)?;
            command.current_dir(directory);
            // SAFETY: between fork and exec, one system call with a local variable.
            unsafe { command.pre_exec(allow_core) };
        }
        let mut child = command.arg(way).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or_else(|| other("no pipe from the program"))?;
        let (started, mut output) = (Started::new(child), BufReader::new(output));
        let mut line = String::new();
        output.read_line(&mut line)?;
        match line.starts_with("pid ") {
            true => Ok(Program { started, output }),
            false => Err(other(format!("the program says {line:?}"))),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.started.pid()
    }

    /// Asks it to end, and returns what was wrong with how it did.
    ///
    /// # Errors
    /// If its output cannot be read.
    pub fn end(mut self) -> io::Result<Result<(), String>> {
        send(self.pid(), Signal::SIGTERM);
        let asked = Instant::now();
        let status = loop {
            if let Some(status) = self.started.child().try_wait()? {
                break status;
            }
            if asked.elapsed() > super::HANG_TIMEOUT {
                return Ok(Err("the program does not end".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let mut said = String::new();
        self.output.read_to_string(&mut said)?;
        Ok(match status.success() && said.ends_with("right\n") {
            true => Ok(()),
            false => Err(format!("the program ended with {status}, and said {:?}", said.trim_end())),
        })
    }
}

/// Allows this process to dump core.
fn allow_core() -> io::Result<()> {
    Ok(setrlimit(Resource::RLIMIT_CORE, RLIM_INFINITY, RLIM_INFINITY)?)
}

/// Checks a living program: its threads' signal masks, and its code.
///
/// # Errors
/// What is wrong.
pub fn look(pid: u32, program: &Path) -> Result<Found, String> {
    let gone = |error: io::Error| format!("the program is gone: {error}");
    for task in fs::read_dir(format!("/proc/{pid}/task")).map_err(gone)? {
        let path = task.map_err(gone)?.path().join("status");
        // A thread may have ended meanwhile, and one that starts or ends blocks all signals for a
        // moment.
        let mask = || {
            let text = fs::read_to_string(&path).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        };
        let asked = Instant::now();
        while let Some(mask) = mask().filter(|&mask| mask != BLOCKED) {
            if asked.elapsed() > Duration::from_secs(2) {
                return Err(format!("a thread blocks the signals {mask:#x}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let changed = changed(pid, program).map_err(gone)?;
    Ok(Found { changed })
}

/// The number of bytes of the program's code in memory that differ from its file.
fn changed(pid: u32, program: &Path) -> io::Result<usize> {
    let file = fs::read(program)?;
    let memory = fs::File::open(format!("/proc/{pid}/mem"))?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mut changed = 0;
    for line in
        maps.lines().filter(|line| line.contains("r-xp") && line.ends_with(&*program.to_string_lossy()))
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        let hex = |text: &str| u64::from_str_radix(text, 16).map_err(|_| other(format!("maps say {line:?}")));
        let (start, end) = words[0].split_once('-').ok_or_else(|| other(format!("maps say {line:?}")))?;
        let (start, end, offset) = (hex(start)?, hex(end)?, hex(words[2])? as usize);
        let mut bytes = vec![0; (end - start) as usize];
        memory.read_exact_at(&mut bytes, start)?;
        let original = file.get(offset..).unwrap_or_default();
        changed += bytes.iter().zip(original).filter(|(now, then)| now != then).count();
    }
    Ok(changed)
}
