//! The fields of `/proc/TID/stat` that a core file repeats.
//!
//! ```text
//! 1234 (a name) S 1 1234 1234 0 -1 4194304 ...
//! id   name     state parent group session terminal foreground flags ...
//! ```

use std::fs::File;
use std::io::Read;

use nix::unistd::{SysconfVar, sysconf};

use crate::Error;

/// A thread's relations and times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The process that created it.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// The kernel's flags of the thread (PF_*).
    pub flags: u32,
    /// Time it ran in user space, in milliseconds.
    pub user_time: u64,
    /// Time it ran in the kernel, in milliseconds.
    pub system_time: u64,
    /// Time that its process's waited-for children ran in user space, in milliseconds.
    pub children_user_time: u64,
    /// Time that those children ran in the kernel, in milliseconds.
    pub children_system_time: u64,
    /// Its nice value, -20 to 19.
    pub nice: i32,
}

impl Stat {
    /// Reads the stat file of a thread.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn read(tid: i32) -> Result<Stat, Error> {
        let path = format!("/proc/{tid}/stat");
        let text = crate::procfs::read_piece(&path).map_err(|cause| Error::Proc { path, cause })?;
        let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(0);
        Ok(Stat::parse(&String::from_utf8_lossy(&text), u64::try_from(ticks).unwrap_or(0)))
    }

    /// Parses the text of a stat file; `ticks` is the number of clock ticks per second.
    fn parse(text: &str, ticks: u64) -> Stat {
        // The name, in parentheses, may contain anything. The state, field 3, is the first field
        // after it.
        let after = text.rfind(')').map_or("", |end| &text[end + 1..]);
        let fields: Vec<i64> = after
            .split_ascii_whitespace()
            .skip(1)
            .map(|field| field.parse::<i64>().unwrap_or_default())
            .collect();
        let field = |number: usize| fields.get(number - 4).copied().unwrap_or_default();
        let time = |number: usize| {
            let milliseconds = u128::from(field(number).max(0) as u64) * 1000 / u128::from(ticks.max(1));
            u64::try_from(milliseconds).unwrap_or(u64::MAX)
        };
        Stat {
            parent: field(4) as i32,
            group: field(5) as i32,
            session: field(6) as i32,
            flags: field(9) as u32,
            user_time: time(14),
            system_time: time(15),
            children_user_time: time(16),
            children_system_time: time(17),
            nice: field(19) as i32,
        }
    }
}

/// The first `limit` bytes of a process's command line, its words separated by NUL; empty if it
/// cannot be read.
pub fn command_line(pid: i32, limit: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(format!("/proc/{pid}/cmdline")) {
        // A process that is gone has no command line, like one that has overwritten it.
        let _ = file.take(limit as u64).read_to_end(&mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use nix::unistd::{getpgrp, getppid, getsid};

    use super::*;

    #[test]
    fn a_stat_file_is_understood() {
        let text = "42 (a) b (c) S 7 40 39 34816 40 4194560 100 200 0 0 250 50 3 4 20 -5 1 0 1000 2000 300";
        assert_eq!(
            Stat::parse(text, 100),
            Stat {
                parent: 7,
                group: 40,
                session: 39,
                flags: 4_194_560,
                user_time: 2500,
                system_time: 500,
                children_user_time: 30,
                children_system_time: 40,
                nice: -5,
            }
        );
        assert_eq!(Stat::parse("42 (a", 0), Stat::default());
    }

    #[test]
    fn the_caller_itself_can_be_looked_up() {
        let pid = std::process::id() as i32;
        let stat = Stat::read(pid).expect("own stat");
        let session = getsid(None).expect("it has one");
        let own = (getppid().as_raw(), getpgrp().as_raw(), session.as_raw());
        assert_eq!((stat.parent, stat.group, stat.session), own);
        assert!(!command_line(pid, 1000).is_empty());
        assert_eq!(command_line(pid, 1).len(), 1);
    }
}
