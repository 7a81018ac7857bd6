//! Runs commands, and notes when they print each line.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::other;

/// How long a command may take.
const RUN_TIME_OUT: Duration = Duration::from_secs(60);
/// How long an unseen command is given to begin its work.
const BEGINNING: Duration = Duration::from_millis(500);

/// Where commands run, and where their programs are looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings<'a> {
    pub(super) folder: &'a Path,
    pub(super) path: &'a OsStr,
}

fn shell(command: &str, place: Surroundings<'_>) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", command])
        .env("PATH", place.path)
        .current_dir(place.folder)
        .stdin(Stdio::null())
        .process_group(0);
    shell
}

/// A command that runs until this is dropped. Its whole process group is ended then.
#[derive(Debug)]
pub(super) struct Unseen(Child);

impl Unseen {
    pub(super) fn start(command: &str, place: Surroundings<'_>) -> io::Result<Unseen> {
        let child = shell(command, place).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut unseen = Unseen(child);
        std::thread::sleep(BEGINNING);
        match unseen.0.try_wait()? {
            Some(_) => Err(other(format!("`{command}` ends at once"))),
            None => Ok(unseen),
        }
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        // The group is that of the child, which has not been waited for: the number is its own.
        let _ = killpg(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// Runs a command. Returns its lines, with the time since it was started, and how long it took.
pub(super) fn run(command: &str, place: Surroundings<'_>) -> io::Result<(Vec<(Duration, String)>, Duration)> {
    let begin = Instant::now();
    let (reader, writer) = io::pipe()?;
    let mut shell = shell(command, place);
    let mut child = shell.stdout(writer.try_clone()?).stderr(writer).spawn()?;
    // It holds the ends of the pipe that are to be written to.
    drop(shell);
    let lines = std::thread::spawn(move || {
        let lines = BufReader::new(reader).split(b'\n');
        let shown = |line: Vec<u8>| (begin.elapsed(), String::from_utf8_lossy(&line).into_owned());
        lines.map_while(Result::ok).map(shown).collect::<Vec<_>>()
    });
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if begin.elapsed() > RUN_TIME_OUT => {
                let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
                child.wait()?;
                return Err(other(format!("`{command}` takes more than {} s", RUN_TIME_OUT.as_secs())));
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let took = begin.elapsed();
    let lines = lines.join().map_err(|_| other("what reads the output failed"))?;
    if !status.success() {
        let said: Vec<&str> = lines.iter().map(|(_, line)| line.as_str()).collect();
        return Err(other(format!("`{command}` ends with {status}\n{}", said.join("\n"))));
    }
    Ok((lines, took))
}
