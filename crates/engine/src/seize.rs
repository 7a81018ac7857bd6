//! Traces the threads of a process, including those that are created meanwhile.

use std::time::Duration;

use process::{Error as ProcessError, Obstacle, Running, Status};

use crate::error::Error;
use crate::messages::Messages;
use crate::reason::NotProbed;
use crate::spaces::Spaces;
use crate::threads::Threads;
use crate::tracked::{Activity, Tracked};

/// Rounds of listing a process's threads. Each new thread was created by a listed thread that was
/// not yet traced.
const ROUNDS: usize = 1000;

impl Threads {
    /// Traces all threads of a process, including those created meanwhile.
    pub(crate) fn seize_process(&mut self, spaces: &mut Spaces, pid: i32, number: u32) -> Result<(), Error> {
        let mut quiet = 0;
        for _ in 0..ROUNDS {
            // Two quiet rounds: a list that is read while threads end may be incomplete.
            quiet = if self.seize_threads(spaces, pid, number)? { 0 } else { quiet + 1 };
            if quiet == 2 {
                return Ok(());
            }
        }
        Err(NotProbed::TooManyThreads.of(pid).into())
    }

    /// Traces threads that were being created while tracing of their parent began, before the
    /// process is changed.
    pub(crate) fn seize_strays(
        &mut self,
        spaces: &mut Spaces,
        messages: &mut Messages<'_>,
        tid: i32,
        number: u32,
    ) {
        let Some(pid) = self.get(&tid).map(|tracked| tracked.identity.pid) else { return };
        if let Err(Error::Process(error)) = self.seize_threads(spaces, pid, number) {
            messages.tell_failure(Err(error));
        }
    }

    /// Traces the threads of a process that are not traced yet. Returns whether there were any.
    fn seize_threads(&mut self, spaces: &mut Spaces, pid: i32, number: u32) -> Result<bool, Error> {
        let mut found = false;
        for tid in process::threads(pid)? {
            if self.contains_key(&tid) {
                continue;
            }
            let Some(running) = seize(tid, pid)? else { continue };
            found = true;
            self.insert(tid, Tracked::new(tid, pid, Some(number), Activity::Running(running)));
            if let Some(space) = spaces.get_mut(&number) {
                space.members += 1;
            }
        }
        Ok(found)
    }
}

/// Traces a thread. `None` if it has ended, or if it is traced already since its parent is.
fn seize(tid: i32, pid: i32) -> Result<Option<Running>, ProcessError> {
    /// Attempts, since the kernel's error for a thread that is just ending is the same as for one
    /// that must not be traced.
    const TRIES: u32 = 20;
    // Seizing an ended thread would block while another thread executes a new program, which in
    // turn waits for the threads that are traced already.
    if Status::read(tid).is_ok_and(|status| status.has_ended()) {
        return Ok(None);
    }
    for last in (0..TRIES).map(|tried| tried + 1 == TRIES) {
        match Running::seize(tid) {
            Ok(running) => return Ok(Some(running)),
            Err(error) if error.is_gone() => return Ok(None),
            Err(ProcessError::Refused { cause, .. }) => match Status::read(tid) {
                Ok(status) if !status.has_ended() && status.tracer != std::process::id() as i32 => {
                    if last {
                        return Err(refusal(pid, &cause));
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => return Ok(None),
            },
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Why the kernel refuses to let a process be traced.
fn refusal(pid: i32, cause: &std::io::Error) -> ProcessError {
    match cause.raw_os_error() {
        Some(libc::EPERM) => NotProbed::Forbidden(Obstacle::to(pid)).of(pid),
        _ => NotProbed::Failed(cause.into()).of(pid),
    }
}
