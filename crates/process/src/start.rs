//! Starts a program under the tracer.

use std::ffi::{CString, OsString};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::{Error, Running, files};

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
    let name = || command.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let fail = |cause| Error::Start { command: name(), cause };
    let arguments = command
        .iter()
        .map(|argument| CString::new(argument.as_bytes()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| fail(io::Error::new(io::ErrorKind::InvalidInput, "an argument contains a NUL byte")))?;
    if arguments.is_empty() {
        return Err(fail(io::Error::new(io::ErrorKind::InvalidInput, "no command")));
    }
    let mut pointers: Vec<*const libc::c_char> = arguments.iter().map(|argument| argument.as_ptr()).collect();
    pointers.push(std::ptr::null());

    let (open_files, keeps) = (files::inherited(), files::keeps_file_size_signal());
    // A pipe's ends close on exec.
    let (go_read, mut go_write) = io::pipe().map_err(fail)?;
    let (mut error_read, error_write) = io::pipe().map_err(fail)?;
    // SAFETY: between fork and exec the child makes only async-signal-safe calls on memory prepared
    // before.
    let child = unsafe { libc::fork() };
    if child == -1 {
        return Err(fail(io::Error::last_os_error()));
    }
    if child == 0 {
        // SAFETY: as above; every pointer outlives the calls, and the child ends in exec or _exit.
        unsafe {
            libc::close(go_write.as_raw_fd());
            let mut byte = 0u8;
            // The parent writes a byte when the child is traced; without it the child must not run.
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
    let reap = || {
        // The child was started here and has not been waited for.
        let child = Pid::from_raw(child);
        let _ = kill(child, Signal::SIGKILL);
        let _ = waitpid(child, Some(WaitPidFlag::__WALL));
    };
    let running = match Running::seize(child) {
        Ok(running) => running,
        Err(error) => {
            reap();
            return Err(error);
        }
    };
    if let Err(cause) = go_write.write(&[1]) {
        reap();
        return Err(fail(cause));
    }
    // A successful exec (or the child's end) closes the write end: then nothing is read.
    let mut cause = [0; size_of::<i32>()];
    match error_read.read_exact(&mut cause) {
        Ok(()) => {
            reap_failed(child);
            Err(fail(io::Error::from_raw_os_error(i32::from_ne_bytes(cause))))
        }
        Err(_) => Ok(running),
    }
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
                let _ = crate::ptrace::resume(child, 0);
            }
            _ => return,
        }
    }
}
