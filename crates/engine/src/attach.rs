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
        let thread = suitable(pid)?;
        let refused = self.refusals(thread)?;
        if !refused.is_empty() {
            return Err(Error::Refused(refused));
        }
        let mut space = Space::open(thread, false, self.ledger.clone())?;
        space.members = 0;
        let number = self.add_space(space);
        self.seize_process(pid, number)?;
        // A vfork child, say, runs on the same memory and would meet the same probes. The process may have made one
        // before it was traced, and one that was may have ended by now.
        for process in process::memory_sharers(thread).into_iter().filter(|&process| process != pid) {
            match self.seize_process(process, number) {
                Err(Error::Process(error)) if error.is_gone() => {}
                result => result?,
            }
        }
        self.ask_one(number);
        Ok(())
    }

    /// Traces all threads of a process, also those that are born meanwhile.
    fn seize_process(&mut self, pid: i32, number: u32) -> Result<(), Error> {
        let mut quiet = 0;
        for _ in 0..ROUNDS {
            // Twice: a list that is read while threads end may lack others.
            quiet = if self.seize_threads(pid, number)? { 0 } else { quiet + 1 };
            if quiet == 2 {
                return Ok(());
            }
        }
        Err(ProcessError::Unsuitable {
            pid,
            reason: "its threads are born faster than they can be traced".to_owned(),
        }
        .into())
    }

    /// Traces the threads of a process that are not traced yet. Says whether there were any.
    pub(crate) fn seize_threads(&mut self, pid: i32, number: u32) -> Result<bool, Error> {
        let mut found = false;
        for tid in process::threads(pid)? {
            if self.threads.contains_key(&tid) {
                continue;
            }
            let running = match Running::seize(tid) {
                Ok(running) => running,
                Err(error) if error.is_gone() => continue,
                Err(ProcessError::Refused { cause, .. }) => {
                    // The kernel says the same of one that has ended, and of one that its parent, traced already, has
                    // brought under the tracer.
                    match Status::read(tid) {
                        Ok(status) if !has_ended(&status) && !process::is_traced_here(tid) => {
                            return Err(refusal(pid, &cause).into());
                        }
                        _ => continue,
                    }
                }
                Err(error) => return Err(error.into()),
            };
            found = true;
            self.threads.insert(tid, Tracked::new(tid, pid, Some(number), Activity::Running(running)));
            if let Some(space) = self.spaces.get_mut(&number) {
                space.members += 1;
            }
        }
        Ok(found)
    }
}

/// Whether a thread has ended and only waits for its parent, or for the other threads of its process.
fn has_ended(status: &Status) -> bool {
    matches!(status.state, 'Z' | 'X')
}

/// The first thread of a process that runs: its own first one may have ended before the others.
fn living_thread(pid: i32) -> Result<(i32, Status), ProcessError> {
    let status = Status::read(pid)?;
    if !has_ended(&status) {
        return Ok((pid, status));
    }
    let others = process::threads(pid)?.into_iter().filter_map(|tid| Some((tid, Status::read(tid).ok()?)));
    Ok(others.into_iter().find(|(_, other)| !has_ended(other)).unwrap_or((pid, status)))
}

/// Whether a process can be traced at all, as far as can be seen from outside: a thread of it.
fn suitable(pid: i32) -> Result<i32, ProcessError> {
    let (thread, status) = living_thread(pid)?;
    let refuse = |reason: &str| Err(ProcessError::Unsuitable { pid, reason: reason.to_owned() });
    if status.tgid == std::process::id() as i32 {
        return refuse("it is dprobes itself");
    }
    if has_ended(&status) {
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
    Ok(thread)
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
