//! `dprobes attach`, from the moment its probes are in to its end.

use super::run::{Outcome, engine, finish, outcome};
use super::{Scratch, dprobes, file_offset, memory, site_address};
use std::ffi::CString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A running `dprobes attach`.
pub(crate) struct Attached {
    child: Option<Child>,
    scratch: Scratch,
}

/// Attaches to a process.
pub(crate) fn attach(pid: u32, program: &str, options: &[&str]) -> Attached {
    let scratch = Scratch::new();
    let file = scratch.file("program.rpn", program);
    attach_with(scratch, pid, &file, options)
}

/// Attaches to a process with the program in this file.
pub(crate) fn attach_file(pid: u32, file: &Path, options: &[&str]) -> Attached {
    attach_with(Scratch::new(), pid, file, options)
}

/// Attaches to a process, with a pipe for the records, which a thread reads with the given
/// function.
pub(crate) fn attach_to_pipe<T: Send + 'static>(
    pid: u32,
    program: &str,
    options: &[&str],
    read: impl FnOnce(File) -> T + Send + 'static,
) -> (Attached, JoinHandle<T>) {
    let scratch = Scratch::new();
    let file = scratch.file("program.rpn", program);
    let pipe = scratch.path().join("records");
    make_pipe(&pipe);
    let attached = attach_with(scratch, pid, &file, options);
    // Both ends are open now, so the pipe needs no name any more.
    let reading = File::open(&pipe).expect("dprobes opens its end");
    std::fs::remove_file(&pipe).expect("it is there");
    (attached, std::thread::spawn(move || read(reading)))
}

/// Makes a pipe that has a name.
pub(crate) fn make_pipe(path: &Path) {
    let name = CString::new(path.as_os_str().as_bytes()).expect("a path");
    // SAFETY: the name ends in NUL.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

fn attach_with(scratch: Scratch, pid: u32, file: &Path, options: &[&str]) -> Attached {
    let mut command = dprobes();
    command
        .arg("attach")
        .arg("-p")
        .arg(pid.to_string())
        .arg("--log-format=klog")
        .arg("-o")
        .arg(scratch.path().join("records"));
    if !options.contains(&"--max-overhead") {
        command.arg("--max-overhead=none");
    }
    command.arg("--stats").arg(scratch.path().join("stats")).args(engine()).args(options).arg(file);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    Attached { child: Some(command.spawn().expect("dprobes starts")), scratch }
}

impl Attached {
    /// Waits until the byte at a symbol of a module in the process differs from the file's: the
    /// probe is in.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, pid: u32, module: &Path, symbol: &str) {
        let original = std::fs::read(module).expect("the module can be read");
        let offset =
            file_offset(module, symbol).unwrap_or_else(|| panic!("{} has no {symbol}", module.display()));
        let start = Instant::now();
        loop {
            if let Some(address) = site_address(pid, module, offset)
                && memory(pid, address, 1).is_ok_and(|byte| byte[0] != original[offset as usize])
            {
                return;
            }
            let child = self.child.as_mut().expect("dprobes was not stopped");
            if child.try_wait().expect("a child can be waited for").is_some() {
                let (status, _, stderr) = finish(self.child.take().expect("it is there"), "dprobes attach");
                panic!("dprobes attach ended with {status} before its probes were in:\n{stderr}");
            }
            assert!(start.elapsed() < Duration::from_secs(60), "the probe at {symbol} does not come");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The process id of dprobes, that is, of its front.
    pub(crate) fn pid(&self) -> i32 {
        self.child.as_ref().expect("dprobes was not stopped").id() as i32
    }

    /// Sends a signal to dprobes and waits for its end.
    #[track_caller]
    pub(crate) fn stop(self, signal: i32) -> Outcome {
        // SAFETY: kill takes no pointers; the child was not reaped, so the number is still its.
        unsafe { libc::kill(self.pid(), signal) };
        self.end()
    }

    /// Waits for the end of dprobes.
    #[track_caller]
    pub(crate) fn end(mut self) -> Outcome {
        let child = self.child.take().expect("dprobes was not stopped");
        let (status, stdout, stderr) = finish(child, "dprobes attach");
        outcome(&self.scratch, status, stdout, stderr)
    }

    /// The tracer: the only child of the front.
    pub(crate) fn tracer(&self) -> i32 {
        let front = self.pid();
        let children =
            std::fs::read_to_string(format!("/proc/{front}/task/{front}/children")).expect("the front lives");
        children.trim().parse().expect("one child")
    }

    /// Kills the tracer, which leaves no counts.
    #[track_caller]
    pub(crate) fn kill_tracer(self) {
        // SAFETY: kill takes no pointers; the front lives and has not reaped its child.
        assert_eq!(unsafe { libc::kill(self.tracer(), libc::SIGKILL) }, 0);
        self.death();
    }

    /// Waits for the end of dprobes, with any status.
    #[track_caller]
    pub(crate) fn gone(mut self) {
        finish(self.child.take().expect("dprobes was not stopped"), "dprobes attach");
    }

    /// Waits for the end of dprobes, which is killed and leaves no counts.
    #[track_caller]
    pub(crate) fn death(mut self) {
        let child = self.child.take().expect("dprobes was not stopped");
        let (status, ..) = finish(child, "dprobes attach");
        assert!(!status.success());
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
