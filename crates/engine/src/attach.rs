//! The start of tracing: attaches to a running process or starts a command.

use std::ffi::OsString;

use process::{Error as ProcessError, StartOptions, Status};

use crate::dump::KernelHit;
use crate::error::Error;
use crate::observer::Note;
use crate::reason::NotProbed;
use crate::space::Space;
use crate::tracer::Tracer;
use crate::tracked::{Activity, Tracked};

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
        self.followed.threads.insert(pid, Tracked::new(pid, pid, None, Activity::Running(running)));
        Ok(pid)
    }

    /// Attaches to a running process. Nothing in it is changed before every probe has been checked.
    /// One of its threads is stopped briefly, the others are not.
    ///
    /// # Errors
    /// There is no such process, it cannot be traced, or a probe cannot be placed.
    pub fn attach(&mut self, pid: i32) -> Result<(), Error> {
        let thread = suitable(pid)?;
        let refused = self.placer().refusals(thread)?;
        if !refused.is_empty() {
            return Err(Error::Refused(refused));
        }
        let mut space = Space::open(thread, false, self.followed.spaces.ledger.clone())?;
        space.members = 0;
        let number = self.add_space(space);
        self.followed.threads.seize_process(&mut self.followed.spaces, pid, number)?;
        // Other processes, such as a vfork child, may share its memory and would hit the same
        // probes. Some were created before tracing began; some may have ended by now.
        for process in process::memory_sharers(thread).into_iter().filter(|&process| process != pid) {
            match self.followed.threads.seize_process(&mut self.followed.spaces, process, number) {
                Err(Error::Process(error)) if error.is_gone() => {}
                result => result?,
            }
        }
        self.followed.ask_one(&mut self.messages, number);
        Ok(())
    }

    /// Attaches to the process of a thread that has hit a probe of the kernel engine, and dumps it;
    /// what has come of it is told ([`Note::Exit`]). `release` has the thread go on, and returns
    /// whether it has waited until then. [`Tracer::finish`] lets the process go, and waits until
    /// the dump is written.
    pub fn dump_kernel_hit(&mut self, hit: &KernelHit, release: &mut dyn FnMut() -> bool) {
        match self.attach(hit.process) {
            Ok(()) => self.dumper().dump_kernel_hit(hit, release),
            Err(error) => {
                let KernelHit { head, process, .. } = hit;
                let text = format!("{head} core dump of process {process} failed: {error}");
                self.messages.observer.note(&Note::Exit(text));
            }
        }
    }
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
    let refuse = |reason: NotProbed| Err(reason.of(pid));
    if status.tgid == std::process::id() as i32 {
        return refuse(NotProbed::Itself);
    }
    if status.has_ended() {
        return refuse(NotProbed::Ended);
    }
    if status.kernel {
        return refuse(NotProbed::Kernel);
    }
    if status.tracer != 0 {
        return refuse(NotProbed::Traced { pid: status.tracer, name: process::name(status.tracer) });
    }
    if status.tgid != pid {
        return refuse(NotProbed::Thread(status.tgid));
    }
    Ok(thread)
}
