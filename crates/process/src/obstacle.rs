//! Why the kernel does not let this process trace another one, and what to do about it.
//!
//! The kernel only says "operation not permitted" or "permission denied". Its rules are those of
//! ptrace(2), section "Ptrace access mode checking", and of the Yama module.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::Credentials;

/// CAP_SYS_PTRACE of linux/capability.h: to trace processes of others.
const SYS_PTRACE: u64 = 1 << 19;

/// What stands in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// The process belongs to another user.
    OtherUser(u32),
    /// It belongs to another group.
    OtherGroup(u32),
    /// It has capabilities that this one lacks.
    Privileged,
    /// It is not dumpable: it runs a file that its user may not read, has changed its user, or has
    /// asked for that.
    NotDumpable,
    /// The Yama module allows tracing of descendants only.
    Descendants,
    /// The Yama module allows tracing with CAP_SYS_PTRACE only.
    Administrators,
    /// The Yama module allows no tracing at all.
    Nobody,
    /// Nothing of these.
    Unknown,
}

impl Obstacle {
    /// What stands in the way of tracing a process that the kernel refuses.
    pub fn to(pid: i32) -> Obstacle {
        let (Ok(own), Ok(other)) = (Credentials::read(std::process::id() as i32), Credentials::read(pid))
        else {
            return Obstacle::Unknown;
        };
        let owner = fs::metadata(format!("/proc/{pid}")).map(|metadata| metadata.uid()).ok();
        let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
        let scope = scope.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        find(&own, &other, owner, scope)
    }
}

/// What stands in the way, if a process with `own` credentials wants to trace one with `other`,
/// whose directory in /proc belongs to `owner`, under Yama's `scope`.
fn find(own: &Credentials, other: &Credentials, owner: Option<u32>, scope: u32) -> Obstacle {
    let may_trace_others = own.permitted & SYS_PTRACE != 0;
    if !may_trace_others {
        let (user, group) = (own.users[3], own.groups[3]);
        if let Some(other) = other.users[..3].iter().find(|other| **other != user) {
            return Obstacle::OtherUser(*other);
        }
        if let Some(other) = other.groups[..3].iter().find(|other| **other != group) {
            return Obstacle::OtherGroup(*other);
        }
        // The files of a process that is not dumpable belong to root.
        if owner.is_some_and(|owner| owner != other.users[1]) {
            return Obstacle::NotDumpable;
        }
        if other.permitted & !own.permitted != 0 {
            return Obstacle::Privileged;
        }
    }
    match scope {
        3.. => Obstacle::Nobody,
        2 if !may_trace_others => Obstacle::Administrators,
        1 if !may_trace_others => Obstacle::Descendants,
        _ => Obstacle::Unknown,
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::OtherUser(user) => {
                write!(f, "it belongs to user {user}; try as that user, as root, or with CAP_SYS_PTRACE")
            }
            Obstacle::OtherGroup(group) => {
                write!(f, "it belongs to group {group}; try as root, or with CAP_SYS_PTRACE")
            }
            Obstacle::Privileged => f.write_str("it has capabilities that this user lacks; try as root"),
            Obstacle::NotDumpable => f.write_str(
                "it is protected from its own user, as programs are that change their user or whose file may not be read; try as root",
            ),
            Obstacle::Descendants => f.write_str(
                "kernel.yama.ptrace_scope is 1: only what dprobes itself starts may be traced; start the program with \
                 `dprobes run`, try as root, or set kernel.yama.ptrace_scope to 0 with sysctl",
            ),
            Obstacle::Administrators => {
                f.write_str("kernel.yama.ptrace_scope is 2: only CAP_SYS_PTRACE allows tracing; try as root")
            }
            Obstacle::Nobody => {
                f.write_str("kernel.yama.ptrace_scope is 3: nobody may trace until the machine is restarted")
            }
            Obstacle::Unknown => f.write_str(
                "a sandbox, a container or a security module forbids it; in a container, allow CAP_SYS_PTRACE and the \
                 system call ptrace",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(user: u32, permitted: u64) -> Credentials {
        Credentials {
            users: [user; 4],
            groups: [user; 4],
            supplementary: Vec::new(),
            permitted,
            user_namespace: 0,
            pid_namespace: 0,
        }
    }

    #[test]
    fn the_kernels_rules_are_followed_in_their_order() {
        let user = of(1000, 0);
        let find = |other: &Credentials, owner, scope| super::find(&user, other, Some(owner), scope);
        assert_eq!(find(&of(0, u64::MAX), 0, 1), Obstacle::OtherUser(0));
        let mut changed = of(1000, 0);
        changed.users[2] = 0;
        assert_eq!(find(&changed, 0, 0), Obstacle::OtherUser(0));
        changed = of(1000, 0);
        changed.groups[0] = 27;
        assert_eq!(find(&changed, 1000, 0), Obstacle::OtherGroup(27));
        assert_eq!(find(&of(1000, 0), 0, 0), Obstacle::NotDumpable);
        assert_eq!(find(&of(1000, 2), 1000, 0), Obstacle::Privileged);
        let scopes = [0, 1, 2, 3].map(|scope| find(&of(1000, 0), 1000, scope));
        let expected = [Obstacle::Unknown, Obstacle::Descendants, Obstacle::Administrators, Obstacle::Nobody];
        assert_eq!(scopes, expected);
        let root = of(0, u64::MAX);
        assert_eq!(super::find(&root, &user, Some(0), 2), Obstacle::Unknown);
        assert_eq!(super::find(&root, &user, Some(1000), 3), Obstacle::Nobody);
    }
}
