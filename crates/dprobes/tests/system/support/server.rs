//! A program under test that takes commands on its standard input, line by line.

use super::run::COMMAND_TIMEOUT;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// The running program. It is killed when dropped.
pub(crate) struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Server {
    /// Starts a program.
    pub(crate) fn start<I: IntoIterator<Item: AsRef<OsStr>>>(program: &std::path::Path, words: I) -> Self {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = testing::spawn(&mut command).expect("the program under test starts");
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("standard output is a pipe");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Server { child, stdin, lines }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line.
    #[track_caller]
    pub(crate) fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("standard input is open");
        writeln!(stdin, "{line}").expect("the program under test reads its input");
    }

    /// The next line of its output.
    #[track_caller]
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(COMMAND_TIMEOUT).expect("the program under test answers")
    }

    /// Sends a line and returns the answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.line()
    }

    /// Whether it still runs.
    pub(crate) fn lives(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_none()
    }

    /// Closes its input and waits for its end; returns the remaining lines.
    #[track_caller]
    pub(crate) fn end(mut self) -> (ExitStatus, Vec<String>) {
        drop(self.stdin.take());
        let rest: Vec<String> = self.lines.iter().collect();
        (self.child.wait().expect("a child can be waited for"), rest)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
