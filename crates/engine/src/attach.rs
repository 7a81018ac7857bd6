//! The start of tracing: attaches to a running process or starts a command.

use std::ffi::OsString;
use std::time::Duration;

use process::{Error as ProcessError, Running, StartOptions, Status};

use crate::error::Error;
use crate::space::Space;
use crate::tracer::Tracer;
use crate::tracked::{Activity, Tracked};

/// Rounds of listing a process's threads. Each new thread was created by a listed thread that was
/// not yet traced.
const ROUNDS: usize = 1000;

impl Tracer<'_> {
    /// Starts a command with probes: those of its own modules are armed before its first
    /// instruction, those of libraries as soon as they are mapped. Returns its process id;
    /// [`Tracer::run`] lets it run.
    ///
    /// # Errors
    /// The command cannot be executed.
    pub fn start(&mut self, command: &[OsString], surroundings: &StartOptions) -> Result<i32, Error> {
        let running = process::start(command, surroundings)?;
        let pid = running.tid();
        self.session.started.insert(pid, None);
        self.threads.insert(pid, Tracked::new(pid, pid, None, Activity::Running(running)));
        Ok(pid)
    }

    /// Attaches to a running process. Nothing in it is changed before every probe has been checked.
    /// One of its threads is stopped briefly, the others are not.
    ///
    /// # Errors
    /// There is no such process, it cannot be traced, or a probe cannot be placed.
    pub fn attach(&mut self, pid: i32) -> Result<(), Error> {
        let thread = suitable(pid)?;
        let refused = self.refusals(thread)?;
        if !refused.is_empty() {
            return Err(Error::Refused(refused));
        }
        let mut space = Space::open(thread, false, self.spaces.ledger.clone())?;
        space.members = 0;
        let number = self.add_space(space);
        self.seize_process(pid, number)?;
        // Other processes, such as a vfork child, may share its memory and would hit the same
        // probes. Some were created before tracing began; some may have ended by now.
        for process in process::memory_sharers(thread).into_iter().filter(|&process| process != pid) {
            match self.seize_process(process, number) {
                Err(Error::Process(error)) if error.is_gone() => {}
                result => result?,
            }
        }
        self.ask_one(number);
        Ok(())
    }

    /// Traces all threads of a process, including those created meanwhile.
    fn seize_process(&mut self, pid: i32, number: u32) -> Result<(), Error> {
        let mut quiet = 0;
        for _ in 0..ROUNDS {
            // Two quiet rounds: a list that is read while threads end may be incomplete.
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

    /// Traces threads that were being created while tracing of their parent began, before the
    /// process is changed.
    pub(crate) fn seize_strays(&mut self, tid: i32, number: u32) {
        let Some(pid) = self.threads.get(&tid).map(|tracked| tracked.identity.pid) else { return };
        if let Err(Error::Process(error)) = self.seize_threads(pid, number) {
            self.tell_failure(Err(error));
        }
    }

    /// Traces the threads of a process that are not traced yet. Returns whether there were any.
    fn seize_threads(&mut self, pid: i32, number: u32) -> Result<bool, Error> {
        let mut found = false;
        for tid in process::threads(pid)? {
            if self.threads.contains_key(&tid) {
                continue;
            }
            let Some(running) = seize(tid, pid)? else { continue };
            found = true;
            self.threads.insert(tid, Tracked::new(tid, pid, Some(number), Activity::Running(running)));
            if let Some(space) = self.spaces.get_mut(&number) {
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

/// A thread of a process that has not ended: the main thread may end before the others.
fn living_thread(pid: i32) -> Result<(i32, Status), ProcessError> {
    let status = Status::read(pid)?;
    if !status.has_ended() {
        return Ok((pid, status));
    }
    let others = process::threads(pid)?.into_iter().filter_map(|tid| Some((tid, Status::read(tid).ok()?)));
    Ok(others.into_iter().find(|(_, other)| !other.has_ended()).unwrap_or((pid, status)))
}

/// Checks whether a process can be traced, as far as that is visible from outside. Returns a thread
/// of it.
fn suitable(pid: i32) -> Result<i32, ProcessError> {
    let (thread, status) = living_thread(pid)?;
    let refuse = |reason: &str| Err(ProcessError::Unsuitable { pid, reason: reason.to_owned() });
    if status.tgid == std::process::id() as i32 {
        return refuse("it is dprobes itself");
    }
    if status.has_ended() {
        return refuse("it has ended and only waits for its parent");
    }
    if status.kernel {
        return refuse("it is a thread of the kernel");
    }
    if status.tracer != 0 {
        return refuse(&format!(
            "process {} ({}) traces it already",
            status.tracer,
            printable::text(&process::name(status.tracer))
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
