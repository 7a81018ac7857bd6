//! The credentials of a process, which decide what the kernel allows it to do.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::Error;
use crate::procfs::read_piece;

/// Ids, capabilities and namespaces of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Real, effective, saved and file system user.
    pub users: [u32; 4],
    /// Real, effective, saved and file system group.
    pub groups: [u32; 4],
    /// Supplementary groups.
    pub supplementary: Vec<u32>,
    /// The permitted capabilities, as a bit set.
    pub permitted: u64,
    /// The number of its user namespace; 0: the caller's own, or one that the caller may not read.
    pub user_namespace: u64,
    /// The number of its pid namespace, likewise.
    pub pid_namespace: u64,
}

impl Credentials {
    /// Reads the credentials of a thread or process.
    ///
    /// # Errors
    /// The thread or process is gone.
    pub fn read(tid: i32) -> Result<Credentials, Error> {
        let gone = || Error::Gone { pid: tid };
        let text = read_piece(&format!("/proc/{tid}/status")).map_err(|_| gone())?;
        let mut credentials = parse(&String::from_utf8_lossy(&text)).ok_or_else(gone)?;
        credentials.user_namespace = namespace(tid, "user");
        credentials.pid_namespace = namespace(tid, "pid");
        Ok(credentials)
    }
}

/// Reads the credentials out of `/proc/TID/status`; the namespaces are not there.
fn parse(text: &str) -> Option<Credentials> {
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let numbers = |name: &str| -> Option<Vec<u32>> {
        line(name)?.split_whitespace().map(|number| number.parse().ok()).collect()
    };
    Some(Credentials {
        users: numbers("Uid")?.try_into().ok()?,
        groups: numbers("Gid")?.try_into().ok()?,
        supplementary: numbers("Groups")?,
        permitted: u64::from_str_radix(line("CapPrm")?.trim(), 16).ok()?,
        user_namespace: 0,
        pid_namespace: 0,
    })
}

/// The number of a thread's namespace, or 0 if it is this process's own.
fn namespace(tid: i32, kind: &str) -> u64 {
    static OWN: [OnceLock<Option<PathBuf>>; 2] = [const { OnceLock::new() }; 2];
    let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/{kind}")).ok();
    let Some(name) = of(&tid.to_string()) else { return 0 };
    if OWN[usize::from(kind == "pid")].get_or_init(|| of("self")).as_ref() == Some(&name) {
        return 0;
    }
    let digits: String = name.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read() {
        let text =
            "Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nCapPrm:\t00000000000000ff\n";
        let read = parse(text).expect("it has all");
        assert_eq!((read.users, read.groups, read.permitted), ([1, 2, 3, 4], [5, 6, 7, 8], 0xff));
        assert_eq!(read.supplementary, [9, 10]);
        assert_eq!(parse(&text.replace("CapPrm", "CapInh")), None);
        assert_eq!(parse(&text.replace("9 10 ", "")).map(|read| read.supplementary), Some(Vec::new()));
    }

    #[test]
    fn this_process_is_in_its_own_namespaces() {
        let own = Credentials::read(std::process::id() as i32).expect("it lives");
        assert_eq!(own.users[1], nix::unistd::geteuid().as_raw());
        assert_eq!((own.user_namespace, own.pid_namespace), (0, 0));
        // No thread has this number.
        assert!(Credentials::read(i32::MAX >> 1).is_err());
    }
}
