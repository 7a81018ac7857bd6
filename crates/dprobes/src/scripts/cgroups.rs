//! The paths of cgroups by their numbers: the inodes of their directories.

use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use image::Pattern;

/// The most directories of a hierarchy that are looked at.
const DIRECTORIES: usize = 1 << 16;

/// The paths of a cgroup in the hierarchies whose names a filter matches: `unified:/user.slice`, of
/// several separated by commas. As in bpftrace, cgroup2 is called `unified`, the others by their
/// directories, and only those below `/sys/fs/cgroup` are looked at.
pub(super) fn paths(number: u64, filter: &[u8]) -> String {
    let filter = String::from_utf8_lossy(filter);
    let pattern = (!filter.is_empty()).then(|| Pattern::new(&filter).ok()).flatten();
    let is_meant = |name: &str| match &pattern {
        Some(pattern) => pattern.matches(name),
        None => filter.is_empty() || filter == name,
    };
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let found =
        hierarchies(&mounts).into_iter().filter(|(name, _)| is_meant(name)).filter_map(|(name, root)| {
            let path = path_below(&root, number)?;
            Some(format!("{name}:/{path}"))
        });
    found.collect::<Vec<_>>().join(",")
}

/// The hierarchies of cgroups in a list of mounts: their names and directories.
fn hierarchies(mounts: &str) -> Vec<(String, PathBuf)> {
    let of_line = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let (directory, kind) = (words.next()?, words.next()?);
        let last = directory.strip_prefix("/sys/fs/cgroup")?.trim_start_matches('/');
        match kind {
            "cgroup2" => Some(("unified".to_owned(), PathBuf::from(directory))),
            "cgroup" => Some((last.to_owned(), PathBuf::from(directory))),
            _ => None,
        }
    };
    mounts.lines().filter_map(of_line).collect()
}

/// The path of the directory with an inode, from a directory on.
fn path_below(root: &Path, inode: u64) -> Option<String> {
    let mut waiting = VecDeque::from([root.to_owned()]);
    let mut seen = 0;
    while let Some(directory) = waiting.pop_front() {
        if std::fs::metadata(&directory).is_ok_and(|it| it.ino() == inode) {
            let rest = directory.strip_prefix(root).ok()?;
            return Some(String::from_utf8_lossy(rest.as_os_str().as_bytes()).into_owned());
        }
        seen += 1;
        if seen > DIRECTORIES {
            return None;
        }
        let inner = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        let is_directory = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        waiting.extend(inner.filter(is_directory).map(|entry| entry.path()));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_have_the_names_that_bpftrace_gives_them() {
        let mounts = "proc /proc proc rw 0 0\ncgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup2 /mnt/cgroup cgroup2 rw 0 0\n";
        let names: Vec<String> = hierarchies(mounts).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["cpu,cpuacct", "unified"]);
    }

    #[test]
    fn a_number_is_that_of_a_directory() {
        let scratch = testing::Scratch::new();
        let inner = scratch.path().join("user.slice/a b");
        std::fs::create_dir_all(&inner).expect("there is room");
        let inode = std::fs::metadata(&inner).expect("it is there").ino();
        assert_eq!(path_below(scratch.path(), inode).as_deref(), Some("user.slice/a b"));
        let root = std::fs::metadata(scratch.path()).expect("it is there").ino();
        assert_eq!(path_below(scratch.path(), root).as_deref(), Some(""));
        assert_eq!(path_below(&inner, root), None);
    }
}
