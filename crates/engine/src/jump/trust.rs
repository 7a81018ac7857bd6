//! Trust domains: processes that could touch one another anyway, and therefore share variables and
//! counters.
//!
//! This compares what the kernel checks when one process wants to trace another: users, groups,
//! capabilities and user namespace; and the pid namespace, beyond which a process sees no other. A
//! process that may become any user (CAP_SETUID) is compared without its present users, so that a
//! server which changes its effective user for each request stays in its domain.
//!
//! The ids are those of a process's first thread. Other threads may have others, but share its
//! memory anyway.

use std::time::{Duration, Instant};

use process::Credentials;

/// The capabilities to become any group and any user, as bits.
const SETGID: u64 = 1 << 6;
const SETUID: u64 = 1 << 7;

/// The first and the longest interval between checks of a process that can change its ids.
const CHECK_INTERVALS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(4));

/// From this interval on, the tracer is not woken at each tick for checks.
const RARE: Duration = Duration::from_secs(1);

/// The credentials of a process that decide over its domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trust {
    /// Real, effective, saved and file system users, each once; empty if it may become any user.
    users: Vec<u32>,
    /// The same for groups, with the supplementary ones.
    groups: Vec<u32>,
    capabilities: u64,
    /// The user and the pid namespace; 0: the tracer's.
    namespaces: (u64, u64),
    #[cfg(test)]
    name: String,
}

impl Trust {
    /// The credentials of a process; none if it is gone.
    pub(crate) fn of(pid: i32) -> Option<Trust> {
        Credentials::read(pid).ok().map(|credentials| Trust::from(&credentials))
    }

    /// A short description, for users.
    pub(crate) fn name(&self) -> String {
        let mut name = match self.users[..] {
            [] if self.capabilities.count_ones() > 8 => "root".to_owned(),
            [] => "any user".to_owned(),
            [user] => format!("user {user}"),
            _ => format!("users {}", self.users.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
        };
        if !self.users.is_empty() && self.capabilities != 0 {
            name.push_str(&format!(" with capabilities {:#x}", self.capabilities));
        }
        if let Some(group) = self.groups.first().filter(|_| !self.users.is_empty()) {
            name.push_str(&format!(", group {group}"));
        }
        if self.namespaces != (0, 0) {
            name.push_str(&format!(", namespaces {} and {}", self.namespaces.0, self.namespaces.1));
        }
        name
    }

    /// Whether it can change its ids without executing a program.
    fn can_change(&self) -> bool {
        self.capabilities != 0 || self.users.len() > 1
    }

    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Trust {
        Trust { name: name.to_owned(), ..Trust::default() }
    }
}

impl From<&Credentials> for Trust {
    fn from(credentials: &Credentials) -> Trust {
        let each = |ids: &mut Vec<u32>| {
            ids.sort_unstable();
            ids.dedup();
        };
        let may = |capability: u64| credentials.permitted & capability != 0;
        let mut users = if may(SETUID) { Vec::new() } else { credentials.users.to_vec() };
        let mut groups = if may(SETGID) { Vec::new() } else { credentials.groups.to_vec() };
        if !may(SETGID) {
            groups.extend(&credentials.supplementary);
        }
        each(&mut users);
        each(&mut groups);
        Trust {
            users,
            groups,
            capabilities: credentials.permitted,
            namespaces: (credentials.user_namespace, credentials.pid_namespace),
            #[cfg(test)]
            name: String::new(),
        }
    }
}

/// When the next check of any process is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NextLook {
    /// No process can change its ids.
    #[default]
    Never,
    /// In a second, or later.
    Later,
    /// At the next tick.
    Soon,
}

/// When a process is checked again: often at first, since a server that drops its rights does so
/// when it begins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Again {
    due: Option<Instant>,
    after: Duration,
}

impl Again {
    /// For a process that has just got these credentials.
    pub(crate) fn of(trust: &Trust) -> Again {
        let due = trust.can_change().then(|| Instant::now() + CHECK_INTERVALS.0);
        Again { due, after: CHECK_INTERVALS.0 }
    }

    /// About when the next check is due.
    pub(crate) fn next(&self) -> NextLook {
        match self.due {
            None => NextLook::Never,
            Some(_) if self.after < RARE => NextLook::Soon,
            Some(_) => NextLook::Later,
        }
    }

    /// Whether the check is due; if so, schedules the next one.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.due.is_some_and(|due| due <= now);
        if is_due {
            self.after = (self.after * 2).min(CHECK_INTERVALS.1);
            self.due = Some(now + self.after);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: u32) -> Credentials {
        Credentials {
            users: [id; 4],
            groups: [id; 4],
            supplementary: vec![id],
            permitted: 0,
            user_namespace: 0,
            pid_namespace: 0,
        }
    }

    #[test]
    fn ids_that_decide_are_compared_and_those_of_the_moment_are_not() {
        let of = |credentials: Credentials| Trust::from(&credentials);
        let plain = of(user(7));
        assert_eq!((plain == of(user(7)), plain.can_change()), (true, false));
        let others = [
            user(8),
            Credentials { users: [7, 8, 7, 7], ..user(7) },
            Credentials { groups: [7, 7, 9, 7], ..user(7) },
            Credentials { supplementary: vec![7, 4], ..user(7) },
            Credentials { permitted: 1 << 13, ..user(7) },
            Credentials { user_namespace: 4, ..user(7) },
            Credentials { pid_namespace: 4, ..user(7) },
        ];
        for other in others {
            assert_ne!(of(other.clone()), plain, "{other:?}");
        }
        // Which of its users a process is at the moment does not matter.
        let games = |effective| of(Credentials { users: [7, effective, 9, effective], ..user(7) });
        assert_eq!(games(7), games(9));
        assert!(games(7).can_change());
        // Nor which user root is at the moment.
        let all = (1 << 41) - 1;
        let root = of(Credentials { permitted: all, ..user(0) });
        let serves = Credentials { users: [0, 7, 0, 7], groups: [0, 7, 0, 7], permitted: all, ..user(0) };
        assert_eq!((root == of(serves), root.can_change(), root.name()), (true, true, "root".to_owned()));
        assert_ne!(of(Credentials { permitted: SETUID, ..user(7) }), root);
    }

    #[test]
    fn who_has_just_begun_is_looked_at_often() {
        let root = Trust { capabilities: 1, ..Trust::default() };
        let mut again = Again::of(&root);
        let (begun, mut looks) = (Instant::now(), 0);
        for after in 0..60_000 {
            looks += u32::from(again.is_due(begun + Duration::from_millis(after)));
        }
        assert!((15..30).contains(&looks), "{looks}");
        assert_eq!((again.next(), Again::of(&root).next()), (NextLook::Later, NextLook::Soon));
        assert_eq!(Again::of(&Trust::default()).next(), NextLook::Never);
    }
}
