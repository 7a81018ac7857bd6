//! A `dprobes attach` by the kernel engine, from the moment its probes are in to its end.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::run::{COMMAND_TIMEOUT, Outcome, outcome};
use super::{Scratch, dprobes};

/// A running session.
pub(crate) struct Session {
    child: Option<Child>,
    scratch: Scratch,
    said: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

/// Starts a session with this program.
pub(crate) fn start(program: &str, options: &[&str]) -> Session {
    let scratch = Scratch::new();
    let file = scratch.file("program.rpn", program);
    with(scratch, file.as_os_str(), options)
}

/// Starts a session with the program in this file, or with the point of `--at` in `options`.
pub(crate) fn start_file(file: &Path, options: &[&str]) -> Session {
    with(Scratch::new(), file.as_os_str(), options)
}

/// Starts `dprobes watch` with these options; its lines are the records.
pub(crate) fn watch(options: &[&str]) -> Session {
    let scratch = Scratch::new();
    let lines = std::fs::File::create(scratch.path().join("records")).expect("there is room");
    let mut command = dprobes();
    command.arg("watch").arg("--stats").arg(scratch.path().join("stats")).args(options).stdout(lines);
    begin(scratch, command)
}

/// Starts a session that sees the kernel's tracepoints: with tracefs, if it is not mounted here,
/// mounted for the session alone.
pub(crate) fn start_traced(program: &str, options: &[&str]) -> Session {
    let scratch = Scratch::new();
    let file = scratch.file("program.rpn", program);
    let mut command = dprobes();
    mount_tracefs(&mut command);
    spawn(command, scratch, file.as_os_str(), options)
}

/// Lets a command begin with a mounted tracefs.
pub(crate) fn mount_tracefs(command: &mut Command) {
    if Path::new("/sys/kernel/tracing/events").exists() {
        return;
    }
    let mount = || {
        let (tracefs, place) = (c"tracefs".as_ptr(), c"/sys/kernel/tracing".as_ptr());
        let private = libc::MS_REC | libc::MS_PRIVATE;
        // SAFETY: the calls take texts that end by zero, or none, and are safe after a fork.
        let failed = unsafe {
            libc::unshare(libc::CLONE_NEWNS) != 0
                || libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), private, std::ptr::null())
                    != 0
                || libc::mount(tracefs, place, tracefs, 0, std::ptr::null()) != 0
        };
        if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: it makes system calls only.
    unsafe { command.pre_exec(mount) };
}

fn with(scratch: Scratch, file: &OsStr, options: &[&str]) -> Session {
    spawn(dprobes(), scratch, file, options)
}

fn spawn(mut command: Command, scratch: Scratch, file: &OsStr, options: &[&str]) -> Session {
    command.args(["attach", "--log-format=klog"]);
    // Without a handler, `--at` records only where records are to go.
    if !file.is_empty() || options.contains(&"--do") {
        command.arg("-o").arg(scratch.path().join("records"));
    }
    command.arg("--stats").arg(scratch.path().join("stats")).args(options);
    if !file.is_empty() {
        command.arg(file);
    }
    command.stdout(Stdio::null());
    begin(scratch, command)
}

fn begin(scratch: Scratch, mut command: Command) -> Session {
    command.stdin(Stdio::null()).stderr(Stdio::piped()).process_group(0).current_dir(scratch.path());
    let mut child = command.spawn().expect("dprobes starts");
    let said = Arc::new(Mutex::new(String::new()));
    let (lines, into) =
        (BufReader::new(child.stderr.take().expect("it is a pipe")).lines(), Arc::clone(&said));
    let reader = std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let mut said = into.lock().expect("nobody panics with it");
            said.push_str(&line);
            said.push('\n');
        }
    });
    Session { child: Some(child), scratch, said, reader: Some(reader) }
}

impl Session {
    /// What it has said so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().expect("nobody panics with it").clone()
    }

    /// Waits until it has said something.
    #[track_caller]
    pub(crate) fn until(&mut self, text: &str) -> &mut Session {
        let start = Instant::now();
        while !self.said().contains(text) {
            let child = self.child.as_mut().expect("it was not stopped");
            let has_ended = child.try_wait().expect("a child can be waited for").is_some();
            assert!(!has_ended || self.said().contains(text), "it has ended:\n{}", self.said());
            assert!(start.elapsed() < COMMAND_TIMEOUT, "{text:?} does not come:\n{}", self.said());
            std::thread::sleep(Duration::from_millis(2));
        }
        self
    }

    /// Waits until its probes are in.
    #[track_caller]
    pub(crate) fn armed(&mut self) -> &mut Session {
        self.until(" armed in ")
    }

    /// The directory that it runs in.
    pub(crate) fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// The process id.
    pub(crate) fn pid(&self) -> i32 {
        self.child.as_ref().expect("it was not stopped").id() as i32
    }

    /// Ends it, and returns what has come of it.
    #[track_caller]
    pub(crate) fn stop(self) -> Outcome {
        // SAFETY: kill takes no pointers; the child was not reaped, so the number is still its.
        unsafe { libc::kill(self.pid(), libc::SIGINT) };
        self.end()
    }

    /// Ends it unless it has ended, as it does when all its probes are over.
    #[track_caller]
    pub(crate) fn end_or_stop(mut self) -> Outcome {
        let child = self.child.as_mut().expect("it was not stopped");
        match child.try_wait().expect("a child can be waited for") {
            Some(_) => self.end(),
            None => self.stop(),
        }
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn end(mut self) -> Outcome {
        let status = self.wait();
        let said = self.said();
        outcome(&self.scratch, status, String::new(), said)
    }

    /// Waits for its end, which leaves no counts; returns its status and what it has said.
    #[track_caller]
    pub(crate) fn refused(mut self) -> (Option<i32>, String) {
        (self.wait().code(), self.said())
    }

    #[track_caller]
    fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        let child = self.child.as_mut().expect("it was not stopped");
        let status = loop {
            if let Some(status) = child.try_wait().expect("a child can be waited for") {
                break status;
            }
            assert!(start.elapsed() < COMMAND_TIMEOUT, "it does not end");
            std::thread::sleep(Duration::from_millis(2));
        };
        self.child = None;
        if let Some(reader) = self.reader.take() {
            reader.join().expect("it does not panic");
        }
        status
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
