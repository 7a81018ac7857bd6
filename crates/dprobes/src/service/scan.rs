//! Finds the user's processes that map a probed module.
//!
//! The kernel does not notify an ordinary user of new processes, so the session searches for them
//! every [`INTERVAL`]. A young process may be about to execute another program, and is checked each
//! time; an older one is checked every [`OLD_INTERVAL`], since it may still load the module.
//! Children of followed processes need no search.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use image::Pattern;
use nix::unistd::{getpid, getppid, getuid};
use process::{Mapping, Status};

/// Time between two checks of a young process.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);
/// Time between two checks of an older process.
pub(crate) const OLD_INTERVAL: Duration = Duration::from_secs(1);
/// A process counts as young for this long.
const YOUTH: Duration = Duration::from_secs(2);

/// The processes that are not followed.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    /// When each was first seen and last checked.
    seen: HashMap<i32, (Instant, Instant)>,
    last: Option<Instant>,
}

impl Scanner {
    /// The user's processes to check now, without those in `follows`.
    pub(crate) fn due(&mut self, follows: &[i32]) -> Vec<i32> {
        let now = Instant::now();
        if self.last.is_some_and(|last| now - last < INTERVAL) {
            return Vec::new();
        }
        self.last = Some(now);
        let processes: HashSet<i32> = numbers().collect();
        let follows: HashSet<i32> = follows.iter().copied().collect();
        self.seen.retain(|pid, _| processes.contains(pid));
        let mut due = Vec::new();
        for pid in processes.difference(&follows).copied() {
            let (first, looked) = self.seen.entry(pid).or_insert((now, now - OLD_INTERVAL));
            let interval = if now - *first < YOUTH { Duration::ZERO } else { OLD_INTERVAL };
            // Only processes that are due are asked for their user and mappings.
            if now - *looked >= interval {
                *looked = now;
                due.push(pid);
            }
        }
        due.retain(|&pid| is_followable(pid, |uid| uid == own_user()));
        due.sort_unstable();
        due
    }
}

/// The user's processes that could be followed: not this one, not its front, none that is traced
/// already, no kernel thread.
pub(crate) fn own_processes() -> Vec<i32> {
    processes(|uid| uid == own_user())
}

/// Like [`own_processes`], for all other users.
pub(crate) fn processes_of_others() -> Vec<i32> {
    processes(|uid| uid != own_user())
}

fn own_user() -> u32 {
    getuid().as_raw()
}

/// The ids of all processes.
fn numbers() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Whether a process could be followed and its user is wanted.
fn is_followable(pid: i32, is_wanted: impl Fn(u32) -> bool) -> bool {
    pid != getpid().as_raw()
        && pid != getppid().as_raw()
        && Status::read(pid).is_ok_and(|status| {
            is_wanted(status.uid)
                && !status.kernel
                && status.tracer == 0
                && !matches!(status.state, 'Z' | 'X')
        })
}

fn processes(is_wanted: impl Fn(u32) -> bool) -> Vec<i32> {
    numbers().filter(|&pid| is_followable(pid, &is_wanted)).collect()
}

/// Whether a process maps the code of a module with this name: its path, file name, or a link to
/// it.
pub(crate) fn maps_module(pid: i32, name: &str) -> bool {
    let Ok(mappings) = process::maps(pid) else { return false };
    is_among(&mappings, name, &format!("/proc/{pid}/root"))
}

/// Whether a process maps the code of a file that both names mean.
pub(crate) fn maps_both(pid: i32, one: &str, other: &str) -> bool {
    let root = format!("/proc/{pid}/root");
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let is = |mapping: &Mapping, name: &str| match name {
        "a.out" => mapping.path.as_ref() == Some(&program),
        _ => is_among(std::slice::from_ref(mapping), name, &root),
    };
    let maps = process::maps(pid).unwrap_or_default();
    maps.iter().filter(|mapping| mapping.executable).any(|mapping| is(mapping, one) && is(mapping, other))
}

fn is_among(mappings: &[Mapping], name: &str, root: &str) -> bool {
    let paths =
        mappings.iter().filter(|mapping| mapping.executable).filter_map(|mapping| mapping.path.as_deref());
    if name.contains('/') {
        let real = fs::canonicalize(name).ok();
        let inside = fs::canonicalize(format!("{root}{name}")).ok();
        let inside = inside
            .as_deref()
            .and_then(|path| path.strip_prefix(root).ok())
            .map(|path| Path::new("/").join(path));
        return paths.into_iter().any(|path| {
            path == Path::new(name) || Some(path) == real.as_deref() || Some(path) == inside.as_deref()
        });
    }
    let pattern = Pattern::new(name).ok().filter(|_| Pattern::is_one(name));
    let is_called = |file: &str| {
        // `libc`, `libc.so` and `libc.so.6` may name the same file.
        let versioned = |rest: &str| rest.is_empty() || rest == ".so" || rest.starts_with('.');
        file.strip_prefix(name).is_some_and(versioned)
            || pattern.as_ref().is_some_and(|pattern| pattern.matches(file))
    };
    // Whether `a.out` applies is found when the process itself is examined.
    name == "a.out"
        || paths.into_iter().any(|path| {
            path.file_name().is_some_and(|file| is_called(&file.to_string_lossy()))
                || path.parent().and_then(|folder| fs::canonicalize(folder.join(name)).ok()).as_deref()
                    == Some(path)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_maps_its_own_program() {
        let pid = std::process::id() as i32;
        let program = std::env::current_exe().expect("the program's path");
        assert!(maps_module(pid, &program.to_string_lossy()));
        assert!(maps_module(pid, &program.file_name().expect("a name").to_string_lossy()));
        assert!(!maps_module(pid, "libnone.so"));
        assert!(!maps_module(pid, "/nowhere/libnone.so"));
        assert!(!own_processes().contains(&pid));
        let (path, name) =
            (program.to_string_lossy(), program.file_name().expect("a name").to_string_lossy());
        assert!(maps_both(pid, &path, &name) && maps_both(pid, "a.out", &name));
        assert!(!maps_both(pid, "a.out", "libnone.so"));
    }
}
