//! The processes that a session is limited to: those that were named or started, and, where they
//! are followed, what these fork.

use std::collections::HashSet;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use kernel::Processes;
use kernel::session::follow_children;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::Failure;

fn no_memory(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("memory for the list of processes in the kernel: {error}"))
}

/// The most processes at a time.
const MOST: u32 = 1 << 16;

/// The processes of a session.
#[derive(Debug)]
pub(super) struct Targets {
    /// Those that were named and have not ended; each handle is readable once its process has.
    roots: Vec<(i32, OwnedFd)>,
    /// All, as programs see them.
    pub(super) processes: Arc<Processes>,
    /// Has the kernel add children.
    following: Option<bpf::Link>,
    /// Those that the session knows.
    known: HashSet<u32>,
}

/// What has changed since the last look.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) came: Vec<i32>,
    pub(super) left: Vec<i32>,
}

impl Targets {
    /// These processes, and with `follow` the children that they will have.
    ///
    /// # Errors
    /// There is no such process, or the kernel refuses to tell of children.
    pub(super) fn new(pids: &[i32], follow: bool) -> Result<Targets, Failure> {
        let handle = |&pid: &i32| match process::handle(pid) {
            Ok(handle) => Ok((pid, handle)),
            Err(error) => Err(Failure::new(format!("process {pid}: {error}"))),
        };
        let roots = pids.iter().map(handle).collect::<Result<Vec<_>, _>>()?;
        let processes = Processes::create(MOST).map_err(no_memory)?;
        let all: Vec<u32> = pids.iter().map(|pid| *pid as u32).collect();
        processes.set(&all).map_err(no_memory)?;
        let following = match follow {
            false => None,
            true => Some(follow_children(&processes).map_err(|reason| {
                Failure::new(format!("the children of processes cannot be followed by the kernel: {reason}"))
            })?),
        };
        Ok(Targets { roots, processes, following, known: all.into_iter().collect() })
    }

    /// Those that were named, in their order, and have not ended.
    pub(super) fn named(&self) -> impl Iterator<Item = i32> + '_ {
        self.roots.iter().map(|(pid, _)| *pid)
    }

    /// The processes that run.
    pub(super) fn alive(&self) -> impl Iterator<Item = i32> + '_ {
        self.known.iter().map(|pid| *pid as i32)
    }

    /// Looks which processes have come, and which have left.
    pub(super) fn look(&mut self) -> Change {
        let listed = self.processes.list().unwrap_or_default();
        let mut change = Change::default();
        for pid in listed {
            if !is_running(pid) {
                // The number may be given to another process, which is none of these.
                let _ = self.processes.remove(pid);
                if self.known.remove(&pid) {
                    change.left.push(pid as i32);
                }
            } else if self.known.insert(pid) {
                change.came.push(pid as i32);
            }
        }
        change
    }

    /// Waits; a signal ends the wait early. Returns whether all processes have ended.
    pub(super) fn wait(&mut self, time: Duration) -> bool {
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO);
        let mut wanted: Vec<PollFd<'_>> =
            self.roots.iter().map(|(_, handle)| PollFd::new(handle.as_fd(), PollFlags::POLLIN)).collect();
        let ended = match poll(&mut wanted, timeout) {
            Ok(1..) => wanted.iter().map(|it| it.any().unwrap_or(false)).collect(),
            _ => Vec::new(),
        };
        let mut ended = ended.into_iter();
        self.roots.retain(|_| !ended.next().unwrap_or(false));
        self.roots.is_empty() && !self.others_run()
    }

    /// Whether children of those that were named run.
    fn others_run(&self) -> bool {
        let listed = || self.processes.list().unwrap_or_default();
        self.following.is_some() && listed().into_iter().any(is_running)
    }
}

/// Whether a process runs: one that has ended may be there until its parent asks for its status.
fn is_running(pid: u32) -> bool {
    let Ok(text) = fs::read(format!("/proc/{pid}/stat")) else { return false };
    // The name, in parentheses, may contain anything.
    let end = text.iter().rposition(|byte| *byte == b')').map_or(0, |end| end + 1);
    !matches!(text[end..].trim_ascii_start().first(), None | Some(b'Z' | b'X'))
}

#[cfg(test)]
mod tests {
    use super::is_running;

    #[test]
    fn a_process_that_waits_for_its_parent_does_not_run() {
        assert!(is_running(std::process::id()) && !is_running(u32::MAX));
        let mut child = std::process::Command::new("true").spawn().expect("it starts");
        let handle = process::handle(child.id() as i32).expect("it is there");
        let mut wanted =
            [nix::poll::PollFd::new(std::os::fd::AsFd::as_fd(&handle), nix::poll::PollFlags::POLLIN)];
        while !matches!(nix::poll::poll(&mut wanted, nix::poll::PollTimeout::NONE), Ok(1..)) {}
        assert!(!is_running(child.id()));
        child.wait().expect("it has ended");
    }
}
