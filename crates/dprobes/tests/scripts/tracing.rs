//! A running `dprobes trace`, to which signals are sent.

use super::support::{dprobes, finish, is_traced};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The command, in a process group of its own. It is killed when dropped.
pub(crate) struct Tracing {
    child: Option<Child>,
    said: Receiver<String>,
}

/// How long something may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

impl Tracing {
    /// Starts `dprobes trace` with these arguments.
    pub(crate) fn start(words: &[&str]) -> Tracing {
        let mut command = dprobes();
        command.arg("trace").args(words);
        Tracing::of(command)
    }

    /// Starts a command.
    pub(crate) fn of(mut command: Command) -> Tracing {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().expect("dprobes starts");
        let stderr = child.stderr.take().expect("it is a pipe");
        let (sender, said) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Tracing { child: Some(child), said }
    }

    /// Waits for a line of standard error with this text.
    #[track_caller]
    pub(crate) fn says(&self, text: &str) -> String {
        loop {
            let line = self.said.recv_timeout(LIMIT);
            let line = line.unwrap_or_else(|error| panic!("dprobes never said {text:?}: {error}"));
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Whether it has closed its standard error, as at its end.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.said.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected))
    }

    /// The number of the front.
    pub(crate) fn pid(&self) -> i32 {
        self.child.as_ref().expect("it was not waited for").id() as i32
    }

    /// The tracer: the only child of the front.
    #[track_caller]
    pub(crate) fn tracer(&self) -> i32 {
        let front = self.pid();
        let children = std::fs::read_to_string(format!("/proc/{front}/task/{front}/children"));
        children.expect("the front lives").trim().parse().expect("one child")
    }

    /// Closes the reading end of standard output.
    pub(crate) fn close_output(&mut self) {
        drop(self.child.as_mut().and_then(|child| child.stdout.take()));
    }

    /// Waits for its end; returns the status and what it wrote.
    #[track_caller]
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let child = self.child.take().expect("it was not waited for");
        let (status, stdout, _) = finish(child, "dprobes trace");
        (status, stdout)
    }

    /// Sends a signal to the front and waits for its end.
    #[track_caller]
    pub(crate) fn stop(self, signal: i32) -> (ExitStatus, String) {
        send(self.pid(), signal);
        self.end()
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends a signal to a process that the test has started and not reaped.
#[track_caller]
pub(crate) fn send(pid: i32, signal: i32) {
    // SAFETY: kill takes no pointers; the process was not reaped, so the number is still its.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// Waits until nobody traces a process.
#[track_caller]
pub(crate) fn becomes_free(pid: u32) {
    for _ in 0..2000 {
        if !is_traced(pid) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it is still traced");
}
