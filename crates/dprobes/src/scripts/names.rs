//! The names of processes and users: what `pcomm`, `comm(pid)` and `username` are printed as.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use nix::unistd::{Uid, User};

/// How often the name of a process is read again at most.
const EVERY: Duration = Duration::from_millis(100);

/// The most processes whose names are kept.
const MAX_PROCESSES: usize = 1 << 14;

/// The names that were asked for, and those of processes that hit probes.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Names, and when they were read. They stay when the process has ended.
    processes: HashMap<u32, (Vec<u8>, Instant)>,
    users: HashMap<u32, String>,
}

impl Names {
    /// Reads the name of a process, before it ends.
    pub(super) fn look(&mut self, pid: u32) {
        if self.processes.get(&pid).is_none_or(|(_, read)| read.elapsed() >= EVERY) {
            self.learn(pid);
        }
    }

    /// Reads the name of a process that has begun, or has executed a program.
    pub(super) fn learn(&mut self, pid: u32) {
        if self.processes.len() >= MAX_PROCESSES {
            self.processes.clear();
        }
        if let Ok(mut name) = std::fs::read(format!("/proc/{pid}/comm")) {
            name.truncate(name.len() - usize::from(name.ends_with(b"\n")));
            self.processes.insert(pid, (name, Instant::now()));
        }
    }

    /// The name of a process; empty if nobody knows it.
    pub(super) fn process(&mut self, pid: u32) -> Vec<u8> {
        self.look(pid);
        self.processes.get(&pid).map(|(name, _)| name.clone()).unwrap_or_default()
    }

    /// The name of a user; of one without a name, its number.
    pub(super) fn user(&mut self, number: u32) -> String {
        let name = |user: Option<User>| user.map(|user| user.name);
        let find = || User::from_uid(Uid::from_raw(number)).ok().and_then(name);
        self.users.entry(number).or_insert_with(|| find().unwrap_or_else(|| number.to_string())).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_system() {
        let mut names = Names::default();
        assert_eq!(names.user(0), "root");
        assert_eq!(names.user(4_000_000_000), "4000000000");
        let own = std::fs::read_to_string("/proc/self/comm").expect("it is there");
        assert_eq!(names.process(std::process::id()), own.trim_end().as_bytes());
        assert_eq!(names.process(u32::MAX), b"");
    }

    #[test]
    fn a_name_is_known_when_its_process_has_ended() {
        let mut child = std::process::Command::new("sleep").arg("9").spawn().expect("it starts");
        let mut names = Names::default();
        names.look(child.id());
        child.kill().expect("it runs");
        child.wait().expect("it has ended");
        std::thread::sleep(EVERY);
        assert!(!names.process(child.id()).is_empty());
    }
}
