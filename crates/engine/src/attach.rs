//! The beginning of a session: a process is found or started.

use std::ffi::OsString;

use process::{Error as ProcessError, Running, Status, Surroundings};

use crate::error::Error;
use crate::space::Space;
use crate::tracer::Tracer;
use crate::tracked::{Activity, Tracked};

/// Rounds of listing a process's threads; each new thread is born of a listed one that was not yet traced.
const ROUNDS: usize = 1000;

impl Tracer<'_> {
    /// Starts a command with the probes in: those of its own modules before its first instruction, those of
    /// libraries as soon as they are mapped. Gives its process id; [`Tracer::run`] lets it go.
    ///
    /// # Errors
    /// The command cannot be executed.
    pub fn start(&mut self, command: &[OsString], surroundings: &Surroundings) -> Result<i32, Error> {
        let running = process::start(command, surroundings)?;
        let pid = running.tid();
        self.started.insert(pid);
        self.threads.insert(pid, Tracked::new(pid, pid, None, Activity::Running(running)));
        Ok(pid)
    }

    /// Begins to follow a running process. Nothing of it is changed before every probe has been checked; one of
    /// its threads is stopped for a moment, the others are not.
    ///
    /// # Errors
    /// There is no such process, it cannot be traced, or a probe cannot be placed.
    pub fn attach(&mut self, pid: i32) -> Result<(), Error> {
        let status = suitable(pid)?;
        let refused = self.refusals(pid)?;
        if !refused.is_empty() {
            return Err(Error::Refused(refused));
        }
        let mut space = Space::open(pid, false, self.ledger.clone())?;
        space.members = 0;
        let number = self.add_space(space);
        // A vfork child, say, runs on the same memory and would meet the same probes.
        for process in std::iter::once(status.tgid).chain(process::memory_sharers(pid)) {
            self.seize_all(process, number)?;
        }
        self.ask_one(number);
        Ok(())
    }

    /// Traces all threads of a process, also those that are born meanwhile.
    fn seize_all(&mut self, pid: i32, number: u32) -> Result<(), Error> {
        for _ in 0..ROUNDS {
            let mut found = false;
            for tid in process::threads(pid)? {
                if self.threads.contains_key(&tid) {
                    continue;
                }
                let running = match Running::seize(tid) {
                    Ok(running) => running,
                    // It has ended, or its parent, traced already, has brought it under the tracer.
                    Err(error) if error.is_gone() || process::is_traced_here(tid) => continue,
                    Err(ProcessError::Refused { cause, .. }) => return Err(refusal(pid, &cause).into()),
                    Err(error) => return Err(error.into()),
                };
                found = true;
                self.threads.insert(tid, Tracked::new(tid, pid, Some(number), Activity::Running(running)));
                if let Some(space) = self.spaces.get_mut(&number) {
                    space.members += 1;
                }
            }
            if !found {
                return Ok(());
            }
        }
        Err(ProcessError::Unsuitable {
            pid,
            reason: "its threads are born faster than they can be traced".to_owned(),
        }
        .into())
    }
}

/// Whether a process can be traced at all, as far as can be seen from outside.
fn suitable(pid: i32) -> Result<Status, ProcessError> {
    let status = Status::read(pid)?;
    let refuse = |reason: &str| Err(ProcessError::Unsuitable { pid, reason: reason.to_owned() });
    if status.tgid == std::process::id() as i32 {
        return refuse("it is dprobes itself");
    }
    if status.state == 'Z' || status.state == 'X' {
        return refuse("it has ended and only waits for its parent");
    }
    if status.kernel {
        return refuse("it is a thread of the kernel");
    }
    if status.tracer != 0 {
        return refuse(&format!(
            "process {} ({}) traces it already",
            status.tracer,
            process::name(status.tracer)
        ));
    }
    if status.tgid != pid {
        return refuse(&format!("it is a thread of process {}; give that", status.tgid));
    }
    Ok(status)
}

/// Why the kernel refuses to let a process be traced.
fn refusal(pid: i32, cause: &std::io::Error) -> ProcessError {
    let reason = if cause.raw_os_error() == Some(libc::EPERM) {
        "the kernel forbids it: the process belongs to another user, has more privileges than its user, or \
         kernel.yama.ptrace_scope allows tracing of children only; try as root"
            .to_owned()
    } else {
        cause.to_string()
    };
    ProcessError::Unsuitable { pid, reason }
}
