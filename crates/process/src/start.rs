//! Starts a program under the tracer.

use std::ffi::{CString, OsString};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::{Error, Running, files, ptrace};

/// The surroundings of a started command besides the caller's standard streams, environment and
/// directory.
#[derive(Clone, Copy, Debug)]
pub struct StartOptions {
    /// Its signal mask.
    pub signal_mask: SigSet,
    /// The process group it joins, or `None` for the caller's.
    pub group: Option<i32>,
}

impl Default for StartOptions {
    /// No signals are blocked; the caller's group.
    fn default() -> StartOptions {
        StartOptions { signal_mask: SigSet::empty(), group: None }
    }
}

/// Starts a command as a traced child, stopped before its first instruction: the next event of the
/// returned thread is [`crate::Stop::Exec`]. The child gets the default action for SIGPIPE (which
/// the Rust runtime ignores in the caller) and SIGTTOU (which a background tracer ignores), the
/// caller's former action for SIGXFSZ (from before [`crate::ignore_file_size_limit`]) and its
/// former limit of open files (from before [`crate::allow_many_files`]).
///
/// # Errors
/// The command cannot be executed ([`Error::Start`]), or the kernel refuses to trace it.
pub fn start(command: &[OsString], surroundings: &StartOptions) -> Result<Running, Error> {
    let held = Held::start(command, surroundings)?;
    let running = Running::seize(held.pid)?;
    held.release()?;
    Ok(running)
}

/// A child that will execute a command, and waits until it may. It ends if this is dropped.
#[derive(Debug)]
pub struct Held {
    pid: i32,
    command: String,
    go: io::PipeWriter,
    error: io::PipeReader,
    may_go: bool,
}

impl Held {
    /// Starts a child with the surroundings that [`start`] gives to a command, and does not trace
    /// it.
    ///
    /// # Errors
    /// No child can be started.
    pub fn start(command: &[OsString], surroundings: &StartOptions) -> Result<Held, Error> {
        let name = command.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let (pid, go, error) =
            fork(command, surroundings).map_err(|cause| Error::Start { command: name.clone(), cause })?;
        Ok(Held { pid, command: name, go, error, may_go: false })
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Has it execute the command, and waits until it does.
    ///
    /// # Errors
    /// The command cannot be executed. The child has ended.
    pub fn release(mut self) -> Result<(), Error> {
        self.let_go()?;
        match self.cause() {
            Some(cause) => {
                reap_failed(self.pid);
                Err(self.failed(cause))
            }
            None => Ok(()),
        }
    }

    /// Has it execute the command, and stops it before the first instruction of that. Its address
    /// space is the command's then.
    ///
    /// # Errors
    /// The command cannot be executed, or the kernel refuses to trace it. The child has ended.
    pub fn execute(mut self) -> Result<Executed, Error> {
        ptrace::seize(self.pid, libc::PTRACE_O_TRACEEXEC)?;
        self.let_go()?;
        // The pipe is read when it has ended: a signal may stop it before it executes anything.
        loop {
            let mut status = 0;
            // SAFETY: as in `reap_failed`.
            let pid = unsafe { libc::waitpid(self.pid, &mut status, libc::__WALL) };
            if pid == -1 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
                continue;
            }
            if pid == -1 || !libc::WIFSTOPPED(status) {
                let ended = || io::Error::other("it has ended before it executed anything");
                let cause = self.cause().unwrap_or_else(ended);
                return Err(self.failed(cause));
            }
            let _ = match (status >> 16, libc::WSTOPSIG(status)) {
                (libc::PTRACE_EVENT_EXEC, _) => return Ok(Executed { pid: self.pid, goes_on: false }),
                (libc::PTRACE_EVENT_STOP, libc::SIGTRAP) => ptrace::resume(self.pid, 0),
                (libc::PTRACE_EVENT_STOP, _) => ptrace::listen(self.pid),
                (_, signal) => ptrace::resume(self.pid, signal),
            };
        }
    }

    fn let_go(&mut self) -> Result<(), Error> {
        self.go.write(&[1]).map_err(|cause| self.failed(cause))?;
        self.may_go = true;
        Ok(())
    }

