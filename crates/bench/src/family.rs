//! Processes and their descendants.

use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// The process and all its descendants, youngest first.
pub(crate) fn family(pid: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name, in parentheses, may contain anything.
        let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
        if let Some(parent) = after.split(' ').nth(1).and_then(|word| word.parse::<u32>().ok()) {
            parents.push((number, parent));
        }
    }
    let mut family = vec![pid];
    let mut next = 0;
    while next < family.len() {
        let parent = family[next];
        family.extend(parents.iter().filter(|(_, its)| *its == parent).map(|(child, _)| *child));
        next += 1;
    }
    family.reverse();
    family
}

/// Kills a process and its descendants, each by its number. It must be our child and not waited for
/// yet.
pub(crate) fn kill(pid: u32) {
    for each in family(pid) {
        send(each, Signal::SIGKILL);
    }
}

/// Sends a signal to a process. It must be our child and not waited for yet, or a descendant of
/// one.
pub(crate) fn send(pid: u32, signal: Signal) {
    let _ = nix::sys::signal::kill(Pid::from_raw(pid.cast_signed()), signal);
}
