//! A command that is started with probes: its beginning, its end, and the exit status that dprobes
//! makes of it.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use engine::{Error, Report, StartOptions, Tracer};

use crate::Failure;
use crate::control::{self, Watch};
use crate::front::{self, Front};

/// Exit status of `run` when dprobes itself fails, as for `env` and `timeout`.
pub(crate) const FAILED: u8 = 125;
/// Exit status of `run` when the command cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// Exit status of `run` when the command is not found.
const NOT_FOUND: u8 = 127;

/// A command that was started with probes, when they are out.
pub(crate) struct RunCommand {
    pub(crate) pid: i32,
    pub(crate) report: Report,
    /// Its wait status, if the tracer has seen its end.
    pub(crate) ended: Option<i32>,
}

/// Starts a command under a tracer that has its probes, and traces it until one of them ends.
///
/// # Errors
/// It does not begin; then nothing of it is left.
pub(crate) fn run_command(
    tracer: &mut Tracer<'_>,
    watch: &Watch,
    command: &[OsString],
    options: &StartOptions,
) -> Result<RunCommand, Failure> {
    let pid = tracer.start(command, options).map_err(|error| not_started(error, command))?;
    if let Err(error) = tracer.run(&watch.control) {
        // The command has not begun, and must not run without its probes.
        kill(pid, libc::SIGKILL);
        tracer.finish(&watch.control);
        reap(pid);
        return Err(Failure::new(error).with_status(FAILED));
    }
    let report = tracer.finish(&watch.control);
    Ok(RunCommand { pid, report, ended: tracer.status(pid) })
}

/// Ends this process as a command ends that is no longer traced.
pub(crate) fn end_as_command(pid: i32, ended: Option<i32>, front: &Front) -> Result<ExitCode, Failure> {
    let status = match ended {
        Some(status) => status,
        // The front was killed: the command lives on, without probes.
        None if front.is_gone() => return Ok(ExitCode::FAILURE),
        None => {
            if let Some((signal, true)) = control::signal() {
                kill(pid, signal);
            }
            reap(pid)
        }
    };
    front::end_as(status)
}

/// The failure if a command could not be started.
pub(crate) fn not_started(error: Error, command: &[OsString]) -> Failure {
    match &error {
        Error::Process(process::Error::Start { cause, .. })
            if cause.kind() == std::io::ErrorKind::NotFound =>
        {
            not_found(&error, command)
        }
        Error::Process(process::Error::Start { .. }) => Failure::new(error).with_status(NOT_EXECUTABLE),
        _ => Failure::new(error).with_status(FAILED),
    }
}

/// The failure if a command is not found: a shell takes a file in this directory only with `./`.
pub(crate) fn not_found(error: &dyn std::fmt::Display, command: &[OsString]) -> Failure {
    let here = command.first().map(Path::new).filter(|word| word.components().count() == 1 && word.is_file());
    let hint = here.map(|word| format!("; did you mean `./{}`?", printable::path(word))).unwrap_or_default();
    Failure::new(format!("{error}{hint}")).with_status(NOT_FOUND)
}

/// Sends a signal to the started command.
pub(crate) fn kill(pid: i32, signal: i32) {
    // SAFETY: a plain system call; the process is this one's child and has not been waited for.
    unsafe { libc::kill(pid, signal) };
}

/// Ends the started command, which is no longer traced: by the signal that has ended tracing, or by
/// SIGINT, and by SIGTERM if it heeds neither.
pub(crate) fn end_command(pid: i32) {
    /// How long the command may take to end before it is asked again.
    const TIME_TO_END: Duration = Duration::from_secs(2);
    kill(pid, control::signal().map_or(libc::SIGINT, |(signal, _)| signal));
    let begin = Instant::now();
    while begin.elapsed() < TIME_TO_END {
        let mut status = 0;
        // SAFETY: `status` is valid for the call.
        if unsafe { libc::waitpid(pid, &mut status, libc::__WALL | libc::WNOHANG) } != 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(pid, libc::SIGTERM);
    reap(pid);
}

/// The wait status of the started command, which is not traced, if it has ended.
pub(crate) fn ended(pid: i32) -> Option<i32> {
    let mut status = 0;
    // SAFETY: `status` is valid for the call.
    let ended = unsafe { libc::waitpid(pid, &mut status, libc::__WALL | libc::WNOHANG) };
    (ended == pid).then_some(status)
}

/// Waits for the started command, which is no longer traced, and returns its wait status. A second
/// signal that asks for the end stops the wait.
pub(crate) fn reap(pid: i32) -> i32 {
    let before = control::signals();
    loop {
        let mut status = 0;
        // SAFETY: `status` is valid for the call.
        let ended = unsafe { libc::waitpid(pid, &mut status, libc::__WALL) };
        if ended == pid && (libc::WIFEXITED(status) || libc::WIFSIGNALED(status)) {
            return status;
        }
        let interrupted = std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted;
        if ended == -1 && (!interrupted || (before > 0 && control::signals() > before)) {
            return libc::W_EXITCODE(i32::from(FAILED), 0);
        }
    }
}