    /// Why it could not execute the command; `None` once it has, or has ended.
    fn cause(&mut self) -> Option<io::Error> {
        // A successful exec (or the child's end) closes the write end: then nothing is read.
        let mut cause = [0; size_of::<i32>()];
        self.error.read_exact(&mut cause).ok()?;
        Some(io::Error::from_raw_os_error(i32::from_ne_bytes(cause)))
    }

    fn failed(&self, cause: io::Error) -> Error {
        Error::Start { command: self.command.clone(), cause }
    }
}

/// A child that has executed a command, and is stopped before its first instruction. It ends if
/// this is dropped.
#[derive(Debug)]
pub struct Executed {
    pid: i32,
    goes_on: bool,
}

impl Executed {
    /// Lets it go on, no longer traced.
    pub fn release(mut self) {
        self.goes_on = true;
        // It may have been killed.
        let _ = ptrace::detach(self.pid, 0);
    }
}

impl Drop for Executed {
    fn drop(&mut self) {
        if !self.goes_on {
            end(self.pid);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.may_go {
            end(self.pid);
        }
    }
}

/// Ends a child that was started here and has not been waited for.
fn end(child: i32) {
    let child = Pid::from_raw(child);
    let _ = kill(child, Signal::SIGKILL);
    let _ = waitpid(child, Some(WaitPidFlag::__WALL));
}

/// Forks the child. Gives its number, the pipe whose byte lets it go, and the one that tells why it
/// could not execute the command.
fn fork(
    command: &[OsString],
    surroundings: &StartOptions,
) -> io::Result<(i32, io::PipeWriter, io::PipeReader)> {
    let arguments = command
        .iter()
        .map(|argument| CString::new(argument.as_bytes()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "an argument contains a NUL byte"))?;
    if arguments.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no command"));
    }
    let mut pointers: Vec<*const libc::c_char> = arguments.iter().map(|argument| argument.as_ptr()).collect();
    pointers.push(std::ptr::null());

    let (open_files, keeps) = (files::inherited(), files::keeps_file_size_signal());
    // A pipe's ends close on exec.
    let (go_read, go_write) = io::pipe()?;
    let (error_read, error_write) = io::pipe()?;
    // SAFETY: between fork and exec the child makes only async-signal-safe calls on memory prepared
    // before.
    let child = unsafe { libc::fork() };
    if child == -1 {
        return Err(io::Error::last_os_error());
    }
    if child == 0 {
        // SAFETY: as above; every pointer outlives the calls, and the child ends in exec or _exit.
        unsafe {
            libc::close(go_write.as_raw_fd());
            let mut byte = 0u8;
            // The parent writes a byte when the child may go; without it the child must not run.
            let count = libc::read(go_read.as_raw_fd(), std::ptr::from_mut(&mut byte).cast(), 1);
            if count != 1 {
                libc::_exit(127);
            }
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            libc::signal(libc::SIGTTOU, libc::SIG_DFL);
            if !keeps {
                libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
            }
            if let Some(group) = surroundings.group {
                libc::setpgid(0, group);
            }
            if let Some((soft, hard)) = open_files {
                let _ = setrlimit(Resource::RLIMIT_NOFILE, soft, hard);
            }
            libc::sigprocmask(libc::SIG_SETMASK, surroundings.signal_mask.as_ref(), std::ptr::null_mut());
            libc::execvp(pointers[0], pointers.as_ptr());
            let cause = *libc::__errno_location();
            libc::write(error_write.as_raw_fd(), std::ptr::from_ref(&cause).cast(), size_of_val(&cause));
            libc::_exit(127);
        }
    }
    drop((go_read, error_write));
    Ok((child, go_write, error_read))
}

/// Waits for the end of a child whose exec has failed.
fn reap_failed(child: libc::pid_t) {
    loop {
        let mut status = 0;
        // SAFETY: `status` is valid for the call. (nix reports a stop by a real-time signal as an
        // error.)
        let pid = unsafe { libc::waitpid(child, &mut status, libc::__WALL) };
        match pid {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return,
            _ if libc::WIFSTOPPED(status) => {
                // Its exit stop, or a signal: neither matters any more.
                let _ = ptrace::resume(child, 0);
            }
            _ => return,
        }
    }
}
